#include "memory.h"

#include <link.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "machine.h"

namespace emulator {

namespace {

// A contiguous piece of memory that a kernel may read, and where `written` is not empty what has been written of it.
struct Storage {
  uintptr_t end;
  std::vector<bool> written;
};

struct Registered {
  Tensor tensor;
  std::vector<int> order;  // The dimensions by stride, the widest first.
  uintptr_t begin, end;    // Of its elements.
  bool is_dense = true;    // There are no gaps.
  bool overlaps = false;   // Elements share memory other than by a stride of 0.

  // The element that contains a byte, or an empty vector.
  std::vector<int64_t> index_of(uintptr_t address) const {
    std::vector<int64_t> index(tensor.sizes.size());
    int64_t element = int64_t(address - begin) / tensor.itemsize;
    for (const int i : order) {
      if (tensor.strides[i] == 0) continue;
      index[i] = std::min(element / tensor.strides[i], tensor.sizes[i] - 1);
      element -= index[i] * tensor.strides[i];
    }
    return element == 0 ? index : std::vector<int64_t>();
  }

  bool contains(uintptr_t address) const {
    if (address < begin || address >= end) return false;
    return is_dense || overlaps || tensor.sizes.empty() || !index_of(address).empty();
  }
};

std::string called_op;
std::map<uintptr_t, Storage> storages, allocations;  // By address.
std::vector<Registered> tensors;

using Storages = std::map<uintptr_t, Storage>;

Storages::value_type* storage_at(Storages& storages, uintptr_t address) {
  auto next = storages.upper_bound(address);
  if (next == storages.begin()) return nullptr;
  --next;
  return address < next->second.end ? &*next : nullptr;
}

// The variables of all loaded libraries.
bool is_variable(uintptr_t address, bool& may_write) {
  struct Search {
    uintptr_t address;
    bool known, writable;
  } search{address, false, false};
  dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* data) {
        auto& search = *static_cast<Search*>(data);
        for (int i = 0; i < library->dlpi_phnum; ++i) {
          const auto& segment = library->dlpi_phdr[i];
          const uintptr_t begin = library->dlpi_addr + segment.p_vaddr;
          if (segment.p_type != PT_LOAD || search.address < begin || search.address >= begin + segment.p_memsz) {
            continue;
          }
          search.known = true;
          search.writable = segment.p_flags & PF_W;
          return 1;
        }
        return 0;
      },
      &search);
  may_write = search.writable;
  return search.known;
}

}  // namespace

void begin_call(const std::string& op) {
  called_op = op;
  storages.clear();
  tensors.clear();
}

void note_tensor(const Tensor& tensor, bool initialised) {
  Registered registered{tensor, {}, reinterpret_cast<uintptr_t>(tensor.data), 0};
  registered.order.resize(tensor.sizes.size());
  std::iota(registered.order.begin(), registered.order.end(), 0);
  std::sort(registered.order.begin(), registered.order.end(), [&](int a, int b) {
    return tensor.strides[a] > tensor.strides[b];
  });
  int64_t last = 0, elements = 1;  // The offset of the last element; elements that do not share memory.
  for (auto i = registered.order.rbegin(); i != registered.order.rend(); ++i) {
    if (tensor.sizes[*i] == 0) return;
    if (tensor.sizes[*i] == 1 || tensor.strides[*i] == 0) continue;
    registered.overlaps |= tensor.strides[*i] <= last;
    last += (tensor.sizes[*i] - 1) * tensor.strides[*i];
    elements *= tensor.sizes[*i];
  }
  registered.end = registered.begin + (last + 1) * tensor.itemsize;
  registered.is_dense = elements == last + 1;
  uintptr_t storage = reinterpret_cast<uintptr_t>(tensor.storage), end = storage + tensor.storage_bytes;
  if (!tensor.storage) storage = registered.begin, end = registered.end;
  const auto known = storages.find(storage);
  if (known == storages.end() || !initialised || known->second.end < end) {
    storages[storage] = {end, std::vector<bool>(initialised ? 0 : end - storage)};
  }
  const auto same = std::find_if(tensors.begin(), tensors.end(), [&](const Registered& other) {
    return other.tensor.data == tensor.data && other.tensor.sizes == tensor.sizes &&
           other.tensor.strides == tensor.strides && other.tensor.itemsize == tensor.itemsize;
  });
  if (same == tensors.end()) {
    tensors.push_back(std::move(registered));
  } else if (!tensor.name.empty()) {
    same->tensor.name = tensor.name;
  }
}

bool is_tracking() {
  return !storages.empty();
}

void note_allocation(void* data, size_t bytes, bool host_writes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  allocations[begin] = {begin + bytes, std::vector<bool>(host_writes ? 0 : bytes)};
}

