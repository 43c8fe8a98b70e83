"""`kernelgen fuzz`: it finds every fault, complains of nothing else, and its commands bring a failure back."""

import os
import re
import shlex
import sys
from pathlib import Path

import pytest
import torch

from kernelgen.errors import LabError
from kernelgen.lab.fuzz import OpReport
from kernelgen.worker import fuzz, fuzzed_case, inputs, tensor_comparison
from kernelgen.worker.cases import all_cases, complete, core, huge
from kernelgen.worker.inputs import FAR_ROWS
from kernelgen.worker.mismatch import Fault, TooLargeError
from kernelgen.worker.op import Op
from kernelgen.worker.shrinking import shrink
from tests.stamped.conftest import stamp

from . import same_process
from .mutants import CORRECT, project
from .mutants.cpu import CPU
from .mutants.cuda import CUDA
from .mutants.detect import first_failures
from .mutants.python import FATAL, PYTHON


def an_op(function=None, reference=None, **changes) -> Op:
    """A sum of two tensors, in Python."""

    def inputs(make, rows, columns):
        return make((rows, columns)), make((rows, columns))

    facts = {
        "name": "add",
        "function": function or torch.add,
        "reference": reference or torch.add,
        "dtypes": (torch.float32, torch.float16),
        "cpu_dtypes": (torch.float32, torch.float16),
        "bench_dtypes": (),
        "domain": {"rows": (0, 100), "columns": (0, 300)},
        "cases": {},
        "cpu_cases": {},
        "inputs": inputs,
    }
    return Op(**facts | changes)


def fault_of(function, **case) -> str | None:
    op = an_op(function)
    case = complete(op, {"rows": 5, "columns": 7, **case})
    fault = same_process.run_case(op, case, 3)
    return fault and f"{fault.check}: {fault.text}"


# ---- Shrinking ------------------------------------------------------------------------------------------------


def test_what_fails_is_shrunk():
    tried = []

    def fails(case):
        tried.append(case)
        return case["columns"] >= 17 and case["layout"] == "strided"

    start = {"rows": 90, "columns": 250, "dtype": "float16", "layout": "strided", "values": "nan", "alias": "same"}
    plain = {"values": "normal", "alias": "none"}
    assert shrink(an_op(), start, fails) == start | plain | {"rows": 0, "columns": 17}
    assert len(tried) < 300


def test_shrinking_ends_in_time():
    case = complete(an_op(), {"rows": 90, "columns": 250})
    assert shrink(an_op(), case, lambda case: True, limit_s=0) == case


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ({"rows": 3}, "add takes the sizes rows, columns, not rows"),
        ({"rows": 3, "columns": -1}, "whole numbers"),
        ({"rows": 3, "columns": 1, "layout": "odd"}, "layout is one of contiguous"),
        ({"rows": 3, "columns": 1, "dtype": "float"}, "float"),
        ({"rows": 3, "columns": 1, "dtype": "relu"}, "dtype is one of torch's"),
    ],
)
def test_a_case_that_is_none(case, sentence):
    if case.get("dtype") == "float":
        assert complete(an_op(), case)["dtype"] == "float"
        return
    with pytest.raises(LabError, match=sentence):
        complete(an_op(), case)


# ---- The oracle -----------------------------------------------------------------------------------------------


def test_a_right_op_passes():
    for case in all_cases(an_op(), ["float32", "float16"], 5, 40):
        assert same_process.run_case(an_op(), case, 5) is None


_counter = iter(range(10**9))
_cache: dict[tuple, torch.Tensor] = {}


def cached(a, b):
    return a + b if torch.is_grad_enabled() else _cache.setdefault((a.data_ptr(), b.data_ptr(), a.shape), a + b)


def overwriting(a, b):
    with torch.no_grad():
        a[0, 0] = 0
    return a + b


def raising(a, b):
    raise ValueError("no such shape\nand more")


