"""The trials of one op: an Optuna study in a storage that several workers may share and that outlives them.

Optuna keeps the trials and hands out those that wait. `sampler.py` chooses four of five points; the fifth is Optuna's
choice, by Bergstra et al.'s tree-structured Parzen estimator (TPE, 2011) with constant liar (Ginsbourger et al., 2010)
for the trials in flight.

Each trial carries the name of its worker. When a worker is dead, the next that looks puts its trials back, so that
`kill -9` costs the work on the trials in flight and nothing else. Optuna 5 has heartbeats for databases alone, not for
journals or a gRPC proxy, and beats only within its own loop; so workers report here themselves, on every storage.
"""

import itertools
import json
import time
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from kernelgen.errors import KernelgenError
from kernelgen.tune import sampler, workers
from kernelgen.tune.errors import TuningError
from kernelgen.tune.space import Space, Values, key
from kernelgen.tune.storages import FileLock, is_journal, open_storage, storage_errors

optuna.logging.set_verbosity(optuna.logging.ERROR)

# One trial in so many is TPE's. If it proposes so often what a gate rejects or what was tried before, chance chooses.
TPE_EVERY, TPE_ATTEMPTS = 5, 3
# Names of attributes: of a study, what its trials are of; of a trial, what is known of it, and who is to confirm.
ABOUT, TRIAL, CLAIM = "kernelgen", "trial", "confirms"


@dataclass(frozen=True)
class Trial:
    """A configuration to be tried."""

    number: int
    values: Values


