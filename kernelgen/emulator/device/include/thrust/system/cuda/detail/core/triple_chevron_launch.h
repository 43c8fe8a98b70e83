// The toolkit's header, which launches the kernels of CUB's device-wide algorithms: as on the host. The macro that chooses
// sees __CUDA_ARCH__, which host code has here too.

#pragma once

#include <nv/target>

#pragma push_macro("NV_IF_TARGET")
#undef NV_IF_TARGET
#define NV_IF_TARGET(condition, host, ...) _NV_BLOCK_EXPAND(host)
#include_next <thrust/system/cuda/detail/core/triple_chevron_launch.h>
#pragma pop_macro("NV_IF_TARGET")
