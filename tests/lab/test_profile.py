"""`kernelgen profile`: both passes, what is saved, and what is said where something is missing.

Nsight Compute is played by a script that hands out recordings made on an H200.
"""

import copy
import json
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from kernelgen.cli import profile as verb
from kernelgen.errors import KernelgenError, LabError
from kernelgen.lab import results
from kernelgen.lab.ncu import profiler, runner
from tests.worker.bench_ops import interpreted_project

from .test_figures import RECORDINGS

H200 = {"device": "cuda", "gpu": {"name": "NVIDIA H200"}, "cpu": "A CPU", "cores": 16, "torch": "2.11", "flags": {}}
FAKE = """#!{python}
import pathlib, subprocess, sys
words, here = sys.argv[1:], pathlib.Path({recordings!r})
if "--query-metrics" in words:
    print((here / "query-metrics.txt").read_text())
elif "--import" in words:
    report = pathlib.Path(words[words.index("--import") + 1])
    print((here / "{name}.csv").read_text() if report.exists() else "")
else:
    log, report = (pathlib.Path(words[words.index(option) + 1]) for option in ("--log-file", "--export"))
    log.write_text({log!r})
    if not {log!r}:
        report.write_bytes(b"a report")
    target = words[words.index("--metrics") + 2:]
    sys.exit({code} or subprocess.run(target).returncode)
"""


@pytest.fixture
def fake_ncu(tmp_path, monkeypatch):
    """Puts an `ncu` on PATH that shows a recording, or complains in its log and ends with a code."""

    def make(name: str = "elementwise", log: str = "", code: int = 0) -> None:
        tool = tmp_path / "bin" / "ncu"
        tool.parent.mkdir(exist_ok=True)
        text = FAKE.format(python=sys.executable, recordings=str(RECORDINGS), name=name, log=log, code=code)
        tool.write_text(text)
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")

    return make


@pytest.fixture(scope="module")
def times() -> list[dict]:
    """What the worker of a first pass said. It is the same for every test of the counters, so that only one runs it."""
    return []


@pytest.fixture
def profiled(tmp_path, monkeypatch, times):
    """Profiles an interpreted op on the CPU, which passes for an H200 if so wanted."""

    def call(body: str = "pass", *, gpu: bool = False, limit_s: float = 60.0, **request) -> profiler.Profiler:
        root = tmp_path / "project"
        if not root.exists():
            interpreted_project(root, body)
        facts = {"package": "pkg", "op": "tested", "seed": 0, "device": "cpu", "interpreted": True, **request}
        measuring = profiler.Profiler(Path(sys.executable), root, facts, tmp_path / "out", limit_s)
        if gpu:
            monkeypatch.setattr(measuring, "_why_not", lambda profile: None)
            follow = measuring._follow

            def on_cpu(more, on_event, under=()):
                # The second pass would start a CUDA profiler: there is none, so it times once more instead.
                if more["counters"]:
                    follow({**more, "counters": False, "device": "cpu"}, on_event, under)
                    return
                if not times:
                    follow(more, lambda event: times.append(copy.deepcopy(event)))
                for event in copy.deepcopy(times):
                    on_event(event)

            monkeypatch.setattr(measuring, "_follow", on_cpu)
        return measuring

    return call


# ---- On the CPU -----------------------------------------------------------------------------------------------


def test_on_the_cpu_torch_profiles(profiled, tmp_path):
    measuring = profiled(case="odd")
    profile = measuring.run()
    assert profile["case"] == "odd"
    assert profile["kernels"] == []
    assert "ran on the CPU" in profile["reason"]
    rows = {row["name"]: row for row in profile["times"]["rows"]}
    assert rows["aten::mul"]["count"] == rows["aten::add"]["count"] == 1
    assert all(row["seconds"] > 0 for row in rows.values())
    assert profiler.read(tmp_path / "out" / "tested-odd-float32.json") == profile
    text = "\n".join(verb._text(profile, None, measuring.written))
    assert "No counters" in text
    assert "tested-odd-float32.json" in text


