// The names that thread groups had, for ops that were written with them.

#pragma once

#include "thread_group.cuh"

template <int kLanes>
using LaneTeam = LaneGroup<kLanes>;
using BlockTeam = BlockGroup;
using PartTeam = SubBlockGroup;
using ClusterTeam = ClusterGroup;
