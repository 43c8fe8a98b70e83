// Functions that the lanes of a warp execute together.

#pragma once

namespace emulator {

int lane_number();
void synchronise_warp(uint32_t mask);
// The bits of lane `source`; undefined if that lane takes no part.
uint64_t exchange(const char* name, uint32_t mask, uint64_t bits, int source);
uint32_t ballot(uint32_t mask, bool vote);
// Fills `all` with the bits of the lanes of the mask; returns which lanes took part.
uint32_t collect(const char* name, uint32_t mask, uint64_t bits, uint64_t (&all)[32]);
// The lanes that have come to the same call, once all others of the warp wait for something else.
uint32_t active_lanes();

void copy_async(void* shared, const void* global, size_t bytes, size_t read);
void commit_copies();
void wait_for_copies(int under_way);

template <typename T>
T shuffle(const char* name, uint32_t mask, T value, int source) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  bits = exchange(name, mask, bits, source);
  memcpy(&value, &bits, sizeof(T));
  return value;
}

// What a shuffle takes, after the promotion of small integers.
template <typename T>
concept Shuffled = std::is_arithmetic_v<T> || std::is_enum_v<T>;
template <Shuffled T>
using Promoted = decltype(+T{});

}  // namespace emulator

inline void __syncwarp(unsigned mask = 0xffffffff) {
  emulator::synchronise_warp(mask);
}
inline unsigned __activemask() {
  return emulator::active_lanes();
}

template <emulator::Shuffled T>
emulator::Promoted<T> __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int lane = emulator::lane_number();
  return emulator::shuffle("shfl.idx", mask, +value, (lane & ~(width - 1)) | (source & (width - 1)));
}
template <emulator::Shuffled T>
emulator::Promoted<T> __shfl_xor_sync(unsigned mask, T value, int distance, int width = 32) {
  const int lane = emulator::lane_number(), source = lane ^ distance;
  return emulator::shuffle("shfl.bfly", mask, +value, source > (lane | (width - 1)) ? lane : source);
}
template <emulator::Shuffled T>
emulator::Promoted<T> __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32) {
  const int lane = emulator::lane_number(), source = lane - int(distance);
  return emulator::shuffle("shfl.up", mask, +value, source < (lane & ~(width - 1)) ? lane : source);
}
template <emulator::Shuffled T>
emulator::Promoted<T> __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32) {
  const int lane = emulator::lane_number(), source = lane + int(distance);
  return emulator::shuffle("shfl.down", mask, +value, source > (lane | (width - 1)) ? lane : source);
}

inline unsigned __ballot_sync(unsigned mask, int vote) {
  return emulator::ballot(mask, vote != 0);
}
inline int __any_sync(unsigned mask, int vote) {
  return emulator::ballot(mask, vote != 0) != 0;
}
inline int __all_sync(unsigned mask, int vote) {
  return emulator::ballot(mask, vote == 0) == 0;
}
inline int __uni_sync(unsigned mask, int vote) {
  const unsigned votes = emulator::ballot(mask, vote != 0);
  return votes == 0 || (mask & ~votes) == 0;
}

// ---- Match and reduce -----------------------------------------------------------------------------------------

namespace emulator {

template <typename T>
uint64_t bits_of(T value) {
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  return bits;
}

template <typename T>
T from_bits(uint64_t bits) {
  T value;
  memcpy(&value, &bits, sizeof(T));
  return value;
}

uint32_t match(const char* name, uint32_t mask, uint64_t bits);

template <typename T, typename F>
T reduce_warp(const char* name, uint32_t mask, T value, const F& combine) {
  need(80, name);
  uint64_t all[32];
  uint32_t present = collect(name, mask, bits_of(value), all);
  T result = from_bits<T>(all[std::countr_zero(present)]);
  while (present &= present - 1) result = combine(result, from_bits<T>(all[std::countr_zero(present)]));
  return result;
}

}  // namespace emulator

template <emulator::Shuffled T>
unsigned __match_any_sync(unsigned mask, T value) {
  return emulator::match("match.any", mask, emulator::bits_of(+value));
}
template <emulator::Shuffled T>
unsigned __match_all_sync(unsigned mask, T value, int* is_same) {
  const unsigned same = emulator::match("match.all", mask, emulator::bits_of(+value));
  uint64_t all[32];
  const unsigned present = emulator::collect("match.all.", mask, same, all);
  *is_same = same == present;
  return *is_same ? same : 0;
}

#define EMULATED_REDUCE(name, T, expression) \
  inline T __reduce_##name##_sync(unsigned mask, T value) { \
    return emulator::reduce_warp("redux." #name, mask, value, [](T a, T b) -> T { return expression; }); \
  }
EMULATED_REDUCE(add, unsigned, a + b)
EMULATED_REDUCE(add, int, int(unsigned(a) + unsigned(b)))
EMULATED_REDUCE(min, unsigned, a < b ? a : b)
EMULATED_REDUCE(min, int, a < b ? a : b)
EMULATED_REDUCE(max, unsigned, a < b ? b : a)
EMULATED_REDUCE(max, int, a < b ? b : a)
EMULATED_REDUCE(and, unsigned, a& b)
EMULATED_REDUCE(or, unsigned, a | b)
EMULATED_REDUCE(xor, unsigned, a ^ b)
#undef EMULATED_REDUCE