def test_the_gradient(profiled):
    profile = profiled(backward=True).run()
    assert profile["backward"]
    assert profiler.name_of(profile) == "tested-small-float32-backward"
    assert profile["times"]["rows"]


# ---- With counters --------------------------------------------------------------------------------------------


def test_counters_are_read_saved_and_explained(profiled, fake_ncu, tmp_path):
    fake_ncu("rms_norm-backward")
    measuring = profiled(gpu=True)
    profile = measuring.run()
    assert profile["reason"] is None
    assert [path.suffix for path in measuring.written] == [".ncu-rep", ".csv", ".json"]
    assert all(path.exists() for path in measuring.written)
    assert not list((tmp_path / "out").glob("*.log"))
    assert runner.read(measuring.written[1].read_text())[1].name == profile["kernels"][1]["name"]
    assert sum(kernel["share"] for kernel in profile["kernels"]) == pytest.approx(1)
    json.dumps(profile)
    text = "\n".join(verb._text(profile, None, measuring.written))
    assert "in 4 launches" in text
    assert "differentiate<8, __nv_bfloat16>: 212.1 µs, 46% of the time, grid x block 16384 x 1024" in text
    for figure in ("tensor cores", "device memory", "L2 hits", "warps wait", "bank conflicts", "occupancy"):
        assert text.count(f"  {figure}") == verb._MOST_SHOWN
    assert "→ Bound by device memory" in text


def test_before_and_after(profiled, fake_ncu):
    profiles = {}
    for name in ("rms_norm-backward", "elementwise"):
        fake_ncu(name)
        profiles[name] = profiled(gpu=True).run()
    text = "\n".join(verb._change(profiles["rms_norm-backward"], profiles["elementwise"]))
    assert "before → after: 463 µs → 120 µs (-74.1%)" in text
    assert "device memory" in text
    assert "→ 90.9%" in text


@pytest.mark.parametrize(
    ("log", "code", "sentence"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - no permission\n", 0, "only administrators"),
        ("==ERROR== Failed to profile kernel\n", 9, "ncu said: Failed to profile kernel"),
        ("", 3, "ended with exit code 3"),
    ],
)
def test_counters_that_cannot_be_read_leave_the_times(profiled, fake_ncu, log, code, sentence):
    fake_ncu(log=log, code=code)
    measuring = profiled(gpu=True)
    profile = measuring.run()
    assert sentence in profile["reason"]
    assert profile["kernels"] == []
    assert profile["times"]["rows"]


def test_no_ncu_is_said(monkeypatch):
    monkeypatch.setattr(runner, "find", lambda: None)
    measuring = profiler.Profiler(Path(sys.executable), Path(), {}, Path())
    assert "put its `ncu` on PATH" in measuring._why_not({"environment": H200})
    monkeypatch.setattr(runner, "find", lambda: Path("ncu"))
    assert measuring._why_not({"environment": H200}) is None


def test_ncu_is_found_in_the_toolkit(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(runner, "_FOLDERS", (str(tmp_path / "nsight-compute" / "*"),))
    assert runner.find() is None
    for version in ("2024.1", "2025.3"):
        tool = tmp_path / "nsight-compute" / version / "ncu"
        tool.parent.mkdir(parents=True)
        tool.touch(0o755)
    assert runner.find() == tool
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    (tmp_path / "cuda" / "bin").mkdir(parents=True)
    (tmp_path / "cuda" / "bin" / "ncu").touch(0o755)
    assert runner.find() == tmp_path / "cuda" / "bin" / "ncu"


# ---- What goes wrong ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "limit_s", "says"),
    [
        ("os.abort()", 60.0, "the process crashed with SIGABRT"),
        ("raise ValueError('no such luck')", 60.0, "failed: ValueError: no such luck"),
        ("import time; time.sleep(1000)", 3.0, "the process hung: it said nothing for 3 s"),
    ],
)
def test_an_op_that_fails(profiled, body, limit_s, says):
    with pytest.raises(profiler.FailedError, match=says) as caught:
        profiled(body, limit_s=limit_s).run()
    assert caught.value.exit_code == 1


