"""The record of what `kernelgen fuzz` proved."""

import errno
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

from kernelgen.lab import fuzz, proven


def test_runs_that_end_at_once_are_all_recorded(tmp_path):
    ops = [f"op{i}" for i in range(16)]
    with ThreadPoolExecutor(len(ops)) as pool:
        list(pool.map(lambda op: proven.record(tmp_path, "package", op, "cpu", 3, 0), ops))
    assert [op for op in ops if not proven.of_op(tmp_path, "package", op)] == []


def test_a_project_that_cannot_be_written_costs_no_result(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EROFS, "Read-only file system", "/p/build")

    monkeypatch.setattr(proven, "record", refuse)
    report = fuzz.FuzzReport({"scale": fuzz.OpReport("scale", passed=3)}, seed=0)
    fuzz._record_proofs(SimpleNamespace(root=tmp_path, package="package"), report, by_default=True)
    assert report.exit_code == 0
    assert report.notes == ["`kernelgen list` will not show it: Read-only file system: /p/build"]
