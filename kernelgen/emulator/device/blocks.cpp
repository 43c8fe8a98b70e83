// Blocks, their shared memory and barriers, and launches.

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>

#include "accesses.h"
#include "machine.h"
#include "memory.h"

namespace emulator {

namespace {

constexpr unsigned char kPoison = 0xff;  // Floating-point numbers of such bytes are NaN.
constexpr size_t kGap = 64;              // Bytes after a part of the shared memory that nothing may touch.
// The most shared memory of a block whose kernel has not been given more by cudaFuncSetAttribute.
constexpr size_t kUsualShared = 48 * 1024;

std::map<const void*, int> dynamic_limits;  // By kernel: the most dynamic shared memory that it may be launched with.

// All windows lie in one piece of address space, so that an address tells its block: twice the window each.
constexpr size_t kMaxWindows = 1 << 12;
char* windows = nullptr;
size_t used_windows = 0;
std::vector<char*> free_windows;
std::vector<Block*> window_blocks;

char* new_window() {
  if (!windows) windows = map_memory(kMaxWindows * 2 * kWindow);
  if (used_windows == kMaxWindows) fail("more blocks at a time than the emulator has memory for");
  window_blocks.push_back(nullptr);
  return windows + used_windows++ * 2 * kWindow;
}

std::unique_ptr<Block> make_block(Cluster& cluster, int rank, uint3 index) {
  auto block = std::make_unique<Block>();
  const dim3 size = current_launch->configuration.block;
  block->cluster = &cluster;
  block->rank = rank;
  block->index = index;
  block->threads = block->live = size.x * size.y * size.z;
  if (free_windows.empty()) free_windows.push_back(new_window());
  block->shared = free_windows.back();
  block->async_shared = block->shared + kWindow;
  window_blocks[(block->shared - windows) / (2 * kWindow)] = block.get();
  free_windows.pop_back();
  const int registers = std::min(65536 / ((block->threads + 127) / 128 * 128) / 8 * 8, 255);
  for (int thread = 0; thread < block->threads; ++thread) {
    const int lane = thread % kLanes;
    if (lane == 0) {
      auto warp = std::make_unique<Warp>();
      warp->block = block.get();
      warp->number = thread / kLanes;
      warp->exited = kAllLanes;
      warp->priority = machine.below(1 << 20);
      warp->registers = registers;
      block->warps.push_back(std::move(warp));
    }
    Warp& warp = *block->warps.back();
    warp.exited &= ~(1u << lane);
    warp.runnable |= 1u << lane;
    warp.threads[lane].warp = &warp;
    warp.threads[lane].lane = lane;
    warp.threads[lane].index = {thread % size.x, thread / size.x % size.y, thread / size.x / size.y};
  }
  return block;
}

}  // namespace

void (*before_launch)() = nullptr;

char* map_memory(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail("no memory for the emulator");
  return static_cast<char*>(memory);
}

void start_cluster(uint64_t number) {
  const dim3 grid = current_launch->configuration.grid, size = current_launch->configuration.cluster;
  current_launch->clusters.push_back(std::make_unique<Cluster>());
  Cluster& cluster = *current_launch->clusters.back();
  cluster.live = 0;
  for (unsigned rank = 0; rank < size.x; ++rank) {
    const uint64_t block = number * size.x + rank;
    const uint3 index = {
        unsigned(block % grid.x), unsigned(block / grid.x % grid.y), unsigned(block / grid.x / grid.y)};
    cluster.blocks.push_back(make_block(cluster, rank, index));
    cluster.blocks.back()->id = block;
    cluster.live += cluster.blocks.back()->live;
    for (const auto& warp : cluster.blocks.back()->warps) current_launch->warps.push_back(warp.get());
  }
}

void start(Block& block) {
  block.started = true;
  memset(block.shared, kPoison, current_launch->end);
  memset(block.shared, 0, kReservedShared);  // Of the system and of cooperative groups.
  note_change(block, 0, kReservedShared);
  memset(block.async_shared, kPoison, current_launch->end);
  clear_shared_accesses(block, 0, current_launch->end);
}

void finish(Block& block) {
  if (block.loads_under_way) fail("block %u ends while copies to its shared memory are under way", block.index.x);
  check_remote_accesses(block);
  check_mbarriers_at_end(block);
}

void release_memory(Block& block) {
  window_blocks[(block.shared - windows) / (2 * kWindow)] = nullptr;
  free_windows.push_back(block.shared);
}

Block* block_of_window(const void* address, bool& is_window) {
  const size_t offset = static_cast<const char*>(address) - windows;
  is_window = windows && offset < used_windows * 2 * kWindow;
  return is_window && offset % (2 * kWindow) < kWindow ? window_blocks[offset / (2 * kWindow)] : nullptr;
}

// ---- Barriers -------------------------------------------------------------------------------------------------

bool is_complete(const Barrier& barrier, int live) {
  return barrier.arrived > 0 && barrier.arrived >= (barrier.expected ? barrier.expected : live);
}

void complete(Barrier& barrier, Block& block) {
  if (!machine.pending_report.empty() && &block == machine.block_of_accused) fail_without_unwinding("");
  // Threads that have exited count as arrived where all are waited for.
  if (!barrier.expected) {
    barrier.others.add(block.exited.view());
    for (Thread* const thread : barrier.waiting) thread->own.now = std::max(thread->own.now, block.last_exit);
  }
  meet(barrier.waiting, barrier.others);
  barrier.waiting.clear();
  barrier.others = {};
  barrier.arrived = barrier.expected = 0;
  ++barrier.phase;
  show_mbarriers(block, PhaseClock::Shown::kBlock);
  wake(&barrier);
}

void barrier_arrive(int number, int threads, bool waits, int line, const void* place) {
  if (number < 0 || number > 15) fail("there is no barrier %d", number);
  if (threads % kLanes) fail("barrier %d for %d threads, which are no whole warps", number, threads);
  Barrier& barrier = block().barriers[number];
  if (barrier.arrived == 0) {
    barrier.expected = threads;
    barrier.line = line;
    barrier.place = place;
  }
  if (line && barrier.line && barrier.line != line) {
    machine.pending_report.clear();
    fail("threads of a block diverge and are at different __syncthreads: at [%p]\n  and at [%p]", barrier.place, place);
  }
  if (barrier.expected != threads) fail("barrier %d for %d threads and for %d", number, barrier.expected, threads);
  if (line && machine.accused == &self()) machine.accused = nullptr;
  const uint64_t phase = barrier.phase;
  ++barrier.arrived;
  if (waits) {
    barrier.waiting.push_back(&self());
  } else {
    release(self(), barrier.others);
  }
  if (is_complete(barrier, block().live)) return complete(barrier, block());
  while (waits && barrier.phase == phase) {
    sleep(&barrier, number, [](const Thread& thread) {
      const Barrier& barrier = *static_cast<const Barrier*>(thread.channel);
      const int expected = barrier.expected ? barrier.expected : thread.warp->block->live;
      return text("barrier %d, where %d of %d threads are", int(thread.detail), barrier.arrived, expected);
    });
  }
}

void synchronise_block(int line) {
  barrier_arrive(0, 0, true, line, __builtin_return_address(0));
}

// ---- Shared memory --------------------------------------------------------------------------------------------

uint32_t window_end() {
  return current_launch->end;
}

SharedAddress shared_address(uint64_t address, size_t bytes, size_t alignment) {
  const uint32_t offset = address & ((1u << kRankShift) - 1), rank = address >> kRankShift;
  if (address >> 32 || offset < kReservedShared || offset + bytes > current_launch->end) {
    fail("%#llx is no address in shared memory", static_cast<unsigned long long>(address));
  }
  if (offset % alignment) fail("the address %#x in shared memory is no multiple of %zu", offset, alignment);
  if (rank == 0) return {&block(), offset};
  if (rank > block().cluster->blocks.size()) fail("the cluster has no block %u", rank - 1);
  Block& other = *block().cluster->blocks[rank - 1];
  if (other.live == 0) fail("the shared memory of block %u, which has ended, is used", rank - 1);
  return {&other, offset};
}

namespace {

void allow(uint32_t begin, size_t bytes) {
  for (uint32_t byte = begin; byte < begin + bytes; ++byte) current_launch->valid[byte / 4] |= 1 << byte % 4;
}

}  // namespace

void* dynamic_shared(size_t alignment) {
  uint32_t& start = current_launch->dynamic;
  if (!start) {
    // CUDA promises 16 bytes, so a kernel that asks for no more gets no more.
    start = alignment > 16 ? (kReservedShared + alignment - 1) / alignment * alignment : kReservedShared + 48;
    allow(start, current_launch->configuration.shared);
  }
  return block().shared + start;
}

void* shared_variable(const void* key, size_t bytes, size_t alignment, const char* names, size_t element_bytes) {
  auto [variable, is_new] = current_launch->variables.try_emplace(key);
  if (is_new) {
    const uint32_t begin = (current_launch->end + alignment - 1) / alignment * alignment;
    variable->second = {begin, bytes, names, element_bytes};
    current_launch->static_bytes = (current_launch->static_bytes + alignment - 1) / alignment * alignment + bytes;
    const uint32_t end = begin + (bytes + 15) / 16 * 16 + kGap;
    const size_t all = current_launch->static_bytes + current_launch->configuration.shared;
    if (all > current_launch->shared_limit || end > kWindow) {
      const char* const more = current_launch->shared_limit == kUsualShared ? " without cudaFuncSetAttribute" : "";
      fail("%zu bytes of shared memory, and a block can have %zu%s", all, current_launch->shared_limit, more);
    }
    // Blocks that have started, and poisoned their memory then, lack the poison for this part.
    for (const auto& cluster : current_launch->clusters) {
      for (const auto& block : cluster->blocks) {
        memset(block->shared + current_launch->end, kPoison, end - current_launch->end);
        memset(block->async_shared + current_launch->end, kPoison, end - current_launch->end);
        clear_shared_accesses(*block, current_launch->end, end);
      }
    }
    current_launch->end = end;
    allow(begin, bytes);
  }
  return block().shared + variable->second.offset;
}

// ---- Launches -------------------------------------------------------------------------------------------------

namespace {

// A launch by name does not tell the kernel's address, and may use what cudaFuncSetAttribute could give it.
bool is_usual(const void* kernel) {
  return kernel && !dynamic_limits.contains(kernel);
}

bool can_launch(const Configuration& configuration) {
  const dim3 grid = configuration.grid, threads = configuration.block, cluster = configuration.cluster;
  const uint64_t block_size = uint64_t(threads.x) * threads.y * threads.z;
  const bool grid_fits = grid.x && grid.y && grid.z && grid.x < 1u << 31 && grid.y < 1 << 16 && grid.z < 1 << 16;
  const bool block_fits = threads.x <= 1024 && threads.y <= 1024 && threads.z <= 64;
  const unsigned most = machine.capability < 90 ? 1 : 8;
  const bool cluster_fits = cluster.x && cluster.x <= most && cluster.y * cluster.z == 1 && grid.x % cluster.x == 0;
  return grid_fits && block_fits && cluster_fits && block_size && block_size <= 1024 &&
         configuration.shared <= gpu_of(machine.capability).shared_limit();
}

// Refuses a launch with more dynamic shared memory than the kernel may have.
bool has_shared_memory(const char* name, const void* kernel, size_t bytes) {
  const size_t limit = is_usual(kernel) ? kUsualShared : kernel ? dynamic_limits[kernel] : bytes;
  if (bytes <= limit) return true;
  machine.launch_error = text(
      "%s cannot be launched with %zu bytes of dynamic shared memory: it may have %zu. Call cudaFuncSetAttribute(%s, "
      "cudaFuncAttributeMaxDynamicSharedMemorySize, %zu) before.",
      name,
      bytes,
      limit,
      name,
      bytes);
  machine.last_error = cudaErrorInvalidValue;
  return false;
}

std::pair<const char*, const char*> host_stack() {
  thread_local const auto bounds = [] {
    pthread_attr_t attributes;
    void* begin = nullptr;
    size_t bytes = 0;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &begin, &bytes);
    pthread_attr_destroy(&attributes);
    const char* const address = static_cast<const char*>(begin);
    return std::pair(address, address + bytes);
  }();
  return bounds;
}

}  // namespace

