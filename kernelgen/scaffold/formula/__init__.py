"""What a traced function computes, as lines of C++ and as the entry of an op that a template writes kernels from."""