bool forget_allocation(void* data) {
  return allocations.erase(reinterpret_cast<uintptr_t>(data)) != 0;
}

std::string excess_of(const void* data, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const auto* const allocation = storage_at(allocations, begin);
  const auto* const storage = allocation ? allocation : storage_at(storages, begin);
  if (!storage || begin + bytes <= storage->second.end) return "";
  const uintptr_t end = storage->second.end;
  const std::string known = text("past the end of %zu bytes of memory", size_t(end - storage->first));
  return text("%zu bytes ", size_t(begin + bytes - end)) + (allocation ? known : name_of_global(end));
}

void note_host_write(const void* data, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  for (Storages* all : {&storages, &allocations}) {
    auto* const storage = storage_at(*all, begin);
    if (!storage || storage->second.written.empty()) continue;
    const auto first = storage->second.written.begin() + (begin - storage->first);
    std::fill(first, first + std::min(bytes, size_t(storage->second.end - begin)), true);
  }
}

WordAccess word_at(uintptr_t address) {
  WordAccess word{0xf, 0xf, 0xf, false};
  auto* allocation = storage_at(allocations, address);
  if (!is_tracking() && !allocation) return word;
  bool writable = true;
  if (!allocation && !storage_at(storages, address) && !storage_at(storages, address + 3) &&
      is_variable(address, writable)) {
    word.may_write = writable ? 0xf : 0;
    return word;
  }
  word = {0, 0, 0, false};
  for (int i = 0; i < 4; ++i) {
    const uintptr_t byte = address + i;
    allocation = storage_at(allocations, byte);
    const auto* const storage = allocation ? allocation : storage_at(storages, byte);
    if (!storage) continue;
    const bool is_element = allocation || std::any_of(tensors.begin(), tensors.end(), [&](const Registered& tensor) {
                              return tensor.contains(byte);
                            });
    const auto& written = storage->second.written;
    word.may_read |= 1 << i;
    word.may_write |= is_element << i;
    word.written |= (written.empty() || written[byte - storage->first]) << i;
    word.keeps_written |= !written.empty();
  }
  return word;
}

void note_written(uintptr_t address, uint8_t bytes) {
  for (int i = 0; i < 4; ++i) {
    if (bytes >> i & 1) note_host_write(reinterpret_cast<const void*>(address + i), 1);
  }
}

// ---- Names ----------------------------------------------------------------------------------------------------

namespace {

std::string list_of(const std::vector<int64_t>& numbers) {
  std::string list;
  for (const int64_t number : numbers) list += (list.empty() ? "" : ", ") + std::to_string(number);
  return "[" + list + "]";
}

std::string kind_of(const Tensor& tensor) {
  const std::string dtype = tensor.dtype.empty() ? std::to_string(tensor.itemsize) + "-byte elements" : tensor.dtype;
  return (tensor.name.empty() ? "a tensor" : tensor.name) + " (" + dtype + " " + list_of(tensor.sizes) + ")";
}

}  // namespace

std::string name_of_global(uintptr_t address) {
  const Registered* nearest = nullptr;
  uintptr_t distance = 4096;  // Farther away no tensor is meant.
  for (const Registered& candidate : tensors) {
    if (candidate.contains(address)) {
      const int64_t offset = (address - candidate.begin) % candidate.tensor.itemsize;
      const std::string byte = offset ? text(" (byte %d of it)", int(offset)) : "";
      return "element " + list_of(candidate.index_of(address)) + byte + " of " + kind_of(candidate.tensor);
    }
    const bool inside = address >= candidate.begin && address < candidate.end;
    const uintptr_t away = inside ? 0 : address < candidate.begin ? candidate.begin - address : address - candidate.end;
    if (away < distance) distance = away, nearest = &candidate;
  }
  if (auto* const allocation = storage_at(allocations, address)) {
    return text("byte %zu of memory from cudaMalloc", size_t(address - allocation->first));
  }
  if (!nearest) return text("%p", reinterpret_cast<void*>(address));
  const auto& tensor = nearest->tensor;
  if (address < nearest->begin) return text("%zu bytes before the start of ", size_t(distance)) + kind_of(tensor);
  if (address < nearest->end) {
    return text("the gap between elements, %zu bytes from the start of ", size_t(address - nearest->begin)) +
           kind_of(tensor);
  }
  const std::string element =
      nearest->is_dense
          ? text(
                ": element %lld",
                static_cast<long long>(address - nearest->begin) / static_cast<long long>(tensor.itemsize))
          : "";
  const std::string gap = distance ? text("%zu bytes ", size_t(distance)) : "";
  return gap + "past the end of " + kind_of(tensor) + element;
}

}  // namespace emulator
