// The header that load_evict_last and store_evict_last had, for ops that include it.

#pragma once

#include "cache_hints.cuh"
