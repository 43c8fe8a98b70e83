"""Studies: how trials are handed out, recorded and taken over; on a journal, on PostgreSQL and by a gRPC proxy."""

import errno
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("optuna")

from optuna.trial import TrialState

from kernelgen.errors import KernelgenError
from kernelgen.tune import storages, workers
from kernelgen.tune.space import Space, key
from kernelgen.tune.study import Study

SPACE = Space({"a": tuple(range(8)), "b": (1, 2, 4, 8), "c": (False, True)})
ABOUT = {"op": "pkg.op", "device": "cpu", "machine": "A CPU", "shapes": None, "sources": "1"}


def joined(storage: object, kept=None, seeds: int = 10, total: int = 30, space: Space = SPACE, **about) -> Study:
    kept = range(space.size) if kept is None else kept
    return Study(str(storage), {**ABOUT, **about}, space, list(kept), seeds, total, seed=1)


def time_of(values: dict) -> float:
    """The fastest is a 5, b 4, c True."""
    return 1 + abs(values["a"] - 5) / 8 + abs(values["b"] - 4) / 8 + (0 if values["c"] else 0.5)


def work(study: Study, limit: int = 1000) -> list[dict]:
    points = []
    while len(points) < limit and (ask := study.ask()):
        study.tell(ask.number, time_of(ask.values), {"ratio": time_of(ask.values), "state": "measured"})
        points.append(ask.values)
    return points


def test_every_trial_is_another_point_and_the_seeds_are_spread(tmp_path):
    study = joined(tmp_path / "trials.log", seeds=8)
    points = work(study)
    assert len(points) == len({key(values) for values in points}) == 30
    assert [values["a"] for values in sorted(points[:8], key=lambda values: values["a"])] == list(range(8))
    assert study.ask() is None
    assert [trial["values"] for trial in study.finished()] == points


def test_a_search_of_a_part_of_the_space_comes_near_the_optimum(tmp_path):
    points = work(joined(tmp_path / "trials.log", seeds=8, total=32))
    assert min(map(time_of, points)) <= 1.125


def test_only_points_that_pass_the_gates_are_tried(tmp_path):
    points = list(SPACE.points())
    kept = [number for number, values in enumerate(points) if values["b"] != 4]
    tried = work(joined(tmp_path / "trials.log", kept, total=40))
    assert len(tried) == 40
    assert all(values["b"] != 4 for values in tried)


def test_a_search_ends_when_every_point_was_tried(tmp_path):
    assert len(work(joined(tmp_path / "trials.log", range(7)))) == 7


def test_a_failed_trial_has_no_time_and_counts(tmp_path):
    study = joined(tmp_path / "trials.log", total=12)
    while ask := study.ask():
        study.tell(ask.number, None, {"ratio": None, "state": "wrong", "reason": "it is"})
    assert len(study.finished()) == 12
    assert study.importance() == {}


def test_importance_is_largest_for_the_tunable_that_matters(tmp_path):
    study = joined(tmp_path / "trials.log", seeds=40, total=60)
    while ask := study.ask():
        study.tell(ask.number, 1.0 + ask.values["a"], {"ratio": 1.0, "state": "measured"})
    importance = study.importance()
    assert max(importance, key=importance.get) == "a"


def dead_worker(study: Study) -> str:
    """The name of a worker of this machine whose process has ended."""
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        pass
    return f"{socket.gethostname()} {process.pid} 1"


def test_a_dead_workers_trials_in_flight_are_done_by_another(tmp_path):
    first = joined(tmp_path / "trials.log", seeds=6, total=6)
    work(first, 2)
    first.worker = dead_worker(first)
    lost = [first.ask().values, first.ask().values]
    second = joined(tmp_path / "trials.log", seeds=6, total=6)
    points = work(second)
    assert len(points) == 4
    assert all(values in points for values in lost)
    assert len(second.finished()) == 6


