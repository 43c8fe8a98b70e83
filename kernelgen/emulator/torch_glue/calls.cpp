#include "calls.h"

#include <array>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "machine.h"
#include "project.h"
#include "schedule.h"
#include "source_lines.h"
#include "tensors.h"

namespace emulator {
namespace {

constexpr size_t kMostKernels = 1024;

struct Parameter {
  std::string name, type;
};

struct Entry {
  std::string op;
  BoxedKernel kernel;
  std::vector<Parameter> parameters;
};

std::vector<Entry> entries;
std::recursive_mutex mutex;  // An op may call another.
int depth = 0;

std::vector<Parameter> parameters_of(const std::string& op) {
  std::vector<Parameter> parameters;
  std::string_view text;
  for (int i = 0; i < emulated_project::kSchemaCount; ++i) {
    if (emulated_project::kSchemas[i].op == op) text = emulated_project::kSchemas[i].text;
  }
  if (text.empty()) return parameters;
  text = text.substr(1, text.rfind("->") - 1);
  int nesting = 0;
  for (size_t begin = 0, i = 0; i < text.size(); ++i) {
    const char c = text[i];
    nesting += (c == '(' || c == '[') - (c == ')' || c == ']');
    if (!(c == ',' && nesting == 0) && nesting >= 0) continue;
    std::string_view declared = text.substr(begin, i - begin);
    begin = i + 1;
    declared = declared.substr(std::min(declared.find_first_not_of(' '), declared.size()));
    declared = declared.substr(0, declared.find('='));
    const size_t space = declared.rfind(' ');
    if (space == std::string_view::npos) continue;  // The star before arguments by keyword.
    std::string type;
    int alias = 0;  // Tensor(a!) is Tensor.
    for (const char t : declared.substr(0, space)) {
      alias += t == '(';
      if (!alias && t != '!') type += t;
      alias -= t == ')';
    }
    parameters.push_back({std::string(declared.substr(space + 1)), type});
    if (nesting < 0) break;
  }
  return parameters;
}

AtenTensorHandle as_tensor(StableIValue value) {
  AtenTensorHandle tensor;
  memcpy(&tensor, &value, sizeof(tensor));
  return tensor;
}

// An optional value is a pointer to it.
const StableIValue* as_optional(StableIValue value) {
  return reinterpret_cast<const StableIValue*>(value);
}

void note_list(const std::string& name, StableIValue value, bool optional_items) {
  const auto list = reinterpret_cast<StableListHandle>(value);
  size_t size = 0;
  if (torch_list_size(list, &size)) return;
  for (size_t i = 0; i < size; ++i) {
    StableIValue item = 0;
    if (torch_list_get_item(list, i, &item)) continue;
    const std::string item_name = name + "[" + std::to_string(i) + "]";
    if (optional_items) {
      if (!item) continue;
      note_argument(item_name, as_tensor(*as_optional(item)));
      aoti_torch_delete_tensor_object(as_tensor(*as_optional(item)));
      delete as_optional(item);
    } else {
      note_argument(item_name, as_tensor(item));
      aoti_torch_delete_tensor_object(as_tensor(item));
    }
  }
}

void note_arguments(const Entry& entry, const StableIValue* stack, uint64_t count) {
  for (size_t i = 0; i < entry.parameters.size() && i < count; ++i) {
    const auto& [name, type] = entry.parameters[i];
    if (type == "Tensor") note_argument(name, as_tensor(stack[i]));
    if (type == "Tensor?" && stack[i]) note_argument(name, as_tensor(*as_optional(stack[i])));
    if (type.starts_with("Tensor[")) note_list(name, stack[i], false);
    if (type.starts_with("Tensor?[")) note_list(name, stack[i], true);
  }
}

// What is wrong after a call, with the lines of the sources; "" if nothing is.
std::string problem(const Entry& entry) {
  std::string text = machine.failure;
  if (text.empty() && machine.last_error != cudaSuccess) text = machine.launch_error;
  if (text.empty()) return text;
  return entry.op + " on the emulated GPU " + emulated_project::kArchitecture + ": " + with_source_lines(text) +
         "\n  " + describe_schedule();
}

class Call {
 public:
  Call(const Entry& entry, const StableIValue* stack, uint64_t count) : lock_(mutex) {
    if (depth++ == 0) {
      machine.failure.clear();
      machine.launch_error.clear();
      machine.last_error = cudaSuccess;
      prepare_schedules();
      before_launch = [] {
        note_host_writes();
        start_next_schedule();
      };
      begin_tensors(entry.op);
    }
    note_arguments(entry, stack, count);
  }
  ~Call() { --depth; }

 private:
  std::lock_guard<std::recursive_mutex> lock_;
};

void call(size_t number, StableIValue* stack, uint64_t arguments, uint64_t results) {
  const Entry& entry = entries[number];
  const Call call(entry, stack, arguments);
  std::string fault;
  try {
    entry.kernel(stack, arguments, results);
    fault = problem(entry);
  } catch (const std::exception&) {
    fault = problem(entry);
    if (fault.empty()) throw;
  }
  if (!fault.empty()) throw std::runtime_error(fault);
}

template <size_t kNumber>
void call_numbered(StableIValue* stack, uint64_t arguments, uint64_t results) {
  call(kNumber, stack, arguments, results);
}

template <size_t... kNumbers>
constexpr std::array<BoxedKernel, sizeof...(kNumbers)> table(std::index_sequence<kNumbers...>) {
  return {call_numbered<kNumbers>...};
}

}  // namespace

BoxedKernel guarded(const std::string& op, BoxedKernel kernel) {
  // torch takes a function without a context, so there is a function for each number.
  static constexpr auto functions = table(std::make_index_sequence<kMostKernels>());
  if (entries.size() == kMostKernels) throw std::runtime_error("the emulated GPU takes no more than 1,024 kernels");
  entries.push_back({op, kernel, parameters_of(op)});
  return functions[entries.size() - 1];
}

}  // namespace emulator
