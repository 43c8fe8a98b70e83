// Barriers of a block, fences, clocks.

#pragma once

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace emulator {

void synchronise_block(int line);  // Of the __syncthreads.
enum class Vote { kCount, kAll, kAny };
int synchronise_block_and_vote(int barrier, int threads, Vote vote, bool value);
void named_barrier_sync(int barrier, int threads);
[[noreturn]] void trap();
long long ticks();
unsigned long long nanoseconds();
void sleep_nanoseconds();
void fence(Scope);
// Fails on a GPU that lacks the function.
void need(int capability, const char* function);

}  // namespace emulator

inline void __syncthreads(int line = __builtin_LINE()) {
  emulator::synchronise_block(line);
}
inline int __syncthreads_count(int value) {
  return emulator::synchronise_block_and_vote(0, 0, emulator::Vote::kCount, value != 0);
}
inline int __syncthreads_and(int value) {
  return emulator::synchronise_block_and_vote(0, 0, emulator::Vote::kAll, value != 0);
}
inline int __syncthreads_or(int value) {
  return emulator::synchronise_block_and_vote(0, 0, emulator::Vote::kAny, value != 0);
}
inline void __barrier_sync(unsigned barrier) {
  emulator::named_barrier_sync(int(barrier), 0);
}
inline void __barrier_sync_count(unsigned barrier, unsigned threads) {
  emulator::named_barrier_sync(int(barrier), int(threads));
}
inline void __threadfence() {
  emulator::fence(emulator::Scope::kDevice);
}
inline void __threadfence_block() {
  emulator::fence(emulator::Scope::kBlock);
}
inline void __threadfence_system() {
  emulator::fence(emulator::Scope::kSystem);
}
inline void __nanosleep(unsigned) {
  emulator::sleep_nanoseconds();
}
[[noreturn]] inline void __trap() {
  emulator::trap();
}
[[noreturn]] inline void __brkpt() {
  emulator::trap();
}
inline void __prof_trigger(int) {}
inline long long clock64() {
  return emulator::ticks();
}
inline int __emulated_clock() {
  return int(emulator::ticks());
}
// The C library has another clock().
#define clock __emulated_clock
inline unsigned long long __globaltimer() {
  return emulator::nanoseconds();
}

// Kernels run one after the other, so there is nothing to wait for.
inline void cudaGridDependencySynchronize() {
  emulator::need(90, "cudaGridDependencySynchronize");
}
inline void cudaTriggerProgrammaticLaunchCompletion() {
  emulator::need(90, "cudaTriggerProgrammaticLaunchCompletion");
}

// ---- Clusters -------------------------------------------------------------------------------------------------

namespace emulator {

uint3 cluster_index(), cluster_count(), cluster_block_index(), cluster_size();
unsigned cluster_rank();
void cluster_barrier_arrive();
void cluster_barrier_wait();
void* map_to_rank(const void* pointer, unsigned rank);
unsigned rank_of(const void* pointer);

}  // namespace emulator

inline dim3 __clusterDim() {
  const uint3 size = emulator::cluster_size();
  return dim3(size.x, size.y, size.z);
}
inline dim3 __clusterRelativeBlockIdx() {
  const uint3 index = emulator::cluster_block_index();
  return dim3(index.x, index.y, index.z);
}
inline dim3 __clusterGridDimInClusters() {
  const uint3 count = emulator::cluster_count();
  return dim3(count.x, count.y, count.z);
}
inline dim3 __clusterIdx() {
  const uint3 index = emulator::cluster_index();
  return dim3(index.x, index.y, index.z);
}
inline unsigned __clusterRelativeBlockRank() {
  return emulator::cluster_rank();
}
inline unsigned __clusterSizeInBlocks() {
  const uint3 size = emulator::cluster_size();
  return size.x * size.y * size.z;
}
inline unsigned __clusterDimIsSpecified() {
  return __clusterSizeInBlocks() > 1;
}
inline void __cluster_barrier_arrive() {
  emulator::cluster_barrier_arrive();
}
inline void __cluster_barrier_arrive_relaxed() {
  emulator::cluster_barrier_arrive();
}
inline void __cluster_barrier_wait() {
  emulator::cluster_barrier_wait();
}
inline void* __cluster_map_shared_rank(const void* pointer, unsigned rank) {
  return emulator::map_to_rank(pointer, rank);
}
inline unsigned __cluster_query_shared_rank(const void* pointer) {
  return emulator::rank_of(pointer);
}
