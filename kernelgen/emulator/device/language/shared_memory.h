// Shared variables.

#pragma once

namespace emulator {

// The current block's shared variable of this key.
void* shared_variable(const void* key, size_t bytes, size_t alignment, const char* names, size_t element_bytes);
void* dynamic_shared(size_t alignment);

// The variables of one declaration; `element_bytes` is 0 where it has several.
template <typename Variables>
Variables& shared(const char* names, size_t element_bytes) {
  static const char key = 0;
  return *static_cast<Variables*>(shared_variable(&key, sizeof(Variables), alignof(Variables), names, element_bytes));
}

// The dynamic shared memory as an array of T. CUDA promises 16 bytes; a type may ask for more.
template <typename T, size_t kAlignment>
T* dynamic_array() {
  return static_cast<T*>(dynamic_shared(alignof(T) > kAlignment ? alignof(T) : kAlignment));
}

template <typename Array>
using Element = std::remove_reference_t<decltype(std::declval<Array&>())>;

// Of declarations outside of functions.
template <typename T, size_t kAlignment>
struct DynamicArray {
  operator T*() const { return dynamic_array<T, kAlignment>(); }
};

template <typename Struct, typename T>
struct NamespaceShared {
  const char* name;

  T& get() const { return reinterpret_cast<T&>(shared<Struct>(name, sizeof(std::remove_all_extents_t<T>))); }
  operator T&() const { return get(); }
  T* operator&() const { return &get(); }
  template <typename Value>
  const NamespaceShared& operator=(const Value& value) const {
    get() = value;
    return *this;
  }
  template <typename Value>
  T& operator+=(const Value& value) const {
    return get() += value;
  }
  auto* operator->() const { return &get(); }
};

}  // namespace emulator
