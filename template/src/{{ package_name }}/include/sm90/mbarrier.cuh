// Barriers in shared memory that threads and copies arrive at (sm_90): a phase ends when the expected number of threads
// has arrived and every byte that they announced has been copied.
//
// A barrier's phases are numbered 0, 1, 2, ...; a wait names the parity of the phase whose end it waits for. The phase
// before the first counts as ended, so waiting for parity 1 on a new barrier returns at once.

#pragma once

#include <cstdint>

#include "shared_address.cuh"

struct alignas(8) MBarrier {
  uint64_t state;

  // By one thread, before any other use; followed by fence_mbarrier_init and a barrier of all threads that use it.
  __device__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(arrivals) : "memory");
  }

  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
  }

  // Arrives at the barrier at the same place in another block of the cluster.
  __device__ void arrive_in(int block) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
        "}" ::"r"(shared_address(this)),
        "r"(block)
        : "memory");
  }

  // Arrives, and adds bytes that copies will bring to those that the phase waits for.
  __device__ void arrive_expecting(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)), "r"(bytes)
                 : "memory");
  }

  __device__ bool has_ended(int parity) const {
    uint32_t ended;
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
        "selp.u32 %0, 1, 0, ended;\n"
        "}"
        : "=r"(ended)
        : "r"(shared_address(this)), "r"(parity)
        : "memory");
    return ended;
  }

  __device__ void wait(int parity) const {
#ifdef MBARRIER_MAX_SPINS
    // For debugging: a wait that never ends stops the kernel with an error.
    for (long long spins = 0; !has_ended(parity); ++spins) {
      if (spins > MBARRIER_MAX_SPINS) __trap();
    }
#else
    while (!has_ended(parity)) {
    }
#endif
  }
};

// Stores four numbers in the shared memory of another block of the cluster, at the place that `shared` is in this one;
// the barrier at the same place there counts 16 bytes. The store is asynchronous.
__device__ inline void store_in(int block, float* shared, const float (&values)[4], MBarrier& barrier) {
  asm volatile(
      "{\n"
      ".reg .b32 to, remote;\n"
      "mapa.shared::cluster.u32 to, %0, %2;\n"
      "mapa.shared::cluster.u32 remote, %1, %2;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [to], { %3, %4, %5, %6}, [remote];\n"
      "}" ::"r"(shared_address(shared)),
      "r"(shared_address(&barrier)),
      "r"(block),
      "f"(values[0]),
      "f"(values[1]),
      "f"(values[2]),
      "f"(values[3])
      : "memory");
}

// Makes new barriers visible to the copy engine and to the other blocks of the cluster.
__device__ inline void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// The position in a ring of kStages stages: which stage is next, and the parity of its phase. One register holds both:
// the position counts through all stages with parity 0, then through all with parity 1.
template <int kStages>
class RingPosition {
 public:
  RingPosition() = default;
  // After so many stages.
  __device__ explicit RingPosition(int stages) : position_(stages % (2 * kStages)) {}
  __device__ int stage() const { return position_ < kStages ? position_ : position_ - kStages; }
  __device__ int parity() const { return position_ >= kStages; }
  __device__ void advance() { position_ = position_ + 1 < 2 * kStages ? position_ + 1 : 0; }
  // By fewer than 2 * kStages stages.
  __device__ void advance(int stages) {
    position_ += stages;
    if (position_ >= 2 * kStages) position_ -= 2 * kStages;
  }

 private:
  int position_ = 0;
};