def test_a_silent_worker_of_another_machine_counts_as_dead(tmp_path, monkeypatch):
    first = joined(tmp_path / "trials.log", seeds=3, total=3)
    first.worker = "elsewhere 1 1"
    first._study.set_user_attr("alive elsewhere 1 1", time.time())
    first.ask()
    second = joined(tmp_path / "trials.log", seeds=3, total=3)
    assert second.others_in_flight()
    assert len(work(second)) == 2
    monkeypatch.setattr(workers, "SILENCE_S", 0.0)
    assert second.recover() == 1
    assert len(work(second)) == 1


def test_a_trial_that_was_taken_over_is_told_once(tmp_path):
    first = joined(tmp_path / "trials.log", seeds=1, total=1)
    ask = first.ask()
    own_name, first.worker = first.worker, "elsewhere 1 1"
    second = joined(tmp_path / "trials.log", seeds=1, total=1)
    second._study.get_trials()
    first.worker = own_name
    second.worker = "somebody else 2 2"
    second._study.tell(ask.number, state=TrialState.FAIL)
    first.tell(ask.number, 1.0, {"ratio": 1.0, "state": "measured"})
    assert first.finished() == []


@pytest.mark.parametrize("value", [0.5, None])
def test_what_a_dead_worker_had_measured_is_kept(tmp_path, monkeypatch, value):
    first = joined(tmp_path / "trials.log", seeds=3, total=3)
    first.worker = dead_worker(first)
    ask = first.ask()

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Study, "_end", killed)
        with pytest.raises(KeyboardInterrupt):
            first.tell(ask.number, value, {"ratio": value})
    second = joined(tmp_path / "trials.log", seeds=3, total=3)
    (trial,) = second.finished()
    assert (trial["values"], trial["ratio"]) == (ask.values, value)
    assert len(work(second)) == 2
    assert len(second.finished()) == 3


def test_leaving_hands_back_the_trials_in_flight(tmp_path):
    study = joined(tmp_path / "trials.log", seeds=2, total=2)
    ask = study.ask()
    study.leave()
    assert ask.values in work(joined(tmp_path / "trials.log", seeds=2, total=2))


def alive(study, worker: str) -> None:
    """From here on this study is of another machine's worker by that name, which has just given a sign of life."""
    study.worker = worker
    study._study.set_user_attr(f"alive {worker}", time.time())


@pytest.mark.parametrize("name", ["aaa", "zzz"])
def test_the_first_that_asks_confirms_however_late_the_second_comes(tmp_path, name):
    first, second = (joined(tmp_path / "trials.log") for _ in range(2))
    alive(second, f"{name} {os.getpid()} 1")
    assert [first.claim(), second.claim(), first.claim()] == [True, False, True]
    first.confirmed()
    assert not second.claim()
    assert first.finished() == []
    assert not second.others_in_flight()


def test_what_a_dead_worker_was_confirming_falls_to_the_next(tmp_path):
    first, second = (joined(tmp_path / "trials.log") for _ in range(2))
    first.worker = f"{socket.gethostname()} {os.getpid()} 1"  # This process's number, of one that started earlier.
    assert first.claim()
    assert second.claim()


def test_who_comes_after_a_confirmation_may_confirm_anew(tmp_path):
    first = joined(tmp_path / "trials.log")
    alive(first, "elsewhere 1 1")
    assert first.claim()
    first.confirmed()
    assert joined(tmp_path / "trials.log").claim()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"machine": "Another CPU"}, r"are of machine \(A CPU, here Another CPU\)"),
        ({"sources": "2"}, "are of other sources"),
        ({"space": Space({"a": (1, 2)})}, "are of another space of tunables"),
        ({"op": "pkg.other"}, r"holds trials of pkg.op · cpu, not of pkg.other · cpu"),
        ({"device": "cuda"}, r"holds trials of pkg.op · cpu, not of pkg.op · cuda"),
    ],
)
def test_a_journal_of_something_else_is_refused(tmp_path, changes, sentence):
    work(joined(tmp_path / "trials.log"), 1)
    with pytest.raises(KernelgenError, match=sentence):
        joined(tmp_path / "trials.log", **changes)


