// What kernelgen writes for each project into generated/emulated_project.cpp.

#pragma once

namespace emulated_project {

struct Schema {
  const char* op;
  const char* text;  // "(Tensor input, Tensor? weight, float eps) -> Tensor"
};

extern const int kCapability;  // Of the GPU, 90 for 9.0.
extern const char* const kArchitecture;
extern const Schema kSchemas[];
extern const int kSchemaCount;

}  // namespace emulated_project
