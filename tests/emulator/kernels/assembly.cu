// Inline assembly whose text the host chooses, and assembly that some GPUs lack.

#include <stdint.h>

#include <sstream>

#include "ptx_forms.h"

__global__ void executed(const char* text) {
  static constexpr ::emulator::Operand operands[16] = {};
  ::emulator::Assembly assembly(text, operands, "assembly.cu", 7);
  const uint64_t values[16] = {};
  ::emulator::execute(assembly, values);
}

// Kept from one launch to the next, as a program's own assembly is.
__global__ void reduced(int* sums) {
  int sum;
  asm volatile("redux.sync.add.s32 %0, %1, 0xffffffff;" : "=r"(sum) : "r"(int(threadIdx.x)));
  sums[threadIdx.x] = sum;
}

__global__ void approximated(const double* x, double* results) {
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(results[0]) : "d"(x[0]));
  asm("rsqrt.approx.f64 %0, %1;" : "=d"(results[1]) : "d"(x[1]));
  asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(results[2]) : "d"(x[2]));
}

extern "C" cudaError_t execute_text(const char* text) {
  executed<<<1, 1>>>(text);
  return cudaDeviceSynchronize();
}

// Of each of the names, which spaces separate: whether it is known, or else why not.
extern "C" cudaError_t look_up(const char* names, char* answers) {
  std::istringstream words(names);
  std::string answer;
  for (std::string name; words >> name;) {
    std::vector<std::string> parts;
    std::istringstream pieces(name);
    for (std::string part; std::getline(pieces, part, '.');) parts.push_back(part);
    const ::emulator::Match match = ::emulator::form_of(parts);
    answer += (match.form ? "known" : match.fault) + "\n";
  }
  std::copy(answer.begin(), answer.end(), answers);
  return cudaSuccess;
}

extern "C" cudaError_t reduce(int* sums) {
  reduced<<<1, 32>>>(sums);
  return cudaDeviceSynchronize();
}

extern "C" cudaError_t approximate(const double* x, double* results) {
  approximated<<<1, 1>>>(x, results);
  return cudaDeviceSynchronize();
}