def test_classes_of_shapes_share_a_journal(tmp_path):
    assert len(work(joined(tmp_path / "trials.log", total=3, seeds=3))) == 3
    assert len(work(joined(tmp_path / "trials.log", total=3, seeds=3, shapes="short rows"))) == 3


def test_a_full_disk_is_said_in_a_sentence_and_costs_no_trial(tmp_path, monkeypatch):
    study = joined(tmp_path / "trials.log", seeds=3, total=3)
    work(study, 1)
    ask = study.ask()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(storages.JournalFileBackend, "append_logs", full)
        with pytest.raises(KernelgenError, match=r"The disk is full at .* go on with --resume"):
            study.tell(ask.number, 1.0, {})
    assert len(joined(tmp_path / "trials.log", seeds=3, total=3).finished()) == 1


# ---- Other storages -------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def postgres_program(name: str) -> str | None:
    places = [os.environ.get("PATH", ""), *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))]
    return shutil.which(name, path=os.pathsep.join(reversed(places)))


@pytest.fixture(scope="module")
def postgres(tmp_path_factory) -> Iterator[str]:
    """A PostgreSQL server of its own, and the URL of its database."""
    pytest.importorskip("psycopg2", reason="psycopg2 is not installed: pip install psycopg2-binary")
    initdb, server = postgres_program("initdb"), postgres_program("postgres")
    if not initdb or not server:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    home, port = tmp_path_factory.mktemp("postgres"), free_port()
    # PostgreSQL refuses to run as root.
    become: list[str] = []
    if os.geteuid() == 0:
        runuser = shutil.which("runuser", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))
        if not runuser or subprocess.run(["id", "postgres"], capture_output=True).returncode:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
        home = Path("/tmp") / home.name.join(["kernelgen-", f"-{port}"])
        home.mkdir()
        shutil.chown(home, "postgres")
        become = [runuser, "-u", "postgres", "--"]
    data = home / "data"
    subprocess.run(
        [*become, initdb, "-D", data, "-U", "me", "--auth=trust", "-N"], check=True, capture_output=True, cwd="/"
    )
    command = [*become, server, "-D", str(data), "-p", str(port), "-k", str(home), "-F", "-h", "127.0.0.1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/") as process:
        try:
            _wait_for_port(port, process)
            yield f"postgresql://me@127.0.0.1:{port}/postgres"
        finally:
            process.terminate()
            process.wait(timeout=600)
            shutil.rmtree(home, ignore_errors=True)


def _wait_for_port(port: int, process: subprocess.Popen) -> None:
    end = time.monotonic() + 600
    while True:
        assert process.poll() is None, f"it ended with exit code {process.returncode}"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            time.sleep(1)
            return
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.2)


def test_workers_share_a_postgresql_database(postgres):
    first = joined(postgres, seeds=5, total=12)
    work(first, 4)
    first.worker = dead_worker(first)
    lost = first.ask().values
    second, third = joined(postgres, seeds=5, total=12), joined(postgres, seeds=5, total=12)
    points = work(second, 3) + work(third)
    assert lost in points
    assert len(second.finished()) == 12
    # A database may hold the studies of many ops.
    assert len(work(joined(postgres, seeds=2, total=2, op="pkg.other"))) == 2
    with pytest.raises(KernelgenError, match="are of other sources"):
        joined(postgres, sources="2")


PROXY = """
import sys, warnings
warnings.simplefilter("ignore")
import optuna
from optuna.storages.journal import JournalFileBackend
storage = optuna.storages.JournalStorage(JournalFileBackend(sys.argv[1]))
optuna.storages.run_grpc_proxy_server(storage, host="127.0.0.1", port=int(sys.argv[2]))
"""


