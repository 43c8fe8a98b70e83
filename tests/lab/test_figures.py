"""What recordings of Nsight Compute are read as, and what is said of them."""

from pathlib import Path

import pytest

from kernelgen.lab.ncu import advice, figures, runner
from kernelgen.lab.ncu.stalls import STALLS

RECORDINGS = Path(__file__).parent / "recordings"


def launches(name: str) -> list[runner.Launch]:
    return runner.read((RECORDINGS / f"{name}.csv").read_text())


def kernels(name: str) -> list[figures.ProfiledKernel]:
    return [figures.profiled_kernel(launch) for launch in launches(name)]


# ---- Names and metrics ----------------------------------------------------------------------------------------


def test_the_metrics_of_a_chip_are_read():
    names = runner.names((RECORDINGS / "query-metrics.txt").read_text())
    assert {"dram__throughput", "lts__t_sector_hit_rate", "sm__pipe_tensor_cycles_active"} <= names
    assert "Metric" not in names
    assert len(names) > 200


def test_every_figure_has_a_metric_on_this_chip():
    metrics = figures.resolve(runner.names((RECORDINGS / "query-metrics.txt").read_text()))
    bases = [metric.partition(".")[0] for metric in metrics]
    assert len(set(bases)) == len(bases)
    for choices in figures.METRICS.values():
        assert choices[0] in metrics
    assert sum("issue_stalled" in metric for metric in metrics) == len(STALLS)


def test_another_chip_is_asked_for_what_it_has():
    metrics = figures.resolve({"sm__inst_executed_pipe_tensor", "dram__bytes_read"})
    counters = [metric for metric in metrics if not metric.startswith("launch__")]
    assert counters == ["dram__bytes_read.sum", "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active"]


def test_without_an_answer_the_likeliest_are_asked_for():
    metrics = figures.resolve(set())
    assert "dram__bytes_read.sum" in metrics
    assert "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio" in metrics


@pytest.mark.parametrize(
    ("long", "short"),
    [
        ("void unnamed>::fma<8, __nv_bfloat16>(const T2 *, long)", "fma<8, __nv_bfloat16>"),
        ("void a::<unnamed>::b::f<int, a::<unnamed>::T>(T1 *)", "f<int, a::T>"),
        ("void at::(anonymous namespace)::g<(int)4, float>(float*, int)", "g<(int)4, float>"),
        ("nvjet_sm90_tst", "nvjet_sm90_tst"),
        ("aten::empty", "empty"),
    ],
)
def test_short_names(long, short):
    assert runner.short(long) == short


# ---- Recordings -----------------------------------------------------------------------------------------------


def test_a_kernel_that_streams():
    (profiled,) = kernels("elementwise")
    assert profiled.name == "fused_multiply_add<8, __nv_bfloat16>"
    assert profiled.seconds == pytest.approx(119.968e-6)
    assert profiled.figures["memory"] == pytest.approx(90.87)
    assert profiled.moved == pytest.approx(402_669_824 + 121_867_776)
    assert profiled.spilled == 0
    assert profiled.conflict_share == 0
    assert profiled.most_occupancy == 100
    assert profiled.launch["registers_per_thread"] == 28
    assert next(iter(profiled.stalls)) == "long_scoreboard"
    assert sum(profiled.stalls.values()) == pytest.approx(1)
    assert advice.bound(profiled) == "memory"
    text = advice.advice(profiled, least_bytes=512e6)
    assert len(text) == 1
    assert "Bound by device memory, at 91% of its peak" in text[0]
    assert "1.02 times the least" in text[0]
    assert "2.0 times the least" in advice.advice(profiled, least_bytes=256e6)[0]


def test_a_call_of_several_kernels():
    launched = kernels("rms_norm-backward")
    assert [profiled.name.partition("<")[0] for profiled in launched][1:] == [
        "differentiate",
        "sum_columns",
        "sum_columns",
    ]
    assert [advice.bound(profiled) for profiled in launched] == ["launch", "memory", "latency", "launch"]