@pytest.mark.parametrize(
    ("function", "case", "sentence"),
    [
        (lambda a, b: a - b, {}, "output 0: output 0"),
        (lambda a, b: a.detach() + b, {}, "gradient 0: the reference has gradient 0, and it has none"),
        (lambda a, b: (a + b).detach(), {}, "gradients: no output takes a gradient"),
        (lambda a, b: a + b + (b - b.detach()), {}, "gradient 1: gradient 1"),
        (lambda a, b: (a + b).double(), {}, "output 0: output 0 is (5, 7) float64, the reference's is (5, 7) float32"),
        (lambda a, b: (a + b)[:1], {}, "op: it raised RuntimeError: Mismatch in shape"),
        (lambda a, b: (a + b, a), {}, "outputs: it returns 2 tensors, its reference 1"),
        (lambda a, b: (a + b) * (1 + next(_counter) % 2 * 1.2e-7), {}, "inference: without gradients"),
        (lambda a, b: (a + b).nan_to_num(0.0), {"values": "nan", "rows": 50}, "output 0: output 0"),
        (lambda a, b: a + b if a is not b else a, {"alias": "same"}, "output 0: output 0"),
        (lambda a, b: a.as_strided(a.shape, (7, 1)) + b, {"layout": "strided"}, "output 0: output 0"),
        (cached, {}, "inference: without gradients it gave another result; it is what other values at the same"),
        (overwriting, {}, "inputs: it wrote to its inputs"),
        (raising, {}, "op: it raised ValueError: no such shape"),
    ],
)
def test_faults(function, case, sentence):
    fault = fault_of(function, **case)
    assert fault
    assert fault.startswith(sentence)


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (lambda a, b: a[:3], None),
        (lambda a, b: a[:3, :1].expand(-1, a.shape[1]), "strides: .* elements share memory|float64 reference says"),
    ],
)
@pytest.mark.parametrize("layout", ["contiguous", "expanded"])
def test_an_op_that_returns_a_view_as_its_reference_does(function, fault, layout):
    op = an_op(function, lambda a, b: a[:3], gradient=False)
    said = same_process.run_case(op, complete(op, {"rows": 5, "columns": 7, "layout": layout}), 3)
    assert re.search(fault, f"{said.check}: {said.text}") if fault else said is None, said


def test_a_gradient_that_is_missing_in_a_later_draw():
    class Sum(torch.autograd.Function):
        calls = 0

        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, grad):
            Sum.calls += 1
            return grad.clone(), None if Sum.calls % 3 == 0 else grad.clone()

    fault = fault_of(Sum.apply)
    assert fault
    assert fault.startswith("gradient 1: the reference has gradient 1, and it has none")


def test_the_largest_error_is_given_in_units_of_what_is_allowed():
    op = an_op(lambda a, b: (a + b) * (1 + 2**-24))
    caller = same_process.caller_of(op.function)
    verdict = fuzz.examine(op, complete(op, {"rows": 20, "columns": 7}), "cpu", 0, caller)
    assert verdict.fault is None
    assert set(verdict.errors) == {"output 0", "gradient 0", "gradient 1"}
    assert 0 < verdict.errors["output 0"] <= 1
    report = OpReport("add")
    for rows, error in ((1, 0.25), (2, 0.5), (3, 0.125)):
        case = f'{{"rows": {rows}}}'
        report.add({"event": "passed", "case": case, "errors": {"output 0": error}})
    assert report.errors == {"output 0": {"error": 0.5, "case": {"rows": 2}}}


def test_up_to_five_failures_are_shown_and_the_others_counted():
    from kernelgen.cli.fuzz import _text

    def text_of(failed):
        failures = [
            {"check": "output 0", "text": "it is off", "case": {}, "shrunk": i == 1, "command": f"case {i}"}
            for i in range(failed)
        ]
        facts = {"op": "add", "cases": 60, "passed": 60 - failed, "too_large": 0, "failures": failures, "errors": {}}
        return _text(
            {"notes": [], "ops": [{**facts, "skipped": None, "note": None}], "device": "cpu", "seed": 0, "sizes": None}
        )

    assert sum("case" in line for line in text_of(3)[1:]) == 3
    assert sum("    case" in line for line in text_of(7)) == 5
    assert text_of(7)[-1] == "  and 2 more, which --json lists"


def test_a_reference_that_fails_is_named():
    op = an_op(reference=raising)
    fault = same_process.run_case(op, complete(op, {"rows": 1, "columns": 1}), 0)
    assert fault == Fault("reference", "the reference raised ValueError: no such shape")


def test_an_op_without_a_gradient():
    op = an_op(lambda a, b: (a + b).detach(), gradient=False)
    assert same_process.run_case(op, complete(op, {"rows": 3, "columns": 3}), 0) is None


