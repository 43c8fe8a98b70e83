"""The record of all trials: an Optuna study in a storage that outlives its workers and that several may share.

Every trial that a worker asks for carries the worker's name. If that worker is gone, whoever looks next puts the trial
back to be done again; so `kill -9` loses the work on what was in flight, and nothing else.

Sources: Latin hypercube sampling is McKay, Beckman & Conover's (1979), from scipy; the sampler is Bergstra et al.'s
tree-structured Parzen estimator (2011), from Optuna, with constant liar (Ginsbourger et al., 2010) for what is in
flight. Which of the points that the gates let pass looks best to a Gaussian process is asked in `surrogate.py`.
"""

import fcntl
import importlib.util
import json
import os
import socket
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState
from scipy.stats import qmc

from kernelgen.errors import KernelgenError
from kernelgen.tune import candidates, surrogate
from kernelgen.tune.space import Space, Values, key

optuna.logging.set_verbosity(optuna.logging.ERROR)

# A worker of another machine counts as gone when it has not been heard of for so long.
SILENCE_S = 120.0
HEARTBEAT_S = 20.0
# One trial in so many is the sampler's, the others are those from which a Gaussian process expects most, once it has so
# many to go by; of so many points at most.
SHARE, FEWEST, MOST_LEFT = 5, 4, 20_000
# After so many proposals of what is known, chance proposes something that is not.
MOST_REPEATS = 3
ABOUT, CLAIM = "kernelgen", "confirms"