def test_other_kernels():
    product, transposed, tiny, softmax, *_ = kernels("torch")
    assert advice.bound(product) == "tensor"
    assert product.figures["wgmma"] > 0
    assert product.most_occupancy == pytest.approx(18.75)
    assert product.limited_by == "registers"
    # It keeps few warps by design, so nothing is said of its occupancy.
    assert len(advice.advice(product)) == 1
    assert advice.bound(transposed) == "l2"
    assert any("Of each 32 bytes that its loads touch, 4 are used" in line for line in advice.advice(transposed))
    assert advice.bound(tiny) == "launch"
    assert tiny.figures["l2_hits"] == 100  # recorded as 133.9
    assert advice.bound(softmax) == "latency"


def test_rows_show_six_figures_and_registers():
    (profiled,) = kernels("elementwise")
    rows = {name: (figure, rest) for name, figure, rest in figures.rows(profiled, 4.25e12, 512e6)}
    assert set(rows) == {
        *("tensor cores", "device memory", "L2 hits", "warps wait", "bank conflicts", "occupancy", "registers")
    }
    assert rows["device memory"] == (
        "90.9%",
        "of peak: 4.37 TB/s; a copy reaches 4.25 TB/s; 525 MB moved, 1.02 times the least",
    )
    assert rows["registers"] == ("28", "a thread; no spills")


def kernel(seconds=1e-4, launch=None, stalls=None, most=100.0, limited_by=None, **named) -> figures.ProfiledKernel:
    return figures.ProfiledKernel("k", seconds, named, launch or {}, stalls or {}, most, limited_by)


@pytest.mark.parametrize(
    ("profiled", "sentence"),
    [
        (kernel(issue=80.0), "Bound by issuing instructions, at 80% of the peak"),
        (kernel(launch={"waves_per_multiprocessor": 0.2, "grid_size": 26}), "Its 26 blocks fill 0.20 of one wave"),
        (kernel(stalls={"barrier": 0.6, "selected": 0.4}), "60% of their time waiting for the other warps"),
        (kernel(stalls={"unheard_of": 0.6}), "'unheard_of'"),
        (kernel(), "no unit is near its peak"),
        (kernel(local_read=2e6, local_written=1e6), "3 MB through local memory: registers are spilled"),
        (kernel(conflicts=30, wavefronts=100), "Bank conflicts cost 30%"),
        (kernel(occupancy=20.0, most=80.0), "Of 80% occupancy that the launch allows, 20% is reached"),
        (
            kernel(occupancy=24.0, most=25.0, limited_by="registers", launch={"registers_per_thread": 168}),
            "cannot exceed 25%, limited by registers (168 a thread)",
        ),
        (kernel(store_bytes=8.0), "its stores touch, 8 are used"),
    ],
)
def test_advice(profiled, sentence):
    assert any(sentence in line for line in advice.advice(profiled)), advice.advice(profiled)


def test_nothing_is_made_of_nothing():
    assert runner.read("") == []
    assert runner.read("==PROF== something\n") == []
    bare = figures.profiled_kernel(
        runner.Launch("k", {"gpu__time_duration.sum": 2e6, "sm__warps_active.avg": float("nan")})
    )
    assert (bare.seconds, bare.moved, bare.conflict_share, bare.most_occupancy) == (2e-3, None, None, None)
    assert all("?" in figure for _, figure, _ in figures.rows(bare))
    assert advice.advice(bare)


@pytest.mark.parametrize(
    ("log", "sentence"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", "only administrators"),
        ("==PROF== Connected\n==ERROR== Failed to initialize the profiler: LibraryNotLoaded\n", "offers no access"),
        ("==ERROR== Failed to find metric regex:launch__.*\n\n==ERROR== more\n", "Failed to find metric"),
        ("==WARNING== No kernels were profiled.\n", "saw no kernel"),
    ],
)
def test_complaints_of_ncu(log, sentence):
    assert sentence in runner.problem(log)


def test_no_complaint_is_none():
    assert runner.problem("==PROF== Report: x.ncu-rep\n") is None
