// What CUDA has beside functions of old: built-in atomics with an order and a scope, atomics on 16 bytes, the heap of
// kernels, and kernels that start early.

#include <stdint.h>

namespace {

// A message by a built-in store and load; without the order of one it is none. nvcc takes literals for orders alone.
template <bool kReleases, bool kAcquires>
__global__ void builtin_atomics(int* cells, float* sum, int* flag, int* message, int* received) {
  __nv_atomic_fetch_add(&cells[0], 1, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_DEVICE);
  __nv_atomic_fetch_max(&cells[1], int(threadIdx.x), __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_BLOCK);
  __nv_atomic_add(&cells[2], 2, __NV_ATOMIC_RELAXED);
  __nv_atomic_add(sum, 0.5f, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_DEVICE);
  int expected = 0;
  __nv_atomic_compare_exchange_n(&cells[3], &expected, 5, false, __NV_ATOMIC_SEQ_CST, __NV_ATOMIC_RELAXED);
  if (threadIdx.x == 0) {
    *message = 9;
    if constexpr (kReleases) {
      __nv_atomic_store_n(flag, 1, __NV_ATOMIC_RELEASE, __NV_THREAD_SCOPE_DEVICE);
    } else {
      __nv_atomic_store_n(flag, 1, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_DEVICE);
    }
  } else if (threadIdx.x == 40) {
    int is_set = 0;
    while (!is_set) {
      if constexpr (kAcquires) {
        is_set = __nv_atomic_load_n(flag, __NV_ATOMIC_ACQUIRE, __NV_THREAD_SCOPE_DEVICE);
      } else {
        is_set = __nv_atomic_load_n(flag, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_DEVICE);
      }
    }
    *received = *message;
  }
}

// Each thread leaves a pair of numbers, and takes the one before.
__global__ void exchange_pairs(ulonglong2* place, ulonglong2* taken) {
  const uint64_t low = threadIdx.x + 1, high = 2 * low;
  uint64_t old_low, old_high;
  asm volatile(
      "{\n.reg .b128 pair, old;\nmov.b128 pair, {%2, %3};\natom.relaxed.gpu.global.exch.b128 old, [%4], pair;\n"
      "mov.b128 {%0, %1}, old;\n}"
      : "=l"(old_low), "=l"(old_high)
      : "l"(low), "l"(high), "l"(place)
      : "memory");
  taken[threadIdx.x] = make_ulonglong2(old_low, old_high);
}

// Each thread adds (1, 2) to a pair.
__global__ void add_to_pair(ulonglong2* place) {
  ulonglong2 old = make_ulonglong2(0, 0), expected;
  do {
    expected = old;
    asm volatile(
        "{\n.reg .b128 expected, pair, old;\nmov.b128 expected, {%2, %3};\nmov.b128 pair, {%4, %5};\n"
        "atom.acq_rel.gpu.global.cas.b128 old, [%6], expected, pair;\nmov.b128 {%0, %1}, old;\n}"
        : "=l"(old.x), "=l"(old.y)
        : "l"(expected.x), "l"(expected.y), "l"(expected.x + 1), "l"(expected.y + 2), "l"(place)
        : "memory");
  } while (old.x != expected.x || old.y != expected.y);
}

__global__ void copy_pair(const unsigned __int128* from, unsigned __int128* to) {
  unsigned __int128 pair;
  asm volatile("ld.relaxed.gpu.global.b128 %0, [%1];" : "=q"(pair) : "l"(from) : "memory");
  asm volatile("st.global.b128 [%0], %1;" ::"l"(to), "q"(pair) : "memory");
}

// Threads allocate what others have freed.
__global__ void use_heap(int* out) {
  int sum = 0;
  for (int turn = 0; turn < 3; ++turn) {
    int* const numbers = static_cast<int*>(malloc(4 * sizeof(int)));
    for (int i = 0; i < 4; ++i) numbers[i] = threadIdx.x + i;
    sum += numbers[3];
    free(numbers);
  }
  out[threadIdx.x] = sum;
}

__global__ void read_fresh_memory(int* out) {
  int* const numbers = static_cast<int*>(malloc(sizeof(int)));
  *out = *numbers;
  free(numbers);
}

__global__ void start_early(int* out) {
  cudaGridDependencySynchronize();
  out[threadIdx.x] = threadIdx.x;
  cudaTriggerProgrammaticLaunchCompletion();
}

}  // namespace

extern "C" {

cudaError_t run_builtins(
    int* cells, float* sum, int* flag, int* message, int* received, int64_t releases, int64_t acquires) {
  const auto kernel = !releases   ? builtin_atomics<false, true>
                      : !acquires ? builtin_atomics<true, false>
                                  : builtin_atomics<true, true>;
  kernel<<<1, 64>>>(cells, sum, flag, message, received);
  return cudaGetLastError();
}
cudaError_t run_exchange(ulonglong2* place, ulonglong2* taken) {
  exchange_pairs<<<1, 64>>>(place, taken);
  return cudaGetLastError();
}
cudaError_t run_add(ulonglong2* place) {
  add_to_pair<<<2, 32>>>(place);
  return cudaGetLastError();
}
cudaError_t run_copy(const unsigned __int128* from, unsigned __int128* to) {
  copy_pair<<<1, 1>>>(from, to);
  return cudaGetLastError();
}
cudaError_t run_heap(int* out, int64_t reads_fresh) {
  if (reads_fresh) {
    read_fresh_memory<<<1, 1>>>(out);
  } else {
    use_heap<<<1, 64>>>(out);
  }
  return cudaGetLastError();
}
cudaError_t run_early(int* out) {
  start_early<<<1, 64>>>(out);
  return cudaGetLastError();
}
}
