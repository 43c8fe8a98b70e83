// Special registers.

#include <algorithm>

#include "ptx.h"

namespace emulator {

namespace {

// The driver's memory for the barrier of a cooperative grid, whose address two environment registers hold.
struct GridWorkspace {
  uint32_t size, barrier;
};
GridWorkspace grid_workspace;

uint64_t number_of_block() {
  return (uint64_t(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
}

uint64_t flattened(uint3 index, uint3 size) {
  return (uint64_t(index.z) * size.y + index.y) * size.x + index.x;
}

struct Register {
  std::string_view name;
  uint64_t (*value)();
};

uint64_t lane_bit() {
  return uint64_t(1) << self().lane;
}

constexpr Register kRegisters[] = {
    {"tid.x", [] { return uint64_t(threadIdx.x); }},
    {"tid.y", [] { return uint64_t(threadIdx.y); }},
    {"tid.z", [] { return uint64_t(threadIdx.z); }},
    {"ntid.x", [] { return uint64_t(blockDim.x); }},
    {"ntid.y", [] { return uint64_t(blockDim.y); }},
    {"ntid.z", [] { return uint64_t(blockDim.z); }},
    {"ctaid.x", [] { return uint64_t(blockIdx.x); }},
    {"ctaid.y", [] { return uint64_t(blockIdx.y); }},
    {"ctaid.z", [] { return uint64_t(blockIdx.z); }},
    {"nctaid.x", [] { return uint64_t(gridDim.x); }},
    {"nctaid.y", [] { return uint64_t(gridDim.y); }},
    {"nctaid.z", [] { return uint64_t(gridDim.z); }},
    {"laneid", [] { return uint64_t(self().lane); }},
    {"warpid", [] { return uint64_t(warp().number); }},
    {"nwarpid", [] { return uint64_t(64); }},
    {"smid", [] { return number_of_block() % uint64_t(machine.multiprocessors); }},
    {"nsmid", [] { return uint64_t(machine.multiprocessors); }},
    {"gridid", [] { return uint64_t(1); }},
    {"lanemask_eq", [] { return lane_bit(); }},
    {"lanemask_lt", [] { return lane_bit() - 1; }},
    {"lanemask_le", [] { return 2 * lane_bit() - 1; }},
    {"lanemask_gt", [] { return uint64_t(uint32_t(~(2 * lane_bit() - 1))); }},
    {"lanemask_ge", [] { return uint64_t(uint32_t(~(lane_bit() - 1))); }},
    {"clock", [] { return uint64_t(uint32_t(ticks())); }},
    {"clock_hi", [] { return uint64_t(ticks()) >> 32; }},
    {"clock64", [] { return uint64_t(ticks()); }},
    {"globaltimer", [] { return uint64_t(nanoseconds()); }},
    {"globaltimer_lo", [] { return uint64_t(uint32_t(nanoseconds())); }},
    {"globaltimer_hi", [] { return uint64_t(nanoseconds()) >> 32; }},
    {"clusterid.x", [] { return uint64_t(cluster_index().x); }},
    {"clusterid.y", [] { return uint64_t(cluster_index().y); }},
    {"clusterid.z", [] { return uint64_t(cluster_index().z); }},
    {"nclusterid.x", [] { return uint64_t(cluster_count().x); }},
    {"nclusterid.y", [] { return uint64_t(cluster_count().y); }},
    {"nclusterid.z", [] { return uint64_t(cluster_count().z); }},
    {"cluster_ctaid.x", [] { return uint64_t(cluster_block_index().x); }},
    {"cluster_ctaid.y", [] { return uint64_t(cluster_block_index().y); }},
    {"cluster_ctaid.z", [] { return uint64_t(cluster_block_index().z); }},
    {"cluster_nctaid.x", [] { return uint64_t(cluster_size().x); }},
    {"cluster_nctaid.y", [] { return uint64_t(cluster_size().y); }},
    {"cluster_nctaid.z", [] { return uint64_t(cluster_size().z); }},
    {"cluster_ctarank", [] { return uint64_t(cluster_rank()); }},
    {"cluster_nctarank", [] { return uint64_t(block().cluster->blocks.size()); }},
    {"is_explicit_cluster", [] { return uint64_t(block().cluster->blocks.size() > 1); }},
    {"dynamic_smem_size", [] { return uint64_t(current_launch->configuration.shared); }},
    {"total_smem_size", [] { return uint64_t(window_end()); }},
    {"reserved_smem_offset_begin", [] { return uint64_t(0); }},
    {"reserved_smem_offset_end", [] { return uint64_t(kReservedShared); }},
    {"reserved_smem_offset_cap", [] { return uint64_t(kReservedShared); }},
    {"reserved_smem_offset_0", [] { return uint64_t(0); }},
    {"reserved_smem_offset_1", [] { return uint64_t(512); }},
    {"envreg0", [] { return uint64_t(0); }},
    {"envreg1", [] { return reinterpret_cast<uint64_t>(&grid_workspace) >> 32; }},
    {"envreg2", [] { return reinterpret_cast<uint64_t>(&grid_workspace) & 0xffffffff; }},
};

}  // namespace

int special_register_of(std::string_view name) {
  for (size_t i = 0; i < std::size(kRegisters); ++i) {
    if (kRegisters[i].name == name) return int(i);
  }
  return -1;
}

uint64_t special_register(uint64_t number) {
  return kRegisters[number].value();
}

}  // namespace emulator
