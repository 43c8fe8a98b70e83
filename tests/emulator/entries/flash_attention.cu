// Heads of up to 128.
#define INSTANCE_T float16
#define INSTANCE_D 64

#include "flash_attention_sm80.h"

EXPORT(float16, float16, 64)
#if EMULATED_CUDA_ARCH < 800
EXPORT(float16, float16, 128)
#else
EXPORT(bfloat16, bfloat16, 128)
#endif
