"""include/: headers include only those of the rooms that README.md allows, and sources name them without a room."""

import re
import shutil
from pathlib import Path

import pytest

from .conftest import REPOSITORY, build, stamp

(INCLUDE,) = (REPOSITORY / "template").glob("src/*/include")
HEADERS = {path.name.removesuffix(".jinja"): path for path in INCLUDE.rglob("*.*h*") if path.suffix != ".md"}
# By room: the rooms whose headers its own may include, and whether they may include torch's.
ALLOWED = {
    "torch": ({"torch", "cpu", "cuda"}, True),
    "cpu": ({"cpu"}, False),
    "cuda": ({"cpu", "cuda"}, False),
    "sm80": ({"cuda", "sm80"}, False),
    "sm90": ({"cuda", "sm80", "sm90"}, False),
}

NVCC = shutil.which("nvcc") or next(map(str, Path("/usr/local").glob("cuda/bin/nvcc")), None)
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="there is no nvcc here")


@pytest.mark.parametrize("page", [INCLUDE / "README.md", REPOSITORY / "template/docs/architecture.md.jinja"])
def test_every_header_is_in_a_room_that_the_pages_list(page):
    assert {path.parent.name for path in HEADERS.values()} == set(ALLOWED)
    rows = re.findall(r"^\| `(\w+)/` \|.*\| (.*) \|$", page.read_text(), re.MULTILINE)
    allowed = {room: ({room, *re.findall(r"`(\w+)/`", text)}, "torch's" in text) for room, text in rows}
    assert allowed == ALLOWED


def test_no_two_headers_of_all_rooms_share_a_name():
    names = [path.name for room in ALLOWED for path in (INCLUDE / room).iterdir()]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("name", sorted(HEADERS))
def test_a_header_includes_what_its_room_allows(name):
    rooms, torch = ALLOWED[HEADERS[name].parent.name]
    text = HEADERS[name].read_text()
    for included in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE):
        assert HEADERS[included].parent.name in rooms, included
    assert torch or "#include <torch/" not in text


# ---- An op that was written before there were rooms -----------------------------------------------------------

