"""CUDA sources on the CPU: they are rewritten as C++ and run on an emulated device."""
