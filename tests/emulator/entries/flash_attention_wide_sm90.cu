// The kernels of sm90/ for heads of 192, with values of 192 or 128, and of 256.
#define INSTANCE_T float16
#define INSTANCE_D 192
#define INSTANCE_KIND kOrdinary

#include "flash_attention_sm90.h"
#include "sm90/backward_wide.cu"

template <typename T, int D>
cudaError_t run_backward(const Backward& p) {
  return p.progress ? sm90::backward<T, D, BackwardKind::kOrdered>(p, nullptr)
                    : sm90::backward<T, D, BackwardKind::kOrdinary>(p, nullptr);
}

EXPORT_SM90(float16, float16, 192)
EXPORT_SM90(float16, float16, 256)