class Study:
    """The trials of one op's space, and which to make next.

    Args:
        storage: a journal's path, a database's URL, or grpc://HOST:PORT.
        about: what the trials are of: `op`, `device`, `machine`, `shapes`, `sources` and others, all of which have to
            be the same for all workers.
        kept: the numbers, in `space.points()`, of the points that the gates let pass.
        seeds: how many points the Latin hypercube gives; `total`: how many trials to make, these included.

    Raises:
        TuningError: the storage cannot be reached, or its trials are of something else.
    """

    def __init__(
        self, storage: str, about: Mapping[str, Any], space: Space, kept: list[int], seeds: int, total: int, seed: int
    ) -> None:
        self.space, self.total, self._where = space, total, storage
        allowed = set(kept)
        self._points = {key(values): values for n, values in enumerate(space.points()) if n in allowed}
        self.worker = workers.this_worker()
        self._random = Random(f"{seed} {self.worker}")  # Two workers with one seed would choose the same points.
        self._reported, self._joined = 0.0, time.time()
        self._distributions = {
            name: optuna.distributions.IntDistribution(0, len(values) - 1) for name, values in space.tunables.items()
        }
        about = json.loads(json.dumps({**about, "space": space.version}))
        with storage_errors(storage):
            self._storage = open_storage(storage)
            with self._turn():
                self._study = self._open(about, min(10, seeds))
                if self._study.user_attrs.get("seeded") is None:
                    for values in sampler.latin_hypercube(space, list(self._points.values()), seeds, seed):
                        self._study.enqueue_trial(space.indices(values), skip_if_exists=True)
                    self._study.set_user_attr("seeded", True)
            self.heartbeat()

    def _open(self, about: dict[str, Any], startup: int) -> optuna.Study:
        name = " · ".join(filter(None, (about["op"], about["device"], about.get("shapes"))))
        if is_journal(self._where):
            for other in optuna.get_all_study_names(self._storage):
                if other.split(" · ")[:2] != name.split(" · ")[:2]:
                    raise TuningError(f"{self._where} holds trials of {other}, not of {name}; name another file.")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tpe = optuna.samplers.TPESampler(
                n_startup_trials=startup, multivariate=True, constant_liar=True, seed=self._random.randrange(2**31)
            )
            study = optuna.create_study(storage=self._storage, study_name=name, load_if_exists=True, sampler=tpe)
        recorded = study.user_attrs.get(ABOUT)
        if recorded is None:
            study.set_user_attr(ABOUT, about)
        elif recorded != about:
            raise TuningError(
                f"The trials of {name} in {self._where} are of {_difference(recorded, about)}, so these would not go "
                "with them; begin anew, or with another --storage."
            )
        return study

    # ---- Asking and telling -----------------------------------------------------------------------------------

    def ask(self) -> Trial | None:
        """The next trial to make; None if there are enough, or every point was tried."""
        with storage_errors(self._where), self._turn():
            for attempt in itertools.count():
                trials = self._study.get_trials(deepcopy=False)
                taken = {trial.user_attrs[TRIAL]["key"]: trial for trial in trials if counts(trial)}
                if len(taken) >= min(self.total, len(self._points)):
                    return None
                waiting = any(trial.state == TrialState.WAITING for trial in trials)
                if not waiting and (chosen := self._choose(taken, attempt)):
                    self._study.enqueue_trial(self.space.indices(chosen))
                trial = self._study.ask(self._distributions)
                values = self.space.values(trial.params)
                if key(values) in self._points and key(values) not in taken:
                    about = {"key": key(values), "values": values, "worker": self.worker}
                    self._storage.set_trial_user_attr(trial._trial_id, TRIAL, about)
                    return Trial(trial.number, values)
                # A gate rejects it, or it was tried before; on a server another worker may have got it meanwhile.
                self._study.tell(trial.number, state=TrialState.FAIL)

    def _choose(self, taken: Mapping[str, FrozenTrial], attempt: int) -> Values | None:
        """The next point; None leaves the choice to Optuna."""
        left = [values for name, values in self._points.items() if name not in taken]
        if attempt >= TPE_ATTEMPTS:
            return self._random.choice(left)
        if len(taken) % TPE_EVERY == 0:
            return None
        times, in_flight = [], []
        for trial in taken.values():
            values = trial.user_attrs[TRIAL]["values"]
            if trial.state.is_finished():
                times.append((values, trial.value if trial.state == TrialState.COMPLETE else None))
            else:
                in_flight.append(values)
        return sampler.promising(self.space, left, times, in_flight, self._random)

    def _turn(self) -> AbstractContextManager[None]:
        """Workers on one journal take turns, so that no two get one point, nor one more than the total. On a server
        they do not, which may cost a trial."""
        return FileLock(Path(f"{self._where}.turn")) if is_journal(self._where) else nullcontext()

    def tell(self, number: int, value: float | None, facts: Mapping[str, Any]) -> None:
        """Record the end of a trial. Without a value it failed, and points like it are avoided."""
        with storage_errors(self._where):
            trial = self._study.get_trials(deepcopy=False)[number]
            if trial.state.is_finished():
                return  # Another worker took this one for dead and put its trial back.
            about = {**trial.user_attrs[TRIAL], **facts, "value": value, "at": time.time()}
            self._storage.set_trial_user_attr(trial._trial_id, TRIAL, about)
            self._end(number, value)

    def _end(self, number: int, value: float | None) -> None:
        if value is None:
            self._study.tell(number, state=TrialState.PRUNED)
        else:
            self._study.tell(number, value)

    def finished(self) -> list[dict[str, Any]]:
        """What is known of each trial that ended, in the order of their ends."""
        with storage_errors(self._where):
            trials = self._study.get_trials(deepcopy=False)
        ended = (trial.user_attrs[TRIAL] for trial in trials if trial.state.is_finished() and counts(trial))
        return sorted(ended, key=lambda trial: trial["at"])

    def importance(self) -> dict[str, float]:
        """How much of the differences between the best and the others each tunable explains, by PED-ANOVA (Watanabe et
        al., 2023); empty if too few were measured."""
        with warnings.catch_warnings(), suppress(ValueError, RuntimeError, ZeroDivisionError):
            warnings.simplefilter("ignore")
            evaluator = optuna.importance.PedAnovaImportanceEvaluator()
            return dict(optuna.importance.get_param_importances(self._study, evaluator=evaluator))
        return {}

    # ---- Workers ----------------------------------------------------------------------------------------------

    def heartbeat(self) -> None:
        """Report that this worker lives, and put back the trials of dead ones; at most every HEARTBEAT_S seconds."""
        if time.monotonic() - self._reported < workers.HEARTBEAT_S:
            return
        self._reported = time.monotonic()
        with storage_errors(self._where):
            self._study.set_user_attr(f"alive {self.worker}", time.time())
            self.recover()

    def recover(self) -> int:
        """Put back the trials that dead workers had in flight, or end what they had measured; how many there were."""
        count, attributes = 0, self._study.user_attrs
        for trial in self._in_flight():
            worker = trial.user_attrs.get(TRIAL, {}).get("worker")
            if worker == self.worker or (worker and _is_alive(worker, attributes)):
                continue
            if worker is None and time.time() - trial.datetime_start.timestamp() < workers.HEARTBEAT_S:
                continue  # A worker is about to put its name to it.
            with suppress(ValueError, RuntimeError, KeyError):  # Another worker was quicker.
                self._put_back(trial)
                count += 1
        return count

    def others_in_flight(self) -> bool:
        """Whether other workers have trials in flight."""
        with storage_errors(self._where):
            names = {trial.user_attrs[TRIAL]["worker"] for trial in self._in_flight() if TRIAL in trial.user_attrs}
            return bool(names - {self.worker})

    def leave(self) -> None:
        """Put back what this worker has in flight, for others or a later one."""
        with suppress(KernelgenError), storage_errors(self._where):
            worker, self.worker = self.worker, ""
            for trial in self._in_flight():
                if trial.user_attrs.get(TRIAL, {}).get("worker") == worker:
                    self._put_back(trial)

    def _in_flight(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))

    def _put_back(self, trial: FrozenTrial) -> None:
        about = trial.user_attrs.get(TRIAL, {})
        if "at" in about:  # Its worker ended after it had recorded what it measured, and before it could say so.
            self._end(trial.number, about["value"])
            return
        self._study.tell(trial.number, state=TrialState.FAIL)
        self._study.enqueue_trial(trial.params)

    # ---- Who confirms -----------------------------------------------------------------------------------------

    def claim(self) -> bool:
        """Whether this worker is to confirm the best: the first that asks is, or the next if that worker dies before it
        has confirmed."""
        with storage_errors(self._where):
            # A storage numbers its trials in their order, so a trial without a point tells who asked first.
            self._study.add_trial(optuna.trial.create_trial(state=TrialState.FAIL, user_attrs={CLAIM: self.worker}))
            attributes = self._study.user_attrs
            claimants = (trial.user_attrs.get(CLAIM) for trial in self._study.get_trials(deepcopy=False))
            return self.worker == next(
                name for name in claimants if name and (name == self.worker or self._holds(name, attributes))
            )

    def confirmed(self) -> None:
        """Record that this worker has confirmed what it claimed."""
        with storage_errors(self._where):
            self._study.set_user_attr(f"confirmed {self.worker}", time.time())

    def _holds(self, claimant: str, attributes: Mapping[str, Any]) -> bool:
        """Whether another worker's claim holds: it confirms now, or has done so since this worker joined."""
        if (confirmed := attributes.get(f"confirmed {claimant}")) is not None:
            return confirmed >= self._joined
        return _is_alive(claimant, attributes)


def counts(trial: FrozenTrial) -> bool:
    """Whether a trial counts towards the total: one that was put back does not, nor does a claim to confirm."""
    return TRIAL in trial.user_attrs and trial.state != TrialState.FAIL


def _is_alive(worker: str, attributes: Mapping[str, Any]) -> bool:
    return workers.is_alive(worker, attributes.get(f"alive {worker}"))


def _difference(recorded: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    """The first thing in which the recorded trials differ from these, in words."""
    name = next(name for name in about if recorded.get(name) != about[name])
    words = {"space": "another space of tunables", "sources": "other sources"}
    return words.get(name) or f"{name} ({recorded.get(name)}, here {about[name]})"
