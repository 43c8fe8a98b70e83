"""`kernelgen tune` from end to end, on the CPU and with a real compiler; optimum and faults are planted."""

import functools
import json
import math
import os
import random
import signal
import statistics
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelgen.errors import LabError
from kernelgen.lab import pair
from kernelgen.lab.compare import Thresholds
from kernelgen.lab.report import collect, page
from kernelgen.tune import confirm, devices, display, text, tuning
from kernelgen.tune.journal import is_begun, only_tuning, storage_of
from kernelgen.tune.request import Reporter, TuningRequest
from kernelgen.tune.search import SearchStats
from tests.stamped.conftest import build, edit

from .conftest import ESTIMATES, OP, command, variables

CLASSES = """struct Large : Defaults {
  static constexpr std::string_view shapes = "large";
};

struct Small : Defaults {
  static constexpr std::string_view shapes = "small";
};

"""
VISIT = """    if (out.numel() > 100000) {
      tuned::elementwise::visit<Large>(launch);
    } else {
      tuned::elementwise::visit<Small>(launch);
    }
"""
# Only a process that hangs takes so long, however busy the machine is.
LIMIT_S = 600


def trials(record: dict) -> list[dict]:
    return record["searches"][0]["trials"]


@pytest.mark.slow
def test_a_planted_optimum_is_found_confirmed_written_and_built(steady, tune):
    few = ("--seeds", 3, "--trials", 2, "--blocks", 12, "--best", 1)
    result = tune(*few, "--json", "--pictures", "page.html")
    record = result.json
    assert result.code == record["exit_code"] == 0, record["searches"][0]["confirmed"]
    best = record["searches"][0]["confirmed"][0]
    assert best["passed"]
    assert best["values"]["work"] < 16
    written = json.loads((steady / OP / "tuned.json").read_text())
    (entry,) = written.values()
    assert entry["values"] == best["values"]
    assert "-" in next(iter(entry["measured"]["time against the default's"].values()))
    build(steady, USE_CUDA="0").check_returncode()
    header = (steady / "build/release/generated/tuned/cpu/elementwise.h").read_text()
    assert f"work = {best['values']['work']};" in header
    text = (steady / "page.html").read_text()
    assert text.count("<svg") >= 2
    assert "<script" not in text
    # The candidates were in the cache.
    assert record["searches"][0]["stats"]["cached"] >= 5


@pytest.mark.slow
def test_each_faulty_candidate_costs_itself_alone_and_is_recorded_with_its_reason(planted, tune):
    # Nothing is faster than the default, so that there is nothing to confirm.
    edit(planted / OP / "lab.py", ("(1, 2, 16, 20, 24)", "(16,)"))
    # The limit is what a right candidate may need for a proof where other tests have the cores.
    record = tune("--seeds", 5, "--trials", 0, "--blocks", 10, "--best", 1, "--limit", 20, "--json").json
    measured_trials = trials(record)
    assert len(measured_trials) == 5
    states = {trial["values"]["mode"]: (trial["state"], trial["reason"]) for trial in measured_trials}
    assert states[0][0] in ("measured", "stopped early")
    assert states[1] == ("crashed or hung", states[1][1])
    assert "the candidate crashed with SIGABRT" in states[1][1]
    assert "the candidate hung: it said nothing for 20 s" in states[2][1]
    assert states[3][0] == "wrong"
    assert "output 0[0, 0] is 123" in states[3][1]
    assert states[4][0] == "not compiled"
    assert "mode 4 is none" in states[4][1]
    assert [trial["values"]["mode"] for trial in measured_trials if trial["ratio"] is not None] == [0]
    assert "crashed or hung" in page.html(collect.of_tuning(record), "planted")


