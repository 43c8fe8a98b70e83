"""Gates: known configurations, and each limit from both sides."""

import re

import pytest

from kernelgen.tune import gates
from kernelgen.tune.device_limits import DEVICE_LIMITS, KIB, device_limits

HOPPER, TURING, ADA = DEVICE_LIMITS["9.0"], DEVICE_LIMITS["7.5"], DEVICE_LIMITS["8.9"]

# FlashAttention 3's forward for heads of 128: 128 x 176 tiles in bfloat16, two stages of K and V, Q; three warpgroups,
# of which one only loads. Its registers are what the compiler is given, 168 a thread, shared out unevenly at run time.
FLASH = {"threads": 384, "registers": 168, "shared": (128 + 4 * 176) * 128 * 2, "warp_specialised": True}


def test_the_chips_are_those_from_75_to_120():
    assert list(DEVICE_LIMITS) == ["7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1"]
    assert device_limits("9.0a") is HOPPER
    assert device_limits("10.0f") is DEVICE_LIMITS["10.0"]
    assert device_limits("6.0") is None
    for chip in DEVICE_LIMITS.values():
        assert chip.threads_sm % chip.warp == 0
        assert chip.shared_block + chip.reserved_shared <= chip.shared_sm


def test_a_known_kernel_passes_on_its_chip_and_not_on_a_smaller_one():
    assert gates.judge(FLASH, HOPPER) is None
    rejection = gates.judge(FLASH, ADA)
    assert rejection.gate == "shared memory"
    assert f"{FLASH['shared'] - 99 * KIB} more than {99 * KIB}" in rejection.text
    # FlashAttention 2's on Ampere: four warps, 255 registers, 48 KiB.
    assert gates.judge({"threads": 128, "registers": 255, "shared": 48 * KIB}, DEVICE_LIMITS["8.0"]) is None


@pytest.mark.parametrize(
    ("estimate", "chip", "gate", "text"),
    [
        ({"threads": 2048}, HOPPER, "threads", "2048 threads a block, 1024 is the most"),
        ({"threads": 100}, HOPPER, "threads", "not whole warps"),
        ({"threads": 0}, HOPPER, "threads", "not whole warps"),
        ({"threads": 512, "blocks": 3}, TURING, "threads", "1536 threads for 3 blocks, 512 more than 1024"),
        ({"shared": 64 * KIB + 1}, TURING, "shared memory", "1 more than 65536"),
        ({"shared": 227 * KIB + 16}, HOPPER, "shared memory", "16 more than"),
        ({"registers": 256}, HOPPER, "registers", "1 more than 255"),
        # 65 registers are 2,304 for a warp, in units of 256: too many for 32 warps.
        ({"threads": 1024, "registers": 65}, HOPPER, "registers", "73728 registers a block, 8192 more than 65536"),
        ({"threads": 32, "shared": 100 * KIB}, HOPPER, "occupancy", "3.1% of the warps .*by shared memory"),
        ({"threads": 96, "registers": 250}, HOPPER, "occupancy", "9.4% of the warps .*by registers"),
    ],
)
def test_each_limit_rejects_and_says_by_how_much(estimate, chip, gate, text):
    rejection = gates.judge(estimate, chip)
    assert rejection.gate == gate
    assert re.search(text, rejection.text), rejection.text


@pytest.mark.parametrize(
    ("estimate", "chip"),
    [
        ({"threads": 1024, "registers": 64}, HOPPER),
        ({"threads": 512, "blocks": 2}, TURING),
        ({"threads": 512, "blocks": 3}, ADA),
        ({"shared": 64 * KIB}, TURING),
        ({"shared": 227 * KIB}, HOPPER),
        ({"registers": 255}, HOPPER),
        ({"threads": 32, "shared": 100 * KIB, "warp_specialised": True}, HOPPER),
        ({}, HOPPER),
        (None, HOPPER),
        ({"threads": 4096}, None),
    ],
)
def test_an_estimate_within_the_limits_passes(estimate, chip):
    assert gates.judge(estimate, chip) is None


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "chip", "blocks", "limit"),
    [
        # As NVIDIA's occupancy calculator has them.
        (256, 32, 0, HOPPER, 8, "threads"),
        (256, 64, 0, HOPPER, 4, "registers"),
        (32, 16, 0, HOPPER, 32, "blocks"),
        (32, 16, 0, TURING, 16, "blocks"),
        (128, 32, 48 * KIB, HOPPER, 4, "shared memory"),
        (128, 32, 48 * KIB, ADA, 2, "shared memory"),
        (512, 0, 0, DEVICE_LIMITS["8.6"], 3, "threads"),
    ],
)
def test_resident_blocks(threads, registers, shared, chip, blocks, limit):
    estimate = {"threads": threads, "registers": registers, "shared": shared}
    assert gates.resident_blocks(estimate, chip) == (blocks, limit)


def access(**facts) -> dict:
    return {"global": [{"name": "x", **facts}]}