class _Lock:
    """The system's lock on a file beside another, as Optuna wants one for its journal: it goes with its process."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path.with_name(f"{path.name}.lock"), None

    def acquire(self) -> bool:
        self._file = self._path.open("a")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        self._file.close()


@dataclass(frozen=True)
class Ask:
    """One trial to be done."""

    number: int
    values: Values


class Study:
    """What is known of one op's space, and what to try next.

    Args:
        storage: a path of a journal, a database's URL, or grpc://HOST:PORT.
        about: what the trials are of: `op`, `device`, `machine`, `shapes`, `sources` and others, all of which have to
            be the same for all workers.
        kept: the numbers, in `space.points()`, of the points that the gates let pass.
        seeds: how many points the Latin hypercube draws; `total`: how many trials there are to be, seeds included.

    Raises:
        KernelgenError: the storage cannot be reached, or is of something else.
    """

    def __init__(
        self, storage: str, about: Mapping[str, Any], space: Space, kept: list[int], seeds: int, total: int, seed: int
    ) -> None:
        self.space, self.total, self._seeds, self._where = space, total, seeds, storage
        allowed = set(kept)
        self._points = {key(values): values for n, values in enumerate(space.points()) if n in allowed}
        self._random, self.worker = Random(f"{seed} {me()}"), me()
        self._beat, self._since = 0.0, time.time()
        self._distributions = {
            name: optuna.distributions.IntDistribution(0, len(known) - 1) for name, known in space.tunables.items()
        }
        about = json.loads(json.dumps({**about, "space": space.version}))
        with _reaching(storage):
            self._storage = open_storage(storage)
            with self._alone():
                self._study = self._open(about, seeds, seed)
                self._study.sampler = self._sampler(min(10, seeds))
                if self._study.user_attrs.get("seeded") is None:
                    self._seed(seeds, seed)
            self.beat()

    def _sampler(self, startup: int) -> optuna.samplers.BaseSampler:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seed = self._random.randrange(2**31)  # Two workers with one seed would ask for the same.
            return optuna.samplers.TPESampler(
                n_startup_trials=startup, multivariate=True, constant_liar=True, seed=seed
            )

    def _open(self, about: dict[str, Any], seeds: int, seed: int) -> optuna.Study:
        name = " · ".join(filter(None, (about["op"], about["device"], about.get("shapes"))))
        others = optuna.get_all_study_names(self._storage)
        if isinstance(self._storage, optuna.storages.JournalStorage):
            strangers = [other for other in others if other.split(" · ")[:2] != name.split(" · ")[:2]]
            if strangers:
                raise KernelgenError(f"{self._where} holds trials of {strangers[0]}, not of {name}; name another file.")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            study = optuna.create_study(storage=self._storage, study_name=name, load_if_exists=True)
        known = study.user_attrs.get(ABOUT)
        if known is None:
            study.set_user_attr(ABOUT, about)
        elif known != about:
            differs = [part for part in about if known.get(part) != about[part]]
            what = {"space": "another space of tunables", "sources": "other sources"}.get(differs[0], differs[0])
            had = "" if differs[0] in ("space", "sources") else f" ({known.get(differs[0])}, here {about[differs[0]]})"
            raise KernelgenError(
                f"The trials of {name} in {self._where} are of {what}{had}, so these would not go with them; "
                "begin anew, or with another --storage."
            )
        return study

    def _seed(self, seeds: int, seed: int) -> None:
        """Put the first points in: spread over the space as a Latin hypercube, and moved where a gate is in the way."""
        sampler = qmc.LatinHypercube(len(self.space.tunables), seed=seed)
        random, left = Random(seed), dict(self._points)
        for point in sampler.random(seeds):
            indices = {
                name: min(int(share * len(known)), len(known) - 1)
                for share, (name, known) in zip(point, self.space.tunables.items(), strict=True)
            }
            if left:
                values = self.space.values(indices)
                if key(values) not in left:
                    values = self._nearest(indices, left, random)
                del left[key(values)]
                self._study.enqueue_trial(self.space.indices(values), skip_if_exists=True)
        self._study.set_user_attr("seeded", True)

    def _nearest(self, indices: Mapping[str, int], left: Mapping[str, Values], random: Random) -> Values:
        """The point that is the fewest steps away, one of them by chance."""

        def steps(values: Values) -> int:
            there = self.space.indices(values)
            return sum(abs(there[name] - indices[name]) for name in indices)

        nearest = min(map(steps, left.values()))
        return random.choice([values for values in left.values() if steps(values) == nearest])

    # ---- Asking and telling -----------------------------------------------------------------------------------

    def ask(self) -> Ask | None:
        """The next trial to do; None if there are enough, or every point is known."""
        with _reaching(self._where), self._alone():
            repeats = 0
            while True:
                trials = self._study.get_trials(deepcopy=False)
                known = {trial.user_attrs["trial"]["key"]: trial for trial in trials if counts(trial)}
                if len(known) >= min(self.total, len(self._points)):
                    return None
                seeded = len(known) >= self._seeds
                promising = self._promising(known) if repeats == 0 and seeded and len(known) % SHARE else None
                if promising:
                    self._study.enqueue_trial(self.space.indices(promising))
                elif repeats >= MOST_REPEATS:
                    point = self._random.choice([values for name, values in self._points.items() if name not in known])
                    self._study.enqueue_trial(self.space.indices(point))
                trial = self._study.ask(self._distributions)
                values = self.space.values(trial.params)
                if key(values) in self._points and key(values) not in known:
                    self._storage.set_trial_user_attr(
                        trial._trial_id, "trial", {"key": key(values), "values": values, "worker": self.worker}
                    )
                    return Ask(trial.number, values)
                repeats += 1
                self._repeat(trial.number, known.get(key(values)))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Workers on one journal take turns, so that no two take one point, nor one more than there are to be. Those on
        a server may, at the cost of a trial."""
        if "://" in self._where:
            yield
            return
        turn = _Lock(Path(f"{self._where}.turn"))
        turn.acquire()
        try:
            yield
        finally:
            turn.release()

    def _promising(self, known: Mapping[str, FrozenTrial]) -> Values | None:
        """The point from which a Gaussian process expects most; None while too little is known to say."""
        trials = list(known.values())
        measured = [trial.value for trial in trials if trial.state == TrialState.COMPLETE]
        if len(measured) < FEWEST:
            return None
        # What was no good is as if it were the worst, so that its like is avoided.
        ended = [trial for trial in trials if trial.state.is_finished()]
        losses = [trial.value if trial.state == TrialState.COMPLETE else max(measured) for trial in ended]
        left = [values for name, values in self._points.items() if name not in known]
        left = self._random.sample(left, min(len(left), MOST_LEFT))
        tried, pending = (
            self._places([trial.user_attrs["trial"]["values"] for trial in some])
            for some in (ended, [trial for trial in trials if not trial.state.is_finished()])
        )
        return left[surrogate.most_promising(tried, np.array(losses), pending, self._places(left))]

    def _places(self, points: list[Values]) -> NDArray[np.float64]:
        """Where points lie among the values of each tunable, from the first, 0, to the last, 1; (points, tunables)."""
        most = [max(1, len(values) - 1) for values in self.space.tunables.values()]
        indices = [list(self.space.indices(values).values()) for values in points]
        return np.array(indices, dtype=np.float64).reshape(len(points), len(most)) / most

    def _repeat(self, number: int, known: FrozenTrial | None) -> None:
        """Tell the sampler at once what needs no measuring."""
        if known is not None and known.state == TrialState.COMPLETE:
            self._study.tell(number, known.value)
        elif known is not None and not known.state.is_finished():
            self._study.tell(number, state=TrialState.FAIL)
        else:  # A gate forbids it, or it was tried and is wrong.
            self._study.tell(number, state=TrialState.PRUNED)

    def tell(self, number: int, value: float | None, facts: Mapping[str, Any]) -> None:
        """What came of a trial; without a value it was no good, and the sampler keeps away from its like."""
        with _reaching(self._where):
            trial = self._study.get_trials(deepcopy=False)[number]
            if trial.state.is_finished():
                return  # Another worker took this one for dead, and its trial over.
            about = {**trial.user_attrs["trial"], **facts, "at": time.time()}
            self._storage.set_trial_user_attr(trial._trial_id, "trial", about)
            if value is None:
                self._study.tell(number, state=TrialState.PRUNED)
            else:
                self._study.tell(number, value)

    def finished(self) -> list[dict[str, Any]]:
        """What is known of each trial that was done, in the order of their ends."""
        with _reaching(self._where):
            trials = self._study.get_trials(deepcopy=False)
        told = (trial.user_attrs["trial"] for trial in trials if trial.state.is_finished() and counts(trial))
        return sorted(told, key=lambda trial: trial["at"])

    def importance(self) -> dict[str, float]:
        """How much of the differences between the best and the others each tunable explains, by PED-ANOVA (Watanabe et
        al., 2023); empty where there is too little to say."""
        with warnings.catch_warnings(), suppress(ValueError, RuntimeError, ZeroDivisionError):
            warnings.simplefilter("ignore")
            evaluator = optuna.importance.PedAnovaImportanceEvaluator()
            return dict(optuna.importance.get_param_importances(self._study, evaluator=evaluator))
        return {}

    # ---- Workers ----------------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Say that this worker lives, and take over from those that do not."""
        if time.monotonic() - self._beat < HEARTBEAT_S:
            return
        self._beat = time.monotonic()
        with _reaching(self._where):
            self._study.set_user_attr(f"alive {self.worker}", time.time())
            self.recover()

    def recover(self) -> int:
        """Put back what dead workers had in flight; how many trials that was."""
        count, attributes = 0, self._study.user_attrs
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            about = trial.user_attrs.get("trial")
            worker = about["worker"] if about else None
            if worker == self.worker or (worker and is_alive(worker, attributes.get(f"alive {worker}"))):
                continue
            if worker is None and time.time() - trial.datetime_start.timestamp() < HEARTBEAT_S:
                continue  # Somebody has asked for it this very moment.
            with suppress(ValueError, RuntimeError, KeyError):  # Another worker was quicker.
                self._study.tell(trial.number, state=TrialState.FAIL)
                self._study.enqueue_trial(trial.params)
                count += 1
        return count

    def others(self) -> bool:
        """Whether another worker has a trial in flight."""
        with _reaching(self._where):
            return any(
                (about := trial.user_attrs.get("trial")) and about["worker"] != self.worker
                for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            )

    def claim(self) -> bool:
        """Whether it falls to this worker to confirm the best: to the first that asks, and to a later one only if those
        before it are gone and left it undone."""
        with _reaching(self._where):
            # The storage numbers trials one after another, so one without a point says who was first.
            self._study.add_trial(optuna.trial.create_trial(state=TrialState.FAIL, user_attrs={CLAIM: self.worker}))
            attributes = self._study.user_attrs
            claims = (trial.user_attrs.get(CLAIM) for trial in self._study.get_trials(deepcopy=False))
            return self.worker == next(
                name for name in claims if name and (name == self.worker or self._stands(name, attributes))
            )

    def _stands(self, claimant: str, attributes: Mapping[str, Any]) -> bool:
        """Whether another's claim holds: it is at it, or has done it since this worker began."""
        if (done := attributes.get(f"confirmed {claimant}")) is not None:
            return done >= self._since
        return is_alive(claimant, attributes.get(f"alive {claimant}"))

    def confirmed(self) -> None:
        """Say that what this worker claimed is done."""
        with _reaching(self._where):
            self._study.set_user_attr(f"confirmed {self.worker}", time.time())

    def leave(self) -> None:
        """Hand back what this worker has in flight: others do it, or a later one."""
        with suppress(KernelgenError), _reaching(self._where):
            mine, self.worker = self.worker, ""
            for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                if (about := trial.user_attrs.get("trial")) and about["worker"] == mine:
                    self._study.tell(trial.number, state=TrialState.FAIL)
                    self._study.enqueue_trial(trial.params)


