"""`kernelgen report`: what goes into the page, what the page holds, and what it looks like in a browser."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from kernelgen.lab import results
from kernelgen.lab.ncu import profiler, runner
from kernelgen.lab.report import charts, collect, page
from tests.conftest import commit_all

from .browser import look, needs_browser, screenshot
from .test_figures import RECORDINGS

GPU = {"name": "NVIDIA H200", "capability": "9.0", "memory_bytes": 150e9, "driver": "580.1"}
ENVIRONMENT = {
    "device": "cuda",
    "gpu": GPU,
    "cpu": "A CPU",
    "cores": 16,
    "threads": 16,
    "system": "Linux",
    "python": "3.12",
    "torch": "2.11.0",
    "cuda": "13.0",
    "git": {"revision": "ab" * 20, "changed": True},
    "flags": {"seed": 0},
    "variables": {"CUDA_HOME": "/usr/local/cuda"},
}
PICTURES = 10
CEILINGS = {"copy_bytes_per_s": 4.25e12, "matrix_flops_per_s": {"bfloat16": 8e14, "float32": 5e13}}


def case(op: str, name: str, level: float, dtype: str = "bfloat16", **more) -> dict:
    times = np.random.default_rng(0).normal(level, level * 0.02, 100)
    times = list(times * level / np.median(times))
    facts = {f"p{p}": float(np.percentile(times, p)) for p in (50, 95, 99)}
    facts |= {"seconds": times, "median": [level, level * 0.99, level * 1.01], "cv": 0.02}
    facts |= {"bytes_per_s": 3e12, "copy_fraction": 0.7, "flops_per_s": 2e12, "matrix_fraction": 0.002}
    peers = {"torch": [1.5, 1.4, 1.6], "torch.compile": [0.8, 0.75, 0.85], "Liger": [1.0, 0.98, 1.02]}
    state = {"sm_mhz": {"min": 1900, "max": 1980}, "watts": {"min": 300.0, "max": 320.0}}
    named = {"op": op, "case": name, "sizes": {}, "dtype": dtype, "backward": False, "faults": [], "warnings": []}
    return {**named, "functions": {"op": facts}, "peers": peers, "state": state, "left_out": {}, **more}


def bench(*cases: dict, created: str = "2026-11-20T10:00:00+00:00", **environment) -> dict:
    run = {**results.new({**ENVIRONMENT, **environment}), "ceilings": CEILINGS, "cases": list(cases)}
    return {**run, "created": created}


LONG_NAMES = ("scaled_dot_product_attention", "layer_norm", "relu", "linear_activation", "swiglu", "rms_norm", "gelu")
MANY_PEERS = ("torch.compile", "torch flash", "torch math", "torch cudnn", "FlashAttention-3", "Liger", "QuACK")


def crowded() -> list[dict]:
    """Two runs of many ops with long names, both directions and many peers, of few samples that vary by much."""
    times = [0.4e-3] * 3 + [1e-3] * 5 + [1.2e-3] * 2 + [9e-3, 10e-3]
    facts = {"seconds": times, "p50": 1e-3, "p95": 9.5e-3, "p99": 9.9e-3}
    runs = []
    for dtype, created in (("float32", "2026-11-20T10:00:00+00:00"), ("bfloat16", "2026-11-21T10:00:00+00:00")):
        cases = []
        for i, op in enumerate(LONG_NAMES):
            for backward in (False, True):
                entry = case(op, f"{i + 1} x 1024 x 4096 causal", 1e-3, dtype, backward=backward)
                entry["functions"]["op"] |= {**facts, "flops_per_s": 1e12 / 4**i}
                entry["peers"] = {peer: [1.5, 0.01, 16.0] for peer in MANY_PEERS}
                cases.append(entry)
        rates = {dtype: CEILINGS["matrix_flops_per_s"][dtype]}
        runs.append(bench(*cases, created=created) | {"ceilings": {**CEILINGS, "matrix_flops_per_s": rates}})
    return runs


def profiled(name: str = "rms_norm-backward", **more) -> dict:
    profile = {
        **results.heading(profiler.KIND, profiler.VERSION),
        "environment": ENVIRONMENT,
        "op": "rms",
        "bytes": 8e8,
    }
    profile |= {"case": "large", "dtype": "bfloat16", "backward": True, "ceilings": CEILINGS, "reason": None}
    profile["created"] = "2026-11-20T11:00:00+00:00"  # Not now: profiles of one second have no order.
    profile["times"] = {"calls": 20, "rows": [{"name": "kernel<int>", "count": 1, "seconds": 1e-4}]}
    profile["kernels"] = profiler.described(runner.read((RECORDINGS / f"{name}.csv").read_text()), profile["bytes"])
    return {**profile, **more}


def tuned(op: str = "rms", **more) -> dict:
    """A record of `kernelgen tune`: two classes of shapes, in one of which nothing could be measured."""
    tunables = {"threads": [64, 128, 256], "a_tunable_with_quite_a_long_name": [False, True], "only": [1]}
    chance = np.random.default_rng(0)

    def trial(number: int, **facts) -> dict:
        values = {name: chance.choice(known).item() for name, known in tunables.items()}
        ended = {"values": values, "state": "measured", "reason": "", "ratio": 0.8 + number / 100, "ratios": {}}
        return {**ended, "at": 100.0 + 5 * number, "verdict_s": 7.0, **facts}

    crashed = trial(20, state="crashed or hung", reason="it <died>", ratio=None)
    trials = [trial(number) for number in range(19, -1, -1)] + [crashed]
    comparison = {"cases": [{"case": "rms · large", "ratio": [0.8, 0.79, 0.81], "verdict": "faster"}]}
    best = {"values": trials[-2]["values"], "passed": True, "problem": "", "comparison": comparison}
    stats = {"done": 21}
    importance = {"threads": 0.7, "a_tunable_with_quite_a_long_name": 0.3}
    good = {"shapes": "short <rows>", "ended": "every trial is done", "stats": stats, "importance": importance}
    bad = {"shapes": "long rows", "ended": "the time is up", "stats": stats, "importance": {}, "confirmed": []}
    gate = {"shared memory": {"count": 3, "examples": [{"values": {}, "text": "16 more than 232448"}]}}
    classes = [{"shapes": part["shapes"], "cases": [], "kept": 3, "rejected": gate} for part in (good, bad)]
    record = {"op": op, "device": "cuda", "chip": "9.0", "tunables": tunables, "points": 6, "classes": classes}
    record |= {"asked": {"backward": False}, "environment": ENVIRONMENT, "created": "2026-11-21T10:00:00+00:00"}
    record["searches"] = [{**good, "trials": trials, "confirmed": [best]}, {**bad, "trials": [crashed]}]
    return {**results.heading(results.TUNING_KIND, results.TUNING_VERSION), **record, **more}


@pytest.fixture
def file(tmp_path):
    def write(name: str, content: dict) -> Path:
        results.write(content, tmp_path / name)
        return tmp_path / name

    return write


@pytest.fixture
def files(file) -> list[Path]:
    """Two ops, three runs, wrong results, hostile names, and profiles with counters and without."""
    hostile = case("gate", '<b>&"odd"</b>', 2e-6, warnings=["the samples vary by 20%"])
    wrong = case("gate", "wrong", 0.123456, faults=["it cheats"])
    lacks = case("gate", "no cost", 3e-3, peers={}, left_out={"Liger": "ImportError: Liger"})
    del lacks["functions"]["op"]["flops_per_s"]
    first = bench(case("rms", "large", 2e-4), case("rms", "small", 9e-6), created="2026-10-01T10:00:00+00:00")
    second = bench(case("rms", "large", 1.6e-4), created="2026-10-20T10:00:00+00:00")
    newest = bench(case("rms", "large", 1.5e-4), case("rms", "small", 8e-6, "float32"), hostile, wrong, lacks)
    without = profiled(case="small", kernels=[], reason="Nsight Compute was not found")
    return [
        *(file("1.json", first), file("2.json", second), file("3.json", newest)),
        *(file("4.json", profiled()), file("5.json", without), file("6.json", tuned())),
    ]


# ---- What goes in ---------------------------------------------------------------------------------------------


def test_the_newest_of_each_case_and_its_past(files):
    material = collect.from_files(files)
    assert material.machine == "NVIDIA H200"
    assert material.newest["created"].startswith("2026-11-20")
    assert material.cases["rms · large · bfloat16"]["functions"]["op"]["median"][0] == 1.5e-4
    assert [point.median[0] for point in material.history["rms · large · bfloat16"]] == [2e-4, 1.6e-4, 1.5e-4]
    assert material.history["rms · large · bfloat16"][0].revision == "abababa+"
    assert material.history["gate · wrong · bfloat16"] == []
    assert list(material.profiles) == ["rms · large · bfloat16 · backward", "rms · small · bfloat16 · backward"]
    assert material.ops == ["rms", "gate"]
    assert [record["op"] for record in material.tunings.values()] == ["rms"]


def test_a_project_s_baselines_their_past_and_its_profiles(tmp_path):
    def save(level: float, created: str) -> None:
        run_of_rms = bench(case("rms", "large", level), created=created)
        results.write(run_of_rms, tmp_path / "baselines" / "nvidia-h200" / "rms.json")
        commit_all(tmp_path)

    save(3e-4, "2026-10-01T10:00:00+00:00")
    save(2e-4, "2026-11-01T10:00:00+00:00")
    older = bench(case("rms", "large", 1), created="2026-01-01T10:00:00+00:00", gpu={**GPU, "name": "NVIDIA A100"})
    results.write(older, tmp_path / "baselines" / "nvidia-a100" / "rms.json")
    results.write(profiled(), tmp_path / "build" / "profiles" / "rms.json")
    results.write(tuned(created="2026-01-01T10:00:00+00:00"), tmp_path / "build" / "tune" / "rms-cuda" / "record.json")
    material = collect.from_project(tmp_path)
    assert len(material.tunings) == 1
    assert [point.median[0] for point in material.history["rms · large · bfloat16"]] == [3e-4, 2e-4]
    assert list(material.profiles) == ["rms · large · bfloat16 · backward"]
    assert material.notes == ["measurements of other machines were left out: NVIDIA A100"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (bench(case("rms", "large", 1), gpu={**GPU, "name": "NVIDIA A100"}), "a report is of one machine"),
        ({"kind": results.KIND, "version": 99}, "version 99 of the results' schema"),
        ({"kind": profiler.KIND, "version": 0}, "version 0 of the results' schema"),
        ({"kind": results.TUNING_KIND, "version": 1}, "measure again with `kernelgen tune`"),
        ({"kind": "else"}, "does not hold results"),
    ],
)
def test_files_that_will_not_do(file, run, tmp_path, content, sentence):
    good = file("good.json", bench(case("rms", "large", 1)))
    result = run("report", good, file("bad.json", content), "--out", tmp_path / "out")
    assert result.code == 1
    assert sentence in result.err
    assert result.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_nothing_to_report(file, run, project):
    result = run("report")
    assert result.code == 1
    assert "kernelgen bench --save-baseline" in result.err
    assert "no file holds a case" in run("report", file("empty.json", bench())).err
    assert "cannot be read" in run("report", "nowhere.json").err


def test_without_matplotlib(files, run, monkeypatch):
    import builtins

    known = builtins.__import__

    def without(name, *rest, **more):
        if name.startswith("kernelgen.lab.report") and rest and rest[2] and "page" in rest[2]:
            raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
        return known(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    result = run("report", *files)
    assert result.code == 1
    assert "`kernelgen report` needs matplotlib where kernelgen is installed; get it with" in result.err


# ---- The page -------------------------------------------------------------------------------------------------


@pytest.fixture
def written(files, run, made_once) -> Path:
    """Drawn once for all tests: not to be changed."""

    def fill(folder: Path) -> None:
        result = run("report", *files, "--out", folder / "out", "--title", "My <kernels>")
        assert result.code == 0, result.err
        assert "6 cases on NVIDIA H200" in result.out

    return made_once("report", fill) / "out" / "report.html"


def test_the_page_stands_alone(written):
    text = written.read_text()
    assert not re.search(r"<(script|link|img|iframe)\b|url\(\s*['\"]?http|@import", text)
    assert "My &lt;kernels&gt;" in text
    assert "<b>&" not in text
    assert "&lt;b&gt;&amp;&quot;odd&quot;&lt;/b&gt;" in text


def test_every_part_is_there(written):
    text = written.read_text()
    for part in ("op-rms", "op-gate", "roofline", "profiles", "tuning", "history", "environment"):
        assert f'<section id="{part}">' in text
    assert text.count("<svg") == PICTURES
    for sentence in ("torch.compile", "Bound by device memory", "No counters: Nsight Compute was not found", "580.1"):
        assert sentence in text
    for note in ("it cheats", "the samples vary by 20%", "Liger was left out: ImportError"):
        assert note in text
    assert "123.5 ms" not in text  # times of wrong results
    for sentence in ("rms · 9.0 · short &lt;rows&gt;", "16 more than 232448", "it &lt;died&gt;", "confirmed: threads"):
        assert sentence in text
    assert "The default stands" in text
    names = {path.name for path in written.parent.iterdir()}
    assert {"tune-rms-9-0-short-rows-trials.png", "tune-rms-9-0-short-rows-importance.png"} < names
    assert {"speed-rms.png", "latency-gate.png", "roofline.png", "history-rms.png"} < names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written.parent.glob("*.png"))


def test_a_tuning_makes_a_page_by_itself(file, run, tmp_path):
    result = run("report", file("record.json", tuned(op="gate")), "--out", tmp_path / "out")
    assert result.code == 0, result.err
    text = (tmp_path / "out" / "report.html").read_text()
    assert text.count("<svg") == 3
    assert "1 of 2" in text
    assert "op-gate" not in text
    assert page.html(collect.of_tuning(tuned()), "rms").count("<svg") == 3


def test_pictures_take_the_colours_of_the_page(files):
    drawn = page.draw(collect.from_files(files))
    css = page.CSS.read_text()
    for name in charts.COLOURS:
        assert css.count(f"--{name}:") == 2, f"--{name} in light and in dark"
    for chart in (chart for part in drawn.values() for chart in part):
        svg = chart.svg()
        known = set(re.findall(r"var\(--([\w-]+)\)", svg))
        assert known <= set(charts.COLOURS)
        # matplotlib's own black and white are no colours of the page; clip paths have none.
        assert set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", svg)) == set()


def test_json_lists_the_files(files, run, tmp_path):
    result = run("report", *files, "--out", tmp_path / "out", "--json").json
    assert result["machine"] == "NVIDIA H200"
    assert all(Path(path).exists() for path in result["files"])
    json.dumps(result)


# ---- In a browser ---------------------------------------------------------------------------------------------


@needs_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_the_page_in_a_browser(written, tmp_path, width, dark):
    seen = look(written, width, tmp_path, dark=dark)
    assert seen["width"] <= width, "it scrolls sideways"
    assert seen["pictures"] == PICTURES
    assert min(seen["pictureWidths"]) > 250
    assert seen["smallestText"] >= 8
    assert seen["cut"] == []
    assert seen["overlaps"] == []
    assert seen["tileOverflow"] == 0
    assert seen["requests"] == []
    assert seen["dangling"] == 0
    assert len(set(seen["ids"])) == len(seen["ids"])
    shade = sum(map(int, re.findall(r"\d+", seen["card"])[:3])) / 3
    assert (shade < 60) if dark else (shade > 240)
    assert seen["lowestContrast"] >= 4.5
    assert seen["bodyContrast"] >= 7


@needs_browser
@pytest.mark.parametrize("width", [360, 1200])
def test_a_crowded_page_in_a_browser(file, run, made_once, tmp_path, width):
    files = [file(f"{i}.json", result) for i, result in enumerate(crowded())]

    def fill(folder: Path) -> None:
        assert run("report", *files, "--out", folder / "out").code == 0

    seen = look(made_once("crowded-report", fill) / "out" / "report.html", width, tmp_path)
    assert seen["width"] <= width, "it scrolls sideways"
    assert seen["cut"] == []
    assert seen["overlaps"] == []
    assert seen["turned"] == 1  # The name of an axis, of which boxes say little.
    assert seen["smallestText"] >= 8
    assert seen["tileOverflow"] == 0
    assert max(seen["secondColumns"]) <= 0, "a table shows no time without scrolling"


@needs_browser
def test_it_is_drawn(written, tmp_path):
    shots = []
    for dark in (False, True):
        shots.append(tmp_path / f"{dark}.png")
        screenshot(written, 1200, 1500, shots[-1], dark=dark)
    matplotlib_image = pytest.importorskip("matplotlib.image")
    light, night = (matplotlib_image.imread(path)[..., :3] for path in shots)
    assert light.mean() > 0.85
    assert night.mean() < 0.25
    for picture in (light, night):
        assert len(np.unique(picture.reshape(-1, 3)[::50], axis=0)) > 20


def test_samples_beyond_the_picture_are_counted(file):
    material = collect.from_files([file("1.json", crowded()[0])])
    (latency,) = [chart for chart in charts.all_of(material)["relu"] if chart.name == "latency-relu"]
    (axes,) = latency.figure.axes
    low, high = axes.get_xlim()
    assert low < 0.4 - 1
    assert 0.2 < high < 8
    assert [text.get_text() for text in axes.texts].count("+2") == 2


def test_every_roof_is_drawn_whichever_run_measured_it(file):
    runs = crowded()
    material = collect.from_files([file(f"{i}.json", run) for i, run in enumerate(runs)])
    assert material.ceilings["matrix_flops_per_s"] == CEILINGS["matrix_flops_per_s"]
    runs[1]["ceilings"]["copy_bytes_per_s"] = 1e12
    runs[1]["ceilings"]["matrix_flops_per_s"]["float32"] = 1e13
    newest = collect.from_files([file(f"{i}.json", run) for i, run in enumerate(runs)]).ceilings
    assert (newest["copy_bytes_per_s"], newest["matrix_flops_per_s"]["float32"]) == (1e12, 1e13)


def test_ceilings_that_lie_close_have_one_label():
    from kernelgen.lab.report.charts import _close

    assert _close({"float32": 0.95e11, "bfloat16": 1.2e11, "float64": 4e10}) == [["bfloat16", "float32"], ["float64"]]
    assert _close({}) == []


def test_a_rate_has_the_unit_that_suits_it():
    assert [results.flops_per_s(rate) for rate in (7.9e14, 1e12, 9.51e10)] == [
        "790 TFLOP/s",
        "1 TFLOP/s",
        "95.1 GFLOP/s",
    ]
