// Matrices that the lanes of a warp hold together, and their elements.

#pragma once

#include "ptx.h"

namespace emulator {

// The call of a lane, of those that execute_by_warp brought together.
const Call& call_of(void* const* arguments, int lane);
void execute_by_warp(const Call& call, void (*action)(Warp&, void* const*));

// An element of an operand's matrix, exactly. The bits above the type's do not count.
double element_value(Type type, uint64_t bits);
int elements_of_register(Type type);

// Reads the m x k operand that the lanes hold in registers: a[row * k + column]. PTX ISA: "Matrix Fragments for mma".
std::vector<double> left_matrix(void* const* arguments, size_t operand, Type type, int m, int k);

}  // namespace emulator
