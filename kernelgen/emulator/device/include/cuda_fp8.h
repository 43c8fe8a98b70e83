// The toolkit's header, computing as on the host: see language/half.h.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#pragma push_macro("NV_IF_ELSE_TARGET")
#undef NV_IF_ELSE_TARGET
#define NV_IF_ELSE_TARGET(condition, device, ...) _NV_BLOCK_EXPAND(__VA_ARGS__)
#include_next <cuda_fp8.h>
#pragma pop_macro("NV_IF_ELSE_TARGET")