@pytest.mark.parametrize(
    ("facts", "chip", "gate"),
    [
        ({"bytes": 16, "stride": 16, "aligned_to": 16}, HOPPER, None),
        ({"bytes": 16, "stride": 16, "aligned_to": 8}, HOPPER, "alignment"),
        ({"bytes": 12, "stride": 12}, HOPPER, "alignment"),
        ({"bytes": 32, "stride": 32}, HOPPER, "alignment"),
        ({"bytes": 32, "stride": 32}, DEVICE_LIMITS["10.0"], None),
        ({"bytes": 4, "stride": 4}, HOPPER, None),
        ({"bytes": 4, "stride": 8}, HOPPER, None),
        ({"bytes": 4, "stride": 16}, HOPPER, "coalescing"),
        ({"bytes": 4, "stride": 4096}, HOPPER, "coalescing"),
        ({"bytes": 4, "stride": 0}, HOPPER, None),
        ({"bytes": 4, "offsets": [4 * (lane ^ 5) for lane in range(32)]}, HOPPER, None),
    ],
)
def test_alignment_and_coalescing(facts, chip, gate):
    rejection = gates.judge(access(**facts), chip)
    assert (rejection and rejection.gate) == gate


def shared(**facts) -> dict:
    return {"shared_accesses": [{"name": "tile", **facts}]}


@pytest.mark.parametrize(
    ("facts", "factor"),
    [
        ({"bytes": 4, "stride": 4}, 1),
        ({"bytes": 4, "stride": 8}, 2),
        ({"bytes": 4, "stride": 128}, 32),
        ({"bytes": 4, "stride": 132}, 1),  # A row of 32 words and one to spare.
        ({"bytes": 4, "stride": 0}, 1),  # The same word for all.
        ({"bytes": 16, "stride": 16}, 1),
        ({"bytes": 16, "stride": 256}, 8),  # Rows of 128 bfloat16, unswizzled.
        ({"bytes": 16, "offsets": [256 * row + 16 * (row % 8) for row in range(32)]}, 1),  # Swizzled.
    ],
)
def test_bank_conflicts(facts, factor):
    estimate = shared(**facts)["shared_accesses"][0]
    offsets = gates._offsets(estimate, HOPPER)
    assert gates.conflict_factor(offsets, facts["bytes"], HOPPER) == factor
    rejection = gates.judge(shared(**facts), HOPPER)
    assert (rejection is not None) == (factor > 2)
    assert rejection is None or f"{factor:g} times as long" in rejection.text


def test_the_ops_own_word_comes_first():
    assert str(gates.judge("tiles do not fit", None)) == "the op: tiles do not fit"


def kernel(**facts) -> dict:
    return {"name": "k", "registers": 32, "shared": 0, "spill_stores": 0, "spill_loads": 0, **facts}


@pytest.mark.parametrize(
    ("facts", "spilled", "gate"),
    [
        ({}, 0, None),
        ({"registers": 128}, 0, "registers"),
        ({"spill_stores": 64, "spill_loads": 64}, 0, "spills"),
        ({"spill_stores": 64, "spill_loads": 64}, 128, None),
        ({"shared": 300 * KIB}, 0, "shared memory"),
    ],
)
def test_the_compilers_report_is_judged_too(facts, spilled, gate):
    rejection = gates.judge_compiled([kernel(), kernel(**facts)], {"threads": 1024}, spilled, HOPPER)
    assert (rejection and rejection.gate) == gate


def test_registers_and_shared_memory_have_to_leave_room_for_several_blocks():
    """As launch bounds ask for it: a multiprocessor of the H200 has 65,536 registers and 228 KiB."""
    assert gates.judge({"threads": 256, "registers": 128, "blocks": 2, "shared": 113 * KIB}, HOPPER) is None
    rejection = gates.judge({"threads": 256, "registers": 136, "blocks": 2}, HOPPER)
    assert str(rejection) == "registers: 69632 registers for 2 blocks, 4096 more than 65536"
    rejection = gates.judge({"threads": 256, "blocks": 2, "shared": 114 * KIB}, HOPPER)
    assert str(rejection) == "shared memory: 235520 bytes for 2 blocks, 2048 more than 233472"


def test_of_several_kernels_each_is_judged_by_its_own_estimate():
    estimates = [{"kernel": "forward<.*Wide", "threads": 1024}, {"kernel": "backward<", "threads": 128}]
    assert gates.judge(estimates, HOPPER) is None
    few, many = {"registers": 64}, {"registers": 128}
    kernels = [kernel(name="forward<int, Wide>", **few), kernel(name="forward<int, Narrow>", **many)]
    assert gates.judge_compiled([*kernels, kernel(name="backward<int>", **many)], estimates, 0, HOPPER) is None
    rejection = gates.judge_compiled([kernel(name="forward<int, Wide>", **many)], estimates, 0, HOPPER)
    assert rejection.gate == "registers"
    rejection = gates.judge([*estimates, {"kernel": "other<.*Kernel", "threads": 2048}], HOPPER)
    assert rejection.text == "other Kernel: 2048 threads a block, 1024 is the most"
