// The toolkit's header, with the emulator's primitives.

#pragma once

#include "cuda_pipeline_primitives.h"

#include_next <cuda_pipeline.h>