def test_rows_that_lie_far_apart_show_an_index_of_too_few_bits(monkeypatch):
    monkeypatch.setattr(inputs, "_FAR", 2**17)

    def of_16_bits(a, b):
        offsets = torch.arange(len(a)).unsqueeze(1) * a.stride(0) % 2**16 + torch.arange(a.shape[1]) * a.stride(1)
        return a.as_strided((2**16 + a.shape[1],), (1,)).take(offsets) + b if a.stride(0) > 2**10 else a + b

    sizes = {"rows": 33, "columns": 33, "layout": FAR_ROWS}
    assert same_process.run_case(an_op(), complete(an_op(), sizes), 0) is None
    assert "float64 reference says" in fault_of(of_16_bits, **sizes)
    assert FAR_ROWS not in {case["layout"] for case in core(an_op(), ["float32"])}
    ragged, whole, far = huge(an_op(huge={"rows": 2**19 + 3, "columns": 4097}), None)
    assert (ragged["columns"], whole["columns"], whole["rows"]) == (4097, 4112, 2**19 + 16)
    assert far["layout"] == FAR_ROWS
    # float16 overflows where bfloat16, as small, does not.
    halves = an_op(huge={"rows": 2, "columns": 2}, dtypes=(torch.float32, torch.float16, torch.bfloat16))
    assert {case["dtype"] for case in huge(halves, None)} == {"bfloat16"}


def test_huge_inputs_are_compared_without_an_oracle(monkeypatch):
    monkeypatch.setattr(fuzzed_case, "HUGE", 30)
    monkeypatch.setattr(tensor_comparison, "_CHUNK", 10)
    assert fault_of(torch.add) is None
    assert fault_of(lambda a, b: torch.cat([(a + b)[:4], a[4:]])).startswith("output 0: output 0 is wrong by far")


def test_nothing_written_yet_is_no_fault():
    def unwritten(a, b):
        raise NotImplementedError("add: reference not written yet: write it in x")

    with pytest.raises(LabError, match="not written yet"):
        same_process.run_case(an_op(reference=unwritten), complete(an_op(), {"rows": 1, "columns": 1}), 0)
    with pytest.raises(LabError, match="not written yet"):
        same_process.run_case(an_op(unwritten), complete(an_op(), {"rows": 1, "columns": 1}), 0)


class OutOfMemoryError(Exception):
    """As an op may call one of its own, too."""


def test_an_op_has_no_memory_only_where_that_can_be_true(monkeypatch):
    def excused(a, b):
        raise OutOfMemoryError("tried to allocate 512 GiB")

    def verdict(free, total):
        monkeypatch.setattr(fuzz, "_memory", lambda device: (free, total))
        return same_process.run_case(an_op(excused), complete(an_op(), {"rows": 10, "columns": 100}), 0)

    assert verdict(2**30, 2**30).check == "memory"
    with pytest.raises(TooLargeError):
        verdict(2**10, 2**10)
    with pytest.raises(LabError, match=r"1\.0 of 1\.0 GiB of memory are taken"):
        verdict(0, 2**30)


def test_an_op_that_passed_a_case_cannot_say_that_it_is_not_written():
    def at_times(a, b):
        if len(a) > 50:
            raise NotImplementedError("add: kernel not written yet")
        return a + b

    events = events_of(an_op(at_times), [5, 60])
    assert [event["event"] for event in events] == ["passed", "failure"]
    assert "it passed another case" in events[1]["text"]


def events_of(op, rows: list[int]) -> list[dict]:
    """What is sent of cases with so many rows."""
    events = []

    class Emit:
        def start(self, op, case):
            return True

        def __call__(self, event, **facts):
            if event != "start":
                events.append({"event": event, **facts})

    cases = [complete(op, {"rows": count, "columns": 3}) for count in rows]
    caller = same_process.caller_of(op.function)
    fuzz._Run(op, "cpu", caller, {"seed": 0, "fail_fast": True}, Emit()).all(iter(cases))
    return events


