// Atomic functions, by type and scope.

#pragma once

namespace emulator {

void note_progress();  // A value in memory has changed: threads that spin may go on.
void pause_after_atomic(bool changed);

// The memory's own value, without what a check of accesses adds to a load or store.
template <typename T>
EMULATOR_UNCHECKED T raw_load(const T* place) {
  T value;
  __builtin_memcpy(&value, place, sizeof(T));
  return value;
}

template <typename T>
EMULATOR_UNCHECKED void raw_store(T* place, const T& value) {
  __builtin_memcpy(place, &value, sizeof(T));
}

// Sums in global memory flush subnormal numbers; those in shared memory do not.
float atomic_sum(const void* place, float a, float b);

[[noreturn]] void fail_alignment(const void* address, size_t bytes);

// Fibers switch only at waits, so a load and a store are one operation.
template <typename T, typename F>
EMULATOR_UNCHECKED T update(T* place, Scope scope, const F& change) {
  if (reinterpret_cast<uintptr_t>(place) % sizeof(T)) fail_alignment(place, sizeof(T));
  note_atomic(place, sizeof(T), true, true, scope, false, false, __builtin_return_address(0));
  const T old = raw_load(place);
  const T changed = change(old);
  raw_store(place, changed);
  pause_after_atomic(__builtin_memcmp(&old, &changed, sizeof(T)) != 0);
  return old;
}

}  // namespace emulator

#define EMULATED_ATOMIC_AT(name, scope, T, parameters, expression) \
  inline T name parameters { \
    return emulator::update(place, emulator::Scope::scope, [&](T old) -> T { return static_cast<T>(expression); }); \
  }
#define EMULATED_ATOMIC(name, T, parameters, expression) \
  EMULATED_ATOMIC_AT(name, kDevice, T, parameters, expression) \
  EMULATED_ATOMIC_AT(name##_block, kBlock, T, parameters, expression) \
  EMULATED_ATOMIC_AT(name##_system, kSystem, T, parameters, expression)
#define EMULATED_BOTH(name, T, expression) EMULATED_ATOMIC(name, T, (T * place, T value), expression)

using emulated_ull = unsigned long long;

EMULATED_BOTH(atomicAdd, int, unsigned(old) + unsigned(value))
EMULATED_BOTH(atomicAdd, unsigned, old + value)
EMULATED_BOTH(atomicAdd, emulated_ull, old + value)
EMULATED_BOTH(atomicAdd, float, emulator::atomic_sum(place, old, value))
EMULATED_BOTH(atomicAdd, double, old + value)
EMULATED_BOTH(atomicSub, int, unsigned(old) - unsigned(value))
EMULATED_BOTH(atomicSub, unsigned, old - value)
EMULATED_BOTH(atomicExch, int, value)
EMULATED_BOTH(atomicExch, unsigned, value)
EMULATED_BOTH(atomicExch, emulated_ull, value)
EMULATED_BOTH(atomicExch, float, value)
EMULATED_BOTH(atomicMin, int, value < old ? value : old)
EMULATED_BOTH(atomicMin, unsigned, value < old ? value : old)
EMULATED_BOTH(atomicMin, long long, value < old ? value : old)
EMULATED_BOTH(atomicMin, emulated_ull, value < old ? value : old)
EMULATED_BOTH(atomicMax, int, old < value ? value : old)
EMULATED_BOTH(atomicMax, unsigned, old < value ? value : old)
EMULATED_BOTH(atomicMax, long long, old < value ? value : old)
EMULATED_BOTH(atomicMax, emulated_ull, old < value ? value : old)
EMULATED_BOTH(atomicInc, unsigned, old >= value ? 0 : old + 1)
EMULATED_BOTH(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)
EMULATED_BOTH(atomicAnd, int, old& value)
EMULATED_BOTH(atomicAnd, unsigned, old& value)
EMULATED_BOTH(atomicAnd, long long, old& value)
EMULATED_BOTH(atomicAnd, emulated_ull, old& value)
EMULATED_BOTH(atomicOr, int, old | value)
EMULATED_BOTH(atomicOr, unsigned, old | value)
EMULATED_BOTH(atomicOr, long long, old | value)
EMULATED_BOTH(atomicOr, emulated_ull, old | value)
EMULATED_BOTH(atomicXor, int, old ^ value)
EMULATED_BOTH(atomicXor, unsigned, old ^ value)
EMULATED_BOTH(atomicXor, long long, old ^ value)
EMULATED_BOTH(atomicXor, emulated_ull, old ^ value)

#define EMULATED_CAS(T) EMULATED_ATOMIC(atomicCAS, T, (T * place, T expected, T value), old == expected ? value : old)
EMULATED_CAS(int)
EMULATED_CAS(unsigned)
EMULATED_CAS(unsigned short)
EMULATED_CAS(emulated_ull)
#undef EMULATED_CAS
#undef EMULATED_BOTH

// ---- 16 bytes: of any type of that size -----------------------------------------------------------------------

namespace emulator {

template <typename T>
T exchange_16_bytes(T* place, T value, Scope scope) {
  static_assert(sizeof(T) == 16 && std::is_trivially_copyable_v<T>);
  return update(place, scope, [&](T) { return value; });
}

template <typename T>
T compare_16_bytes(T* place, T expected, T value, Scope scope) {
  static_assert(sizeof(T) == 16 && std::is_trivially_copyable_v<T>);
  return update(place, scope, [&](T old) { return __builtin_memcmp(&old, &expected, 16) == 0 ? value : old; });
}

template <typename T>
concept SixteenBytes = sizeof(T) == 16 && std::is_trivially_copyable_v<T> && !std::is_floating_point_v<T>;

}  // namespace emulator

#define EMULATED_16_BYTES(suffix, scope) \
  template <emulator::SixteenBytes T> \
  T atomicExch##suffix(T* place, std::type_identity_t<T> value) { \
    return emulator::exchange_16_bytes(place, value, emulator::Scope::scope); \
  } \
  template <emulator::SixteenBytes T> \
  T atomicCAS##suffix(T* place, std::type_identity_t<T> expected, std::type_identity_t<T> value) { \
    return emulator::compare_16_bytes(place, expected, value, emulator::Scope::scope); \
  }
EMULATED_16_BYTES(, kDevice)
EMULATED_16_BYTES(_block, kBlock)
EMULATED_16_BYTES(_system, kSystem)
#undef EMULATED_16_BYTES

// ---- Vectors of float: each element is atomic -----------------------------------------------------------------

#define EMULATED_VECTOR_ADD(suffix, scope) \
  inline float2 atomicAdd##suffix(float2* place, float2 value) { \
    if (reinterpret_cast<uintptr_t>(place) % 8) emulator::fail_alignment(place, 8); \
    return {atomicAdd##suffix(&place->x, value.x), atomicAdd##suffix(&place->y, value.y)}; \
  } \
  inline float4 atomicAdd##suffix(float4* place, float4 value) { \
    if (reinterpret_cast<uintptr_t>(place) % 16) emulator::fail_alignment(place, 16); \
    return { \
        atomicAdd##suffix(&place->x, value.x), \
        atomicAdd##suffix(&place->y, value.y), \
        atomicAdd##suffix(&place->z, value.z), \
        atomicAdd##suffix(&place->w, value.w)}; \
  }
EMULATED_VECTOR_ADD(, kDevice)
EMULATED_VECTOR_ADD(_block, kBlock)
EMULATED_VECTOR_ADD(_system, kSystem)
#undef EMULATED_VECTOR_ADD