def test_notes_on_a_confirmation_stand_below_their_case():
    case = {"case": "small · float32", "ratio": [0.9, 0.88, 0.92], "verdict": "improvement", "notes": ["it is hot"]}
    confirmation = {"passed": True, "values": {"work": 1}, "problem": "", "comparison": {"cases": [case]}}
    part = {"shapes": None, "ended": "all was tried", "stats": {"done": 7, "failed": 0, "seconds": 3.0}}
    request = TuningRequest(Path(), "demo_kernels", "elementwise", Path())
    result = tuning.TuningResult({"searches": [{**part, "confirmed": [confirmation]}]})
    lines = text.of_result(request, result).splitlines()
    line = lines.index("    small · float32: -10.0% (-12.0, -8.0) improvement")
    assert lines[line + 1] == "      it is hot"


def test_confirming_takes_as_much_evidence_as_a_comparison_does_unless_fewer_blocks_are_given(monkeypatch):
    confirmers = []
    monkeypatch.setattr(tuning, "Confirmer", lambda *arguments: confirmers.append(SimpleNamespace(blocks=arguments[6])))
    monkeypatch.setattr(tuning.search, "ranked", lambda trials: [])
    compiler = SimpleNamespace(default=None, shapes=None)
    for blocks, device in ((None, "cuda"), (None, "cpu"), (12, "cpu")):
        request = TuningRequest(Path(), "demo_kernels", "elementwise", Path(), blocks=blocks)
        task = SimpleNamespace(device=device)
        assert [*tuning._confirm(request, task, compiler, [], [], Reporter(), lambda: None)] == []
    assert [confirmer.blocks for confirmer in confirmers] == [pair.BLOCKS["cuda"], pair.BLOCKS["cpu"], 12]


def test_only_what_may_be_faster_by_enough_is_confirmed(monkeypatch):
    """The default's own values, which the search measures too, are not faster."""
    confirmed, notes = [], []
    confirmer = SimpleNamespace(confirm=lambda values, candidate: confirmed.append(values))
    monkeypatch.setattr(tuning, "Confirmer", lambda *_: confirmer)
    request = TuningRequest(Path(), "demo_kernels", "elementwise", Path(), thresholds=Thresholds(faster=0.03))
    reporter = Reporter(note=notes.append)
    compiler = SimpleNamespace(default=None, shapes="many", compile=lambda values: None)

    def confirm(*measured: dict[str, float]) -> None:
        trials = [
            {"state": "measured", "values": {"tile": n}, "ratio": statistics.fmean(ratios.values()), "ratios": ratios}
            for n, ratios in enumerate(measured)
        ]
        task = SimpleNamespace(device="cuda")
        list(tuning._confirm(request, task, compiler, trials, [], reporter, lambda: None))

    confirm({"small": 0.999, "large": 1.0}, {"small": 0.98, "large": 1.01}, {"small": 0.95, "large": 1.2})
    assert confirmed == [{"tile": 1}]
    confirm({"small": 0.999, "large": 0.989})
    assert confirmed == [{"tile": 1}]
    assert notes[-1] == "many: nothing looked nearly 3% faster in any case, so there is nothing to confirm"


class FakeWorker:
    """Gives every order the same answer, which holds what any of them needs, and notes the orders in `orders`."""

    def __init__(self, orders: list[tuple[str, str]], fault: str, name: str, *_: object) -> None:
        self.orders, self.fault, self.name = orders, fault, name

    def order(self, do: str, **arguments: object) -> None:
        self.orders.append((self.name, do))

    def answer(self) -> dict:
        environment = {"device": "cpu", "cpu": "A CPU", "cores": 2}
        cases = [["a", "float32"], ["b", "float32"], ["c", "float32"]]
        return {"environment": environment, "cases": cases, "fault": self.fault}

    def ask(self, do: str, **arguments: object) -> dict:
        self.order(do)
        return self.answer()

    def allow(self, limit_s: float) -> None:
        pass

    def close(self) -> None:
        pass