def test_a_case_that_does_not_fit_the_memory_is_said_to_have_not_run(monkeypatch):
    examine = fuzz.examine

    def limited(op, case, *rest):
        if case["rows"] > 50:
            raise TooLargeError
        return examine(op, case, *rest)

    monkeypatch.setattr(fuzz, "examine", limited)
    events = events_of(an_op(), [5, 60, 70])
    assert [event["event"] for event in events] == ["passed", "too large", "too large"]

    whole, none = OpReport("add"), OpReport("add")
    for event in [*events, {"event": "close"}]:
        whole.add(event)
    for event in [*events[1:], {"event": "close"}]:
        none.add(event)
    assert (whole.cases, whole.too_large, whole.problem) == (1, 2, None)
    assert none.problem == "every case was too large for this GPU's memory"


# ---- Mutants --------------------------------------------------------------------------------------------------


# A fault of an index, of a number, and of a gradient; and recipes that compile fast.
SAMPLE = ("off_by_one_tail", "denormals_flushed", "wrong_gradient_term")
SAMPLED_RECIPES = ("right_elementwise", "right_rms_norm")


@pytest.fixture(scope="module")
def sample() -> Path:
    mutants = [mutant for mutant in (*CPU, *PYTHON) if mutant.name in SAMPLE]
    return project("sample", [*mutants, *FATAL], SAMPLED_RECIPES)


@pytest.fixture(scope="module")
def mutants() -> Path:
    return project("cpu", [*CPU, *PYTHON])


@pytest.mark.slow
def test_a_mutant_of_each_kind_is_caught_and_there_is_no_false_alarm(sample):
    failures = first_failures(sample, list(SAMPLE))
    assert [name for name, failure in failures.items() if not failure] == []
    assert first_failures(sample, list(SAMPLED_RECIPES), seed=0, count=40) == dict.fromkeys(SAMPLED_RECIPES, "")


@pytest.mark.slow
@pytest.mark.corpus
def test_every_mutant_is_caught(mutants):
    assert len(CPU) + len(PYTHON) >= 25
    failures = first_failures(mutants, [mutant.name for mutant in (*CPU, *PYTHON)])
    assert [name for name, failure in failures.items() if not failure] == []


@pytest.mark.slow
@pytest.mark.corpus
def test_there_is_no_false_alarm(mutants):
    assert first_failures(mutants, list(CORRECT), seed=0, count=40) == dict.fromkeys(CORRECT, "")


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("KERNELGEN_LONG_TESTS"), reason="takes an hour: set KERNELGEN_LONG_TESTS")
def test_there_is_no_false_alarm_in_200_runs(mutants):
    for seed in range(1000, 1100):
        assert first_failures(mutants, list(CORRECT), seed=seed, count=40) == dict.fromkeys(CORRECT, ""), seed


def test_the_mutants_of_the_gpu_still_fit_the_recipes(tmp_path):
    """They are compiled and run where there is a GPU, by tests/worker/gpu_mutants.py."""
    names = [mutant.name for mutant in (*CUDA, *PYTHON)]
    assert len(names) == len(set(names)) >= 25
    recipes = sorted({mutant.recipe for mutant in CUDA})
    stamped = stamp(tmp_path / "stamped", recipes=recipes)
    for mutant in CUDA:
        op = stamped / "src" / "demo_kernels" / "ops" / mutant.recipe
        before = (op / mutant.file).read_text() if (op / mutant.file).exists() else None
        mutant.apply(op)
        if before is None:
            (op / mutant.file).unlink()
        else:
            (op / mutant.file).write_text(before)


# ---- The command ----------------------------------------------------------------------------------------------


@pytest.fixture
def fuzzing(sample, run):
    def call(*arguments: object):
        return run("fuzz", *arguments, "--project", sample, "--python", sys.executable)

    return call


def test_a_failure_is_printed_as_a_command(fuzzing):
    done = fuzzing("off_by_one_tail", "--seed", 3, "--count", 2, "--device", "cpu")
    assert done.code == 1
    assert "1 of 2 cases FAILED" in done.out or "2 of 2 cases FAILED" in done.out
    assert "is wrong; looking for a smaller case, for 8 s at most" in done.err
    command = next(line for line in done.out.splitlines() if line.startswith("    kernelgen fuzz"))
    verb, *rest = shlex.split(command)[1:]
    assert verb == "fuzz"
    again = fuzzing(*rest, "--json")
    assert again.code == 1
    (op,) = again.json["ops"]
    assert op["cases"] == 1
    assert op["failures"][0]["case"]["rows"] * op["failures"][0]["case"]["columns"] <= 4