def counts(trial: FrozenTrial) -> bool:
    """Whether a trial is one of those asked for: not a repetition, a gate's, or one that was lost with its worker."""
    return "trial" in trial.user_attrs and trial.state != TrialState.FAIL


def me() -> str:
    """This process, told apart from every other one of any machine."""
    return f"{socket.gethostname()} {os.getpid()} {_started(os.getpid())}"


def is_alive(worker: str, heard: float | None) -> bool:
    host, pid, started = worker.rsplit(" ", 2)
    if host == socket.gethostname():
        return _started(int(pid)) == started
    return heard is not None and time.time() - heard < SILENCE_S


def _started(pid: int) -> str:
    """When a process of this machine started, in the system's ticks; "0" if there is none, or it is ending."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "0"
    return "0" if fields[0] in "ZX" else fields[19]


# ---- Storages -------------------------------------------------------------------------------------------------


def open_storage(where: str) -> optuna.storages.BaseStorage:
    """The storage of that name: grpc://HOST:PORT, a database's URL, or a journal's path."""
    if where.startswith("grpc://"):
        host, _, port = where.removeprefix("grpc://").partition(":")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            proxy = optuna.storages.GrpcStorageProxy(host=host, port=int(port or 13000))
            proxy.get_all_studies()
            return proxy
    if "://" in where:
        return optuna.storages.RDBStorage(_with_driver(where))
    path = Path(where)
    path.parent.mkdir(parents=True, exist_ok=True)
    _repair(path)
    return optuna.storages.JournalStorage(JournalFileBackend(str(path), lock_obj=_Lock(path)))