def test_workers_share_a_grpc_proxy(tmp_path):
    pytest.importorskip("grpc", reason="grpcio is not installed: pip install grpcio protobuf")
    port = free_port()
    with subprocess.Popen([sys.executable, "-c", PROXY, tmp_path / "trials.log", str(port)]) as process:
        try:
            _wait_for_port(port, process)
            first = joined(f"grpc://127.0.0.1:{port}", seeds=4, total=8)
            second = joined(f"grpc://127.0.0.1:{port}", seeds=4, total=8)
            points = work(first, 4) + work(second)
            assert len({key(values) for values in points}) == 8
        finally:
            process.kill()


@pytest.mark.parametrize("url", ["postgresql://me:secret@127.0.0.1:1/db", "grpc://127.0.0.1:1"])
def test_a_server_that_is_not_there_is_said_without_the_password(url):
    pytest.importorskip("psycopg2" if "postgres" in url else "grpc")
    with pytest.raises(KernelgenError, match="cannot be reached") as raised:
        joined(url)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("seed", range(3))
def test_a_tenth_of_a_large_space_is_enough_to_find_what_is_best_in_it(tmp_path, seed):
    """With two optima nearly as good, a tunable that does not matter, and gates that leave one point in three."""
    space = Space({"a": tuple(range(8)), "b": tuple(range(8)), "c": (False, True), "d": tuple(range(12))})
    kept = [number for number, values in enumerate(space.points()) if sum(values.values()) % 3 == 0]

    def slow(values: dict) -> float:
        target = (6, 1) if values["c"] else (1, 5)
        away = abs(values["a"] - target[0]) / 8 + abs(values["b"] - target[1]) / 8
        return 1 + away + (0 if values["c"] else 0.1)

    total = len(kept) // 10
    study = Study(str(tmp_path / "trials.log"), ABOUT, space, kept, 20, total, seed)
    times = []
    while ask := study.ask():
        times.append(slow(ask.values))
        study.tell(ask.number, times[-1], {"ratio": times[-1], "state": "measured"})
    assert len(times) == total
    assert min(times) == 1


def test_a_point_in_flight_is_not_handed_out_again_and_points_like_failed_ones_are_avoided(tmp_path):
    space = Space({**SPACE.tunables, "d": tuple(range(8))})
    study = joined(tmp_path / "trials.log", seeds=10, total=40, space=space)
    for _ in range(12):
        ask = study.ask()
        good = not ask.values["c"]
        study.tell(ask.number, time_of(ask.values) if good else None, {"state": "measured" if good else "wrong"})
    points = [study.ask().values for _ in range(10)]
    assert len({key(values) for values in points}) == 10
    assert sum(values["c"] for values in points) <= 3


def test_trials_that_the_gates_now_reject_do_not_end_the_search(tmp_path):
    points = list(SPACE.points())
    work(joined(tmp_path / "trials.log", total=20))
    kept = [number for number, values in enumerate(points) if values["b"] != 4]
    tried = work(joined(tmp_path / "trials.log", kept, total=40))
    assert tried
    assert all(values["b"] != 4 for values in tried)


JOINED = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.tune.test_study import joined, key, work
for number in range(int(sys.argv[3])):
    print(*map(key, work(joined(f"{sys.argv[2]}/{number}.log", seeds=6, total=9))), sep="\\n")
"""


def test_workers_on_one_journal_do_as_many_trials_as_were_asked_for_and_no_more(tmp_path):
    """Also at the start, where all would measure the first points, and at the end, where all ask for the last one."""
    root, searches = str(Path(__file__).parents[3]), 5
    command = [sys.executable, "-c", JOINED, root, str(tmp_path), str(searches)]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    points = [line for worker in workers for line in worker.communicate(timeout=600)[0].splitlines() if line]
    assert len(points) == 9 * searches