OLD_OP = {
    "__init__.py": 'SCHEMAS = {"old_norm": "(Tensor x) -> Tensor"}\n',
    "kernel.cuh": """
#pragma once

#include <cuda_fp16.h>

#include <algorithm>
#include <type_traits>

#include "column_sums.cuh"
#include "divisor.cuh"
#include "evict_last.cuh"
#include "queue.cuh"
#include "row.cuh"
#include "tile.cuh"
#include "vector.cuh"
#include "widen.cuh"

namespace old_norm_kernel {
namespace {

template <typename Team, int N, int kAccesses, typename T>
__global__ void __launch_bounds__(block_threads<Team>(128)) normalise(
    const T* input, T* output, int64_t rows, int64_t n, bool whole) {
  Team team;
  const int64_t row = team.first();
  const auto work = [&](auto all) {
    const bool there = all || row < rows;
    Row<Team, T, N, kAccesses, all> x(team, input + row * n, there ? n / N : 0);
    accumulate_t<T> squares = 0;
    x.each([&](int64_t, const Vector<accumulate_t<T>, N>& values) {
      for (int k = 0; k < N; ++k) squares += values[k] * values[k];
    });
    const auto scale = rsqrt(team.sum(squares));
    x.each([&](int64_t i, Vector<accumulate_t<T>, N> values) {
      values *= scale;
      store_evict_last(output + row * n, i, narrow<T>(values));
    });
  };
  whole ? work(std::bool_constant<kCanBeWhole<kAccesses>>()) : work(std::false_type());
}

template <typename Team, int N, int kAccesses, typename T>
__global__ void __launch_bounds__(staying_threads<Team>(128)) differentiate(
    const T* input, accumulate_t<T>* partial, int64_t rows, int64_t n) {
  extern __shared__ __align__(32) char shared[];
  Team team;
  Queue<T, N, kAccesses, 2> queue(shared, 1);
  ColumnSums<accumulate_t<T>, N, kAccesses> sums;
  let_next_kernel_start();
  for (int64_t row = team.first(); team.in_turn(row, rows); row += team.count()) {
    const auto* const from = reinterpret_cast<const Vector<T, N>*>(input + row * n);
    for (int access = 0; row < rows && access < kAccesses; ++access) {
      const int i = team.template first_access<kAccesses>() + access * Team::kStep;
      if (i < n / N) queue.fetch(0, access, from + i);
    }
    queue.push();
    queue.drain();
    for (int access = 0; row < rows && access < kAccesses; ++access) {
      sums.sums[access] += widen(queue.front(0, access));
    }
    queue.pop();
  }
  const int64_t slot = Team::kSharesBlock ? blockIdx.x : team.first();
  sums.write(team, shared, partial + slot * n, n);
}

}  // namespace

template <typename T>
cudaError_t forward(const T* input, T* output, int64_t rows, int64_t n, cudaStream_t stream) {
  constexpr int N = kVectorLength<T>;
  return visit_tile<N, 2, 4>(n / N, 128, [&](const auto& tile) {
    using Tile = std::decay_t<decltype(tile)>;
    const auto kernel = normalise<typename Tile::Team, N, Tile::kAccesses, T>;
    return launch(
        kernel, tile, blocks_for_rows(tile, rows), 0, stream, input, output, rows, n, is_whole(tile, rows, n));
  });
}

// Edited by its owner: for short rows alone.
template <typename T>
cudaError_t backward(const T* input, T* sums, accumulate_t<T>* scratch, int64_t rows, int64_t n, cudaStream_t stream) {
  using Sum = accumulate_t<T>;
  constexpr int N = kVectorLength<T>;
  const auto tile = filled<2>(Tile<BlockTeam, N, 2>{64, 1, 1}, 128, rows);
  const auto kernel = differentiate<typename decltype(tile)::Team, N, 2, T>;
  const size_t shared = Queue<T, N, 2, 2>::bytes(tile.threads, 1);
  const int64_t blocks = blocks_that_stay(kernel, tile, rows, 4, shared), slots = blocks / tile.blocks_per_team;
  if (tile.teams_per_block < 1) return cudaErrorInvalidValue;
  if (const auto error = launch(kernel, tile, blocks, shared, stream, input, scratch, rows, n)) return error;
  return launch_sum_columns<Sum>(Stored<Sum>{scratch, n}, Columns<T>{sums, nullptr, n}, slots, n, 1, stream);
}

#define INSTANTIATE(T) \\
  template cudaError_t forward(const T*, T*, int64_t, int64_t, cudaStream_t); \\
  template cudaError_t backward(const T*, T*, accumulate_t<T>*, int64_t, int64_t, cudaStream_t);

}  // namespace old_norm_kernel
""",
    "float16.cu": """
#include "kernel.cuh"

namespace old_norm_kernel {

INSTANTIATE(__half)

}  // namespace old_norm_kernel
""",
    "products.sm_90a.cu": """
#include "cp_async.cuh"
#include "mma.cuh"
#include "pack.cuh"
#include "tma.cuh"
#include "tma.h"
#include "warpgroup.cuh"
#include "wgmma.cuh"

__global__ void multiply(const __half* a, float* out) {
  extern __shared__ __align__(1024) char shared[];
  __shared__ MBarrier barrier;
  if (threadIdx.x == 0) barrier.init(1);
  fence_mbarrier_init();
  named_barrier_sync(1, kWarpgroup);
  cp_async_16(shared + swizzled(threadIdx.x / 8, threadIdx.x % 8), a + 8 * threadIdx.x, true);
  cp_async_commit();
  cp_async_wait<0>();
  fence_async_shared();
  float sums[8] = {}, small[4] = {};
  wgmma_fence();
  wgmma<__half>(sums, wgmma_operand(shared), wgmma_operand(shared));
  wgmma_commit();
  wgmma_wait<0>();
  const uint32_t pairs[4] = {pack<__half>(sums[0], sums[1]), 0, 0, 0};
  mma_16x8x16<__half>(small, pairs, pairs[0], pairs[0]);
  out[threadIdx.x] = sums[0] + small[0];
}
""",
}


@needs_nvcc
def test_an_op_that_was_written_before_there_were_rooms_still_compiles(tmp_path):
    """Its sources use the former names of what headers hold, instantiate in a file of their own, and name an
    architecture in a file's name."""
    project = stamp(tmp_path / "p", ops=[])
    op = project / "src" / "demo_kernels" / "ops" / "old_norm"
    op.mkdir()
    for name, text in OLD_OP.items():
        (op / name).write_text(text)
    result = build(project, TORCH_CUDA_ARCH_LIST="9.0a", USE_CUDA="1")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "old_norm/float16.cu" in result.stdout
