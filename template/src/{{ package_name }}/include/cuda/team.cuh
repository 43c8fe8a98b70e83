// The header that thread_group.cuh was, for ops that include it.

#pragma once

#include "thread_group.cuh"