def confirmed(monkeypatch, ratios: dict[str, float], fault: str = "") -> tuple[confirm.Confirmation, list]:
    """What confirming a candidate with these ratios gives, on a CPU; and the orders to its workers."""
    orders = []

    def measure(workers, part, schedule, tick, is_decided):
        chance = random.Random(schedule.seed)
        part.ratios = [ratios[part.case] * chance.uniform(0.995, 1.005) for _ in range(schedule.blocks)]
        return part

    monkeypatch.setattr(confirm, "WorkerProcess", functools.partial(FakeWorker, orders, fault))
    monkeypatch.setattr(pair, "measure", measure)
    library = SimpleNamespace(library="x.so")
    cases, thresholds = [[name, "float32"] for name in ratios], Thresholds(faster=0.03)
    confirmer = confirm.Confirmer(Path(), Path(), {"op": "op", "device": "cpu"}, library, cases, thresholds, 100, 60.0)
    return confirmer.confirm({"work": 1}, library), orders


def test_a_candidate_is_proved_once_and_confirmed_in_its_cases(monkeypatch):
    confirmation, orders = confirmed(monkeypatch, {"a": 0.9, "b": 1.0})
    assert confirmation.passed
    verdicts = {verdict.case: verdict.verdict for verdict in confirmation.comparison.verdicts}
    assert verdicts == {"op · a · float32": "improvement", "op · b · float32": "no difference"}
    assert orders.count(("the candidate", "prove")) == confirm.PROOFS // confirm.PROOFS_PER_ORDER
    assert ("the default", "prove") not in orders
    first = orders.index(("the candidate", "prove"))
    assert orders[:first] == [
        *(("the default", "list"), ("the candidate", "list"), ("the default", "load"), ("the candidate", "load"))
    ]
    # Four pairs measure each case, and four others repeat what seems faster.
    assert orders.count(("the candidate", "load")) == orders.count(("the default", "load")) == 8


def test_a_candidate_that_is_slower_or_wrong_is_not_confirmed(monkeypatch):
    confirmation, _ = confirmed(monkeypatch, {"a": 0.9, "b": 1.04})
    assert not confirmation.passed
    confirmation, orders = confirmed(monkeypatch, {"a": 0.9}, fault="output 0 is off")
    assert (confirmation.comparison, confirmation.problem) == (None, "the candidate is wrong: output 0 is off")
    assert orders.count(("the candidate", "prove")) == 1


@pytest.mark.parametrize(("visible", "names"), [(None, ["0", "2"]), ("4,5,7", ["4", "7"])])
def test_each_gpu_of_one_kind_is_measured_on_by_processes_that_see_it_alone(monkeypatch, visible, names):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    task = SimpleNamespace(device="cuda", gpus=[0, 2])

    def places(gpus: int | None) -> list[tuple[int, dict[str, str]]]:
        return devices.visible_devices(TuningRequest(Path(), "demo_kernels", "elementwise", Path(), gpus=gpus), task)

    alone = [{"CUDA_VISIBLE_DEVICES": name} for name in names]
    assert places(None) == [(0, alone[0]), (2, alone[1])]
    assert places(1) == [(0, alone[0])]
    with pytest.raises(LabError, match="elementwise cannot be tuned on 3 GPUs: torch sees 2 of one kind here"):
        places(3)


@pytest.mark.parametrize("verb", ["compare", "tune"])
def test_the_help_says_how_much_evidence_is_taken(run, verb):
    help_text = " ".join(run(verb, "--help").out.split())
    assert f"(default: {pair.BLOCKS['cuda']}, on the CPU {pair.BLOCKS['cpu']})" in help_text


@pytest.mark.slow
def test_a_dry_run_shows_space_rejections_and_cost_and_searches_nothing(steady, tune):
    (steady / OP / "lab.py").open("a").write(ESTIMATES)
    plan = tune("--dry-run", "--json").json
    assert plan["points"] == 5
    (shape_class,) = plan["classes"]
    assert shape_class["kept"] == 3
    assert shape_class["rejected"]["the op"]["count"] == 2
    assert shape_class["rejected"]["the op"]["examples"][0] == {
        "values": {"work": 20, "mode": 0},
        "text": "20 times the work",
    }
    assert plan["cost"]["trials"] == 3
    assert plan["cost"]["compiling_s"] > 0
    assert plan["cost"]["measuring_s"] > 0
    result = tune("--dry-run")
    assert result.code == 0
    assert "2 rejected by the op, such as 20 times the work" in result.out
    assert not (steady / "build/tune/elementwise-cpu/trials.log").exists()


