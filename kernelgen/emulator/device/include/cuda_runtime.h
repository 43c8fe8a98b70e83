// Replaces the toolkit's header of this name, whose contents for device code prelude.h has.

#pragma once

#define __CUDA_RUNTIME_H__

#include <channel_descriptor.h>
#include <cuda_runtime_api.h>
#include <driver_functions.h>
#include <driver_types.h>
#include <library_types.h>
#include <vector_functions.h>