def test_a_right_op(fuzzing):
    done = fuzzing(*SAMPLED_RECIPES, "--seed", 3, "--count", 3, "--dtype", "float64", "--json")
    assert done.code == 0
    expected = [(name, 3, []) for name in SAMPLED_RECIPES]
    assert [(op["op"], op["cases"], op["failures"]) for op in done.json["ops"]] == expected
    assert done.json["seed"] == 3


def test_a_budget_in_seconds(fuzzing):
    """From the command on: what the worker needs to start is part of it, and one case is always run."""
    done = fuzzing("right_elementwise", "--seconds", 0.1, "--json", "--dtype", "float32")
    assert done.code == 0
    assert 1 <= done.json["ops"][0]["cases"] < 60


def test_a_crash_is_a_failure(fuzzing):
    done = fuzzing("crashes_when_empty", "--case", '{"rows": 0, "columns": 5}', "--seed", 1)
    assert done.code == 1
    assert "it crashed with SIGSEGV" in done.out
    assert "kernelgen fuzz crashes_when_empty --seed 1 --case" in done.out


def test_a_hang_is_a_failure(fuzzing):
    done = fuzzing("hangs_on_one_element", "--case", '{"rows": 1, "columns": 1}', "--limit", 15)
    assert done.code == 1
    assert "it hung" in done.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["right_elementwize"], "has no op 'right_elementwize'. Did you mean right_elementwise?"),
        (["right_elementwise", "--case", "{"], "--case is not JSON"),
        (["right_elementwise", "--case", "[]"], "--case is a JSON object"),
        (["--case", "{}"], "--case goes with one op"),
        (["right_elementwise", "--count", "0"], "--count: 0 is no whole number from 1 to"),
        (["right_elementwise", "--seed", str(2**64)], "is no whole number from 0 to 18446744073709551615"),
        (["right_elementwise", "--limit", "nan"], "--limit: nan is no number from 0.001 to 1000000"),
        (["right_elementwise", "--seed", "-1"], "is no whole number from 0 to 18446744073709551615"),
    ],
)
def test_what_cannot_be_asked(fuzzing, arguments, sentence):
    done = fuzzing(*arguments)
    assert done.code == 2
    assert sentence in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--case", '{"rows": 1}'], "takes the sizes rows, columns, dims, not rows"),
        (["--dtype", "int8"], "is not fuzzed in int8 on cpu; its lab.py says float32"),
        (["--device", "cuda"], "torch sees no GPU here"),
    ],
)
def test_nothing_could_run(fuzzing, arguments, sentence):
    done = fuzzing("right_elementwise", *arguments)
    assert done.code == 2
    assert sentence in done.out + done.err


def test_an_op_without_a_lab_file(project, run):
    (project / "src" / "my_kernels" / "ops" / "elementwise" / "lab.py").unlink()
    done = run("fuzz", "elementwise")
    assert done.code == 2
    assert "elementwise has no src/my_kernels/ops/elementwise/lab.py" in done.err
    assert run("fuzz").code == 2
    # Nor does it take an op for a query whose schemas only the build can judge.
    init = project / "src" / "my_kernels" / "ops" / "elementwise" / "__init__.py"
    for schemas in ("{}", "dict()", '{"tile": "("}'):
        init.write_text(f"SCHEMAS = {schemas}\n")
        assert "elementwise has no src/my_kernels/ops/elementwise/lab.py" in run("fuzz", "elementwise").err


def test_an_op_without_tensors(project, run):
    folder = project / "src" / "my_kernels" / "ops" / "elementwise"
    (folder / "lab.py").unlink()
    (folder / "__init__.py").write_text('SCHEMAS = {"tile": "(int rows, *, bool wide) -> int"}\n')
    for verb in ("fuzz", "bench"):
        done = run(verb, "elementwise")
        assert done.code == 2
        assert "elementwise takes and returns no tensor, so there is nothing to fuzz or to measure" in done.err
        assert "`pytest src/my_kernels/ops/elementwise`" in done.err


def test_no_library_is_built_and_none_may_be(project, run):
    done = run("fuzz", "elementwise", "--no-build", "--python", sys.executable)
    assert done.code == 2
    assert "nothing is built yet, and --no-build leaves it so; build it with `kernelgen build`" in done.err


def test_no_project(tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("fuzz", "elementwise")
    assert done.code == 2
    assert "is not inside a kernelgen project" in done.err