@pytest.mark.slow
def test_each_class_of_shapes_is_tuned_by_itself_and_has_values_of_its_own(steady, tune):
    """Large ones do the work as often as the default, whatever is chosen: there is nothing to win for them."""
    edit(
        steady / OP / "cpu.cpp",
        ("#include <type_traits>\n", "#include <string_view>\n#include <type_traits>\n"),
        ("i < Tuned::work;", "i < (out.numel() > 100000 ? 16 : Tuned::work);"),
        ("template <typename T>\nvoid multiply_add(", f"{CLASSES}template <typename T>\nvoid multiply_add("),
        ("tuned::elementwise::visit<Defaults>([&](auto values) {", "const auto launch = [&](auto values) {"),
        ("    });\n  });", f"    }};\n{VISIT}  }});"),
    )
    (steady / OP / "lab.py").open("a").write(
        'CPU_CASES["large"] = {"rows": 200, "columns": 1024}\n\n\n'
        'def _class(rows, columns):\n    return "large" if rows * columns > 100000 else "small"\n\n\n'
        'SHAPE_CLASSES = {"cpu": _class}\n'
    )
    edit(steady / OP / "lab.py", ("(1, 2, 16, 20, 24)", "(1, 16)"))
    record = tune("--seeds", 2, "--trials", 0, "--blocks", 14, "--best", 1, "--json").json
    assert [part["shapes"] for part in record["searches"]] == ["small", "large"]
    assert all({case.split(" ")[0] for case in trial["ratios"]} == {"small"} for trial in trials(record))
    assert record["written"] is not None
    (entry,) = json.loads((steady / OP / "tuned.json").read_text()).values()
    assert entry["shapes"]["small"]["work"] < 16
    assert "values" not in entry
    build(steady, USE_CUDA="0").check_returncode()
    header = (steady / "build/release/generated/tuned/cpu/elementwise.h").read_text()
    assert 'if constexpr (Defaults::shapes == "small") return f(Values' in header


# ---- Workers that die, join and share -------------------------------------------------------------------------