cudaError_t run(
    const char* name, const void* kernel, const Configuration& configuration, void (*body)(void*), void* arguments) {
  has_context = true;
  if (!machine.failure.empty()) return cudaErrorLaunchFailure;
  const dim3 grid = configuration.grid, threads = configuration.block;
  if (!can_launch(configuration)) {
    machine.launch_error = text(
        "%s cannot be launched: (%u, %u, %u) blocks of (%u, %u, %u) threads, %zu bytes of shared memory, clusters of "
        "%u",
        name,
        grid.x,
        grid.y,
        grid.z,
        threads.x,
        threads.y,
        threads.z,
        configuration.shared,
        configuration.cluster.x);
    return machine.last_error = cudaErrorInvalidConfiguration;
  }
  const uint64_t blocks = uint64_t(grid.x) * grid.y * grid.z;
  if (configuration.is_cooperative && blocks > kMaxWindows) {
    machine.launch_error = text(
        "%s cannot be launched: all blocks of a cooperative launch run at once, and of its %llu blocks %zu fit",
        name,
        static_cast<unsigned long long>(blocks),
        kMaxWindows);
    return machine.last_error = cudaErrorCooperativeLaunchTooLarge;
  }
  if (!has_shared_memory(name, kernel, configuration.shared)) return machine.last_error;
  if (before_launch) before_launch();
  Launch launch{name, configuration, body, arguments};
  // Leaves room to align dynamic shared memory to up to 1,024 bytes.
  launch.gap = 2 * kReservedShared + (configuration.shared + 15) / 16 * 16;
  launch.end = launch.gap + kGap;
  launch.shared_limit = is_usual(kernel) ? kUsualShared : gpu_of(machine.capability).shared_limit();
  launch.valid.resize(kWindow / 4 + 4);
  // Of the system and of cooperative groups, which keep their barriers there.
  std::fill_n(launch.valid.begin(), kReservedShared / 4, 0xf);
  std::tie(launch.host_stack_begin, launch.host_stack_end) = host_stack();
  current_launch = &launch;
  clear_global_accesses();
  machine.pending_report.clear();
  machine.accused = nullptr;
  gridDim = grid;
  blockDim = threads;
  run_all();
  clear_global_accesses();
  release_freed_memory();
  current_launch = nullptr;
  return machine.failure.empty() ? cudaSuccess : cudaErrorLaunchFailure;
}

void set_dynamic_limit(const void* kernel, int bytes) {
  dynamic_limits[kernel] = bytes;
}

}  // namespace emulator
