// Loads and stores with hints, address spaces.

#pragma once

// Hints to the caches change nothing here.
#define EMULATED_LOAD(name) \
  template <typename T> \
  inline T name(const T* from) { \
    return *from; \
  }
EMULATED_LOAD(__ldg)
EMULATED_LOAD(__ldca)
EMULATED_LOAD(__ldcg)
EMULATED_LOAD(__ldcs)
EMULATED_LOAD(__ldlu)
EMULATED_LOAD(__ldcv)
#undef EMULATED_LOAD

#define EMULATED_STORE(name) \
  template <typename T> \
  inline void name(T* to, std::type_identity_t<T> value) { \
    *to = value; \
  }
EMULATED_STORE(__stwb)
EMULATED_STORE(__stcg)
EMULATED_STORE(__stcs)
EMULATED_STORE(__stwt)
#undef EMULATED_STORE

namespace emulator {

// The offset in a block's window of shared memory; with the block's rank where it is another block of the cluster.
uint32_t address_in_window(const void* pointer);
void* pointer_from_window(size_t address);
bool is_in_shared(const void* pointer, bool of_cluster);
bool is_on_stack(const void* pointer);

}  // namespace emulator

inline size_t __cvta_generic_to_shared(const void* pointer) {
  return emulator::address_in_window(pointer);
}
inline size_t __cvta_generic_to_global(const void* pointer) {
  return reinterpret_cast<size_t>(pointer);
}
inline size_t __cvta_generic_to_local(const void* pointer) {
  return reinterpret_cast<size_t>(pointer);
}
inline size_t __cvta_generic_to_constant(const void* pointer) {
  return reinterpret_cast<size_t>(pointer);
}
inline size_t __cvta_generic_to_grid_constant(const void* pointer) {
  return reinterpret_cast<size_t>(pointer);
}
inline void* __cvta_shared_to_generic(size_t address) {
  return emulator::pointer_from_window(address);
}
inline void* __cvta_global_to_generic(size_t address) {
  return reinterpret_cast<void*>(address);
}
inline void* __cvta_local_to_generic(size_t address) {
  return reinterpret_cast<void*>(address);
}
inline void* __cvta_constant_to_generic(size_t address) {
  return reinterpret_cast<void*>(address);
}
inline void* __cvta_grid_constant_to_generic(size_t address) {
  return reinterpret_cast<void*>(address);
}
inline unsigned __isShared(const void* pointer) {
  return emulator::is_in_shared(pointer, false);
}
inline unsigned __isClusterShared(const void* pointer) {
  return emulator::is_in_shared(pointer, true);
}
inline unsigned __isLocal(const void* pointer) {
  return emulator::is_on_stack(pointer);
}
inline unsigned __isGlobal(const void* pointer) {
  return !emulator::is_in_shared(pointer, true) && !emulator::is_on_stack(pointer);
}
inline unsigned __isConstant(const void*) {
  return false;
}
inline unsigned __isGridConstant(const void*) {
  return false;
}

// A pointer's properties are hints.
inline void* __nv_associate_access_property(const void* pointer, unsigned long long) {
  return const_cast<void*>(pointer);
}