def start(*arguments: object) -> subprocess.Popen:
    return subprocess.Popen(
        command(*arguments), env=variables(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def lines(journal) -> int:
    return journal.read_text().count('"ratio"') if journal.exists() else 0


def wait_for(holds, event: str, process: subprocess.Popen | None = None) -> None:
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert process is None or process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end, event
        time.sleep(0.1)


@pytest.mark.slow
def test_after_kill_9_resume_goes_on_where_it_was_and_the_default_stands_where_nothing_is_faster(steady, tune):
    edit(steady / OP / "lab.py", ("(1, 2, 16, 20, 24)", "(16, 20, 24)"))
    options = ("--seeds", 3, "--trials", 0, "--blocks", 10, "--best", 1, "--limit", LIMIT_S)
    journal = steady / "build/tune/elementwise-cpu/trials.log"
    process = start(*options)
    wait_for(lambda: lines(journal) >= 1, "a trial", process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    finished = lines(journal)
    # As if it had been killed in the middle of a line, too.
    with journal.open("a") as file:
        file.write('{"op_code": 4, "worker_id": "half a li')
    result = tune(*options, "--resume", "--out", "record.json")
    record = json.loads((steady / "record.json").read_text())
    measured_trials = trials(record)
    assert len(measured_trials) == 3
    assert len({json.dumps(trial["values"]) for trial in measured_trials}) == 3
    assert record["searches"][0]["stats"]["here"] == 3 - finished
    assert result.code == 2
    assert "The default of elementwise stands; nothing was written." in result.out
    assert not (steady / OP / "tuned.json").exists()


def test_a_tuning_that_had_not_begun_is_not_resumed(tmp_path):
    request, journal = TuningRequest(tmp_path, "pkg", "op", tmp_path), tmp_path / "trials.log"
    journal.touch()  # Of a former tuning.
    assert not is_begun(tmp_path)
    with only_tuning(request, tmp_path):
        storage_of(request, tmp_path)
        assert not is_begun(tmp_path)
        journal.touch()
        assert is_begun(tmp_path)


def test_ctrl_c_keeps_what_was_done_and_leaves_no_process(steady, tune):
    options = ("--seeds", 5, "--trials", 0, "--blocks", 10, "--best", 1)
    journal = steady / "build/tune/elementwise-cpu/trials.log"
    process = start(*options)
    wait_for(lambda: lines(journal) >= 1, "a trial", process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert "Interrupted" in errors
    assert "go on with --resume" in errors
    assert "Traceback" not in errors
    assert lines(journal) >= 1
    # A killed process disappears when the system gets to it.
    wait_for(lambda: not [pid for pid in os.listdir("/proc") if pid.isdecimal() and _works_in(pid, steady)], "the end")


def _works_in(pid: str, folder) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/cwd") == str(folder) and int(pid) != os.getpid()
    except OSError:
        return False


@pytest.mark.slow
def test_two_workers_share_a_journal_and_one_of_them_confirms(steady):
    # Nothing is faster than the default: who confirms looks for what is, and is through.
    edit(steady / OP / "lab.py", ("(1, 2, 16, 20, 24)", "(16, 20, 24)"))
    options = ("--seeds", 3, "--trials", 0, "--blocks", 10, "--best", 1, "--storage", steady / "shared.log", "--json")
    workers = [start(*options) for _ in range(2)]
    records = [json.loads(worker.communicate(timeout=LIMIT_S)[0].splitlines()[-1]) for worker in workers]
    assert sum(record["searches"][0]["stats"]["here"] for record in records) == 3
    assert {len(trials(record)) for record in records} == {3}
    assert sum("confirmed" in record["searches"][0] for record in records) == 1


# ---- Requests that are refused ---------------------------------------------------------------------------------


@pytest.fixture
def tune_here(run, monkeypatch):
    """`kernelgen tune elementwise` in this process, without the lines that tell that a stage takes long."""
    monkeypatch.setattr(display, "SECONDS_A_LINE", math.inf)
    return lambda *arguments: run("tune", "elementwise", "--device", "cpu", *arguments)


def refused(result, sentence: str) -> None:
    assert result.code == 3, result.out + result.err
    assert sentence in result.err
    assert len([line for line in result.err.splitlines() if line.startswith("kernelgen:")]) == 1


def test_an_op_without_tunables(steady, tune_here):
    (steady / OP / "lab.py").open("a").write("TUNABLES = {}\n")
    refused(tune_here(), "elementwise has no tunables; list them in its lab.py")


def test_a_space_that_the_gates_leave_empty(steady, tune_here):
    (steady / OP / "lab.py").open("a").write("ESTIMATES = {'cpu': lambda *_, **__: 'never'}\n")
    refused(tune_here(), "The gates leave none of the 5 points of elementwise (the op: 5, such as never)")


def test_sources_that_do_not_read_the_values(steady, tune_here):
    edit(
        steady / OP / "cpu.cpp",
        ('#include "tuned/cpu/elementwise.h"\n', ""),
        ("tuned::elementwise::visit<Defaults>([&](auto values) {", "[&](auto values) {"),
        ("T(12345.0f);\n    });", "T(12345.0f);\n    }(Defaults());"),
    )
    refused(tune_here(), 'No source of elementwise for cpu has #include "tuned/cpu/elementwise.h"')


def test_sources_that_do_not_compile(steady, tune_here):
    (steady / OP / "cpu.cpp").open("a").write("this is no C++\n")
    result = tune_here()
    assert result.code == 3
    assert "elementwise does not compile as it is" in result.err


def test_two_tunings_of_one_op_at_once(steady, tune_here):
    process = start("--seeds", 5, "--trials", 0)
    wait_for(lambda: (steady / "build/tune/elementwise-cpu/tuning").exists(), "the lock", process)
    try:
        refused(tune_here(), f"elementwise is being tuned already (pid {process.pid})")
    finally:
        process.kill()
        process.communicate()


def test_no_gpu_and_an_estimate_that_raises(steady, tune_here, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    edit(steady / OP / "lab.py", ('"mode": (0,)}', '"mode": (0,)}, "cuda": {"threads": (128, 256)}'))
    sentence = """elementwise/lab.py: the estimate of {"threads": 128} raises KeyError: 'vector_bytes'"""
    refused(tune_here("--device", "cuda"), sentence)
    (steady / OP / "lab.py").open("a").write("ESTIMATES = {}\n")
    refused(tune_here("--device", "cuda"), "elementwise cannot be tuned for CUDA: torch sees no GPU here")


def test_nothing_to_resume(steady, tune_here):
    refused(tune_here("--resume"), "There is no tuning of elementwise to resume")


def test_a_storage_of_something_else(steady, tune_here):
    few = ("--seeds", 1, "--trials", 0, "--blocks", 10, "--best", 1, "--storage", "shared.log")
    edit(steady / OP / "lab.py", ("(1, 2, 16, 20, 24)", "(20, 24)"))  # Slower than the default: nothing to confirm.
    assert tune_here(*few).code == 2
    edit(steady / OP / "lab.py", ("(20, 24)", "(1, 2)"))
    refused(tune_here(*few), "in shared.log are of another space of tunables")
    edit(steady / OP / "lab.py", ("(1, 2)", "(20, 24)"))
    edit(steady / OP / "tuning.h", ("// What `kernelgen", "// Of another revision. What `kernelgen"))
    refused(tune_here(*few), "in shared.log are of other sources")
    (steady / "notes.txt").write_text("not a journal\n")
    refused(tune_here(*few[:-1], "notes.txt"), "notes.txt is no journal of trials")


@pytest.mark.parametrize(
    ("storage", "sentence"),
    [
        ("postgresql://me:secret@localhost:1/none", "postgresql://localhost:1/none cannot be reached"),
        ("/proc/none/trials.log", "The storage /proc/none/trials.log cannot be reached"),
        ("grpc://localhost:1", "grpc://localhost:1 cannot be reached"),
    ],
)
def test_a_storage_that_cannot_be_reached(steady, tune_here, storage, sentence):
    pytest.importorskip("psycopg2" if "postgres" in storage else "grpc" if "grpc" in storage else "optuna")
    result = tune_here("--storage", storage)
    refused(result, sentence)
    assert "secret" not in result.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--seeds", 0), "--seeds: 0 is no whole number from 1 to"),
        (("--blocks", 5), "--blocks: 5 is no whole number from 10 to"),
        (("--out", "none/record.json"), "there is no folder none to write record.json to"),
        (("--chip", "9.0"), "--chip goes with --dry-run"),
        (("--resume", "--storage", "x.log"), "a --storage is joined anyway"),
        (("--dtype", "int8"), "does not take int8"),
        (("--cases", "huge"), "has no case 'huge' on cpu"),
    ],
)
def test_options_that_will_not_do(steady, tune_here, arguments, sentence):
    refused(tune_here(*arguments), sentence)


def test_a_log_tells_each_class_apart_and_that_a_long_stage_goes_on(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    with display.shown(quiet=False) as reporter:
        for shapes in ("large", "small"):
            for here in range(0, 25, 5):
                reporter.stats(
                    shapes, SearchStats(total=40, jobs=1, slots=1, done=here, here=here, seconds=60.0, limit_s=90.0)
                )
        for share in (0.0, 0.3, 0.6):
            now[0] += 6
            reporter.stage("confirming case", share)
    trials = "trials, none measured yet"
    assert capsys.readouterr().err.splitlines() == [
        f"kernelgen: large: 10 of 40 {trials}, 10 a minute, 30 s left",
        f"kernelgen: large: 20 of 40 {trials}, 20 a minute, 30 s left",
        f"kernelgen: small: 10 of 40 {trials}, 10 a minute, 30 s left",
        f"kernelgen: small: 20 of 40 {trials}, 20 a minute, 30 s left",
        "kernelgen: confirming case: 30%",
    ]
