// Heads of 96, 192 and 256.
#define INSTANCE_T float16
#define INSTANCE_D 96

#include "flash_attention_sm80.h"

EXPORT(float16, float16, 96)
EXPORT(float16, float16, 192)
EXPORT(float16, float16, 256)