def test_a_crash_under_ncu_alone_leaves_the_times(profiled, fake_ncu):
    fake_ncu(code=139)
    profile = profiled(gpu=True).run()
    assert "exit code 139" in profile["reason"]
    assert profile["times"]["rows"]


def test_what_is_not_there_is_said(profiled):
    with pytest.raises(LabError, match="has no case 'huge' on cpu; it has 'small', 'odd'"):
        profiled(case="huge").run()
    with pytest.raises(LabError, match="does not take int8"):
        profiled(dtype="int8").run()
    with pytest.raises(LabError, match="torch sees no GPU here"):
        profiled(device="cuda").run()


def test_ctrl_c_ends_it(profiled, tmp_path):
    called = tmp_path / "called"
    os.mkfifo(called)
    measuring = profiled(f"open({str(called)!r}, 'w').close(); import time; time.sleep(1000)")

    def interrupt() -> None:
        called.read_text()  # Until the op was called.
        # A signal, which also ends what the main thread waits for.
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        measuring.run()
    assert measuring.written == []


def test_profiles_of_other_machines_cases_and_versions(profiled, tmp_path):
    profile = profiled().run()
    other = {**profile, "environment": H200}
    with pytest.raises(
        KernelgenError, match=r"b\.json was taken on NVIDIA H200, and this is .*, 2 cores|different mach"
    ):
        profiler.check_comparable(other, "b.json", profile)
    with pytest.raises(KernelgenError, match=r"b\.json is of tested · odd"):
        profiler.check_comparable({**profile, "case": "odd"}, "b.json", profile)
    profiler.check_comparable(profile, "b.json", profile)
    path = tmp_path / "newer.json"
    results.write({**profile, "version": 99}, path)
    with pytest.raises(KernelgenError, match="version 99 of the results' schema"):
        profiler.read(path)
    results.write(results.new(H200), path)
    with pytest.raises(KernelgenError, match="does not hold results of `kernelgen profile`"):
        profiler.read(path)


# ---- The command ----------------------------------------------------------------------------------------------


def test_the_command_and_a_revision_before(lab_project, run):
    result = run("profile", "elementwise", "--case", "odd", "--against", "HEAD")
    assert result.code == 0, result.err
    assert "elementwise · odd · float32" in result.out
    assert "before → after" in result.out
    saved = lab_project / "build" / "profiles" / "elementwise-odd-float32.json"
    again = run("profile", "elementwise", "--case", "odd", "--against", saved, "--json")
    assert again.code == 0, again.err
    assert again.json["before"]["case"] == "odd"


def test_a_project_that_cannot_be_written_loses_no_profile(lab_project, run):
    (lab_project / "build").mkdir(exist_ok=True)
    (lab_project / "build" / "profiles").touch()
    result = run("profile", "elementwise", "--case", "odd", "--json")
    assert result.code == 0, result.err
    assert result.json["case"] == "odd"
    assert "the profile is shown and not kept" in result.err


def test_the_command_refuses_in_a_sentence(lab_project, run, tmp_path):
    (tmp_path / "old.json").write_text(json.dumps({"kind": profiler.KIND, "version": 0}))
    (tmp_path / "file").touch()
    for arguments, sentence in (
        (("elementwise", "--case", "huge"), "has no case 'huge'"),
        (("elementwise", "--device", "cuda"), "torch sees no GPU here"),
        (("nothing",), "has no op 'nothing'"),
        ((), "OP"),
        (("elementwise", "--limit", "0"), "0 is no number from"),
        (("elementwise", "--against", tmp_path / "old.json"), "version 0"),
        (("elementwise", "--against", "nowhere"), "no revision 'nowhere'"),
        (("elementwise", "--out", tmp_path / "file"), "file cannot be written"),
    ):
        result = run("profile", *arguments)
        assert (result.code, sentence in result.err) == (2, True), result.err
