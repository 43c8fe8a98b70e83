// nvcc's built-in atomic functions, which take an order and a scope: __nv_atomic_fetch_add and its like.

#pragma once

#define __NV_ATOMIC_RELAXED 0
#define __NV_ATOMIC_CONSUME 1
#define __NV_ATOMIC_ACQUIRE 2
#define __NV_ATOMIC_RELEASE 3
#define __NV_ATOMIC_ACQ_REL 4
#define __NV_ATOMIC_SEQ_CST 5
#define __NV_THREAD_SCOPE_THREAD 0
#define __NV_THREAD_SCOPE_BLOCK 1
#define __NV_THREAD_SCOPE_CLUSTER 2
#define __NV_THREAD_SCOPE_DEVICE 3
#define __NV_THREAD_SCOPE_SYSTEM 4

namespace emulator {

inline Scope scope_of_builtin(int scope) {
  return scope <= __NV_THREAD_SCOPE_BLOCK     ? Scope::kBlock
         : scope == __NV_THREAD_SCOPE_CLUSTER ? Scope::kCluster
         : scope == __NV_THREAD_SCOPE_DEVICE  ? Scope::kDevice
                                              : Scope::kSystem;
}

template <typename T>
EMULATOR_UNCHECKED void note_builtin(T* place, bool reads, bool writes, int order, int scope) {
  static_assert(sizeof(T) <= 16 && std::is_trivially_copyable_v<T>);
  const void* const address = const_cast<const std::remove_cv_t<T>*>(place);
  if (reinterpret_cast<uintptr_t>(address) % sizeof(T)) fail_alignment(address, sizeof(T));
  const bool acquires = reads && order != __NV_ATOMIC_RELAXED && order != __NV_ATOMIC_RELEASE;
  const bool releases = writes && order >= __NV_ATOMIC_RELEASE;
  note_atomic(
      address, sizeof(T), reads, writes, scope_of_builtin(scope), acquires, releases, __builtin_return_address(0));
}

template <typename T, typename F>
EMULATOR_UNCHECKED T update_in_order(T* place, int order, int scope, const F& change) {
  note_builtin(place, true, true, order, scope);
  const T old = raw_load(place);
  const T changed = change(old);
  raw_store(place, changed);
  pause_after_atomic(__builtin_memcmp(&old, &changed, sizeof(T)) != 0);
  return old;
}

template <typename T>
T sum_in_order(T* place, T old, T value) {
  if constexpr (std::is_same_v<T, float>) {
    return atomic_sum(place, old, value);
  } else {
    return static_cast<T>(old + value);
  }
}

}  // namespace emulator

template <typename T>
EMULATOR_UNCHECKED T __nv_atomic_load_n(const T* place, int order, int scope = __NV_THREAD_SCOPE_SYSTEM) {
  emulator::note_builtin(place, true, false, order, scope);
  return emulator::raw_load(place);
}
template <typename T>
void __nv_atomic_load(const T* place, T* value, int order, int scope = __NV_THREAD_SCOPE_SYSTEM) {
  *value = __nv_atomic_load_n(place, order, scope);
}
template <typename T>
EMULATOR_UNCHECKED void __nv_atomic_store_n(
    T* place, std::type_identity_t<T> value, int order, int scope = __NV_THREAD_SCOPE_SYSTEM) {
  emulator::note_builtin(place, false, true, order, scope);
  emulator::raw_store(place, value);
  emulator::note_progress();
}
template <typename T>
void __nv_atomic_store(T* place, const T* value, int order, int scope = __NV_THREAD_SCOPE_SYSTEM) {
  __nv_atomic_store_n(place, *value, order, scope);
}
template <typename T>
T __nv_atomic_exchange_n(T* place, std::type_identity_t<T> value, int order, int scope = __NV_THREAD_SCOPE_SYSTEM) {
  return emulator::update_in_order(place, order, scope, [&](T) { return value; });
}
template <typename T>
void __nv_atomic_exchange(T* place, const T* value, T* old, int order, int scope = __NV_THREAD_SCOPE_SYSTEM) {
  *old = __nv_atomic_exchange_n(place, *value, order, scope);
}
template <typename T>
bool __nv_atomic_compare_exchange_n(
    T* place,
    T* expected,
    std::type_identity_t<T> value,
    bool,
    int order,
    int,
    int scope = __NV_THREAD_SCOPE_SYSTEM) {
  const T wanted = *expected;
  const auto same = [&](T old) { return __builtin_memcmp(&old, &wanted, sizeof(T)) == 0; };
  const T old = emulator::update_in_order(place, order, scope, [&](T old) { return same(old) ? value : old; });
  if (same(old)) return true;
  *expected = old;
  return false;
}
template <typename T>
bool __nv_atomic_compare_exchange(
    T* place, T* expected, const T* value, bool weak, int order, int failure, int scope = __NV_THREAD_SCOPE_SYSTEM) {
  return __nv_atomic_compare_exchange_n(place, expected, *value, weak, order, failure, scope);
}

#define EMULATED_BUILTIN(name, expression) \
  template <typename T> \
  T __nv_atomic_fetch_##name( \
      T* place, std::type_identity_t<T> value, int order, int scope = __NV_THREAD_SCOPE_SYSTEM) { \
    return emulator::update_in_order(place, order, scope, [&](T old) { return static_cast<T>(expression); }); \
  } \
  template <typename T> \
  void __nv_atomic_##name( \
      T* place, std::type_identity_t<T> value, int order, int scope = __NV_THREAD_SCOPE_SYSTEM) { \
    __nv_atomic_fetch_##name(place, value, order, scope); \
  }
EMULATED_BUILTIN(add, emulator::sum_in_order(place, old, value))
EMULATED_BUILTIN(sub, old - value)
EMULATED_BUILTIN(and, old& value)
EMULATED_BUILTIN(or, old | value)
EMULATED_BUILTIN(xor, old ^ value)
EMULATED_BUILTIN(min, value < old ? value : old)
EMULATED_BUILTIN(max, old < value ? value : old)
#undef EMULATED_BUILTIN

inline void __nv_atomic_thread_fence(int order, int scope = __NV_THREAD_SCOPE_SYSTEM) {
  if (order != __NV_ATOMIC_RELAXED) emulator::fence(emulator::scope_of_builtin(scope));
}