def _with_driver(url: str) -> str:
    """A PostgreSQL URL with the driver that is installed: which one is the default differs by release of SQLAlchemy."""
    scheme, separator, rest = url.partition("://")
    found = [driver for driver in ("psycopg2", "psycopg") if importlib.util.find_spec(driver)]
    return f"postgresql+{found[0]}{separator}{rest}" if scheme in ("postgresql", "postgres") and found else url


def _repair(journal: Path) -> None:
    """Cut off a last line that was left half-written, before anything is put behind it."""
    if not journal.is_file():
        return
    lock = _Lock(journal)
    lock.acquire()
    try:
        text = journal.read_bytes()
        if not text.endswith(b"\n"):
            with journal.open("r+b") as file:
                file.truncate(text.rfind(b"\n") + 1)
    finally:
        lock.release()


# What brings a module that a storage imports, where the two have different names.
_PACKAGES = {"psycopg2": "psycopg2-binary", "psycopg": "psycopg2-binary", "grpc": "grpcio", "google": "protobuf"}


@contextmanager
def _reaching(where: str) -> Iterator[None]:
    """What goes wrong between here and a storage, in a sentence."""
    try:
        yield
    except (KernelgenError, KeyboardInterrupt):
        raise
    except OSError as error:
        raise candidates.full(where) if candidates.is_full(error) else _unreachable(where, error) from error
    except ImportError as error:
        name = getattr(error.__cause__, "name", None) or error.name or str(error)
        package = _PACKAGES.get(name.partition(".")[0], name)
        said = f"The storage {_without_password(where)} needs {package}; install it with: pip install {package}"
        raise KernelgenError(said) from error
    except Exception as error:
        module = type(error).__module__.partition(".")[0]
        if module in ("sqlalchemy", "grpc", "psycopg2") or isinstance(error, (optuna.exceptions.StorageInternalError,)):
            raise _unreachable(where, error) from error
        if isinstance(error, (json.JSONDecodeError, ValueError)) and "://" not in where and _is_no_journal(Path(where)):
            raise KernelgenError(f"{where} is no journal of trials; name another file as --storage.") from error
        raise


def _is_no_journal(path: Path) -> bool:
    try:
        return "op_code" not in json.loads(path.read_text(encoding="utf-8").partition("\n")[0])
    except (OSError, ValueError, TypeError):
        return True


def _unreachable(where: str, error: Exception) -> KernelgenError:
    said = str(error.__cause__ or error).strip().partition("\n")[0][:200]
    return KernelgenError(f"The storage {_without_password(where)} cannot be reached: {said}")


def _without_password(where: str) -> str:
    scheme, separator, rest = where.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if separator and "@" in rest else where
