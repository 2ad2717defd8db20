"""Keeps the search on disk: every finished measurement as a file, and the Optuna study beside it.

A measurement is written before Optuna hears of it, so that nothing finished is ever lost: what a
process that died in between left untold is told when the search is resumed. The choices of a study
are frozen when it is created; a resumed search must have the same ones.

Optuna cannot take back a trial that it has opened. One that has nothing to tell (a crash,
or a candidate that turns out to be invalid) ends as FAIL, with its outcome and reason as
attributes: it has no value, no sampler reads it, and nothing counts it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from autotune.core.candidate import Value
from autotune.core.errors import BadInput, EnvironmentUnable
from autotune.core.result import TrialRecord
from autotune.probe.documents import write_document
from autotune.study.database import Database, check_database
from autotune.study.ownership import hold, is_alive, this_process
from autotune.study.told import Told

STUDY_NAME = "autotune"
IN_MEMORY = "memory:"


def check_storage(url: str) -> None:
    """Check that a storage can be opened and written to; errors as for `Store`."""
    if url != IN_MEMORY:
        check_database(url)


@dataclass(frozen=True)
class Pruned:
    """A candidate that is not measured because it is predicted not to fit.

    Args:
        params: choice of every searched knob.
        key: the candidate's key.
        predicted_peak_bytes: the peak it was predicted to need.
    """

    params: Mapping[str, Value]
    key: str
    predicted_peak_bytes: int


class Store:
    """The folder of one search; held by one process at a time."""

    def __init__(
        self,
        out_dir: Path,
        storage: str | None,
        choices: Mapping[str, Any],
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        """Open or create the study.

        Args:
            out_dir: the run's folder.
            storage: Optuna storage URL; None keeps ``study.db`` in the folder, ``memory:`` keeps
                no database (the trials folder is kept all the same).
            choices: everything that must not change between resumed runs; JSON values.
            wait: lets time pass while the database cannot be used.

        Raises:
            BadInput: the study was made with other choices, another process holds the folder, or
                the URL is none.
            EnvironmentUnable: the database's driver is not installed, or it cannot be used now.
            ToolFailure: the database fails otherwise.
        """
        self._dir = out_dir / "trials"
        self._dir.mkdir(parents=True, exist_ok=True)
        self._again: set[str] = set()
        self._given_up: set[str] = set()
        self._lock = hold(out_dir)
        try:
            self._open(out_dir, storage, choices, wait)
        except BaseException:
            self._lock.close()
            raise

    def _open(
        self,
        out_dir: Path,
        storage: str | None,
        choices: Mapping[str, Any],
        wait: Callable[[float], None],
    ) -> None:
        url = storage or f"sqlite:///{(out_dir / 'study.db').resolve()}"
        name = STUDY_NAME if storage is None else _study_name(out_dir)
        self._database = Database(None if url == IN_MEMORY else url, name, wait)
        self._study = self._database.study
        self._states = self._database.optuna.trial.TrialState
        patiently = self._database.patiently
        frozen = json.dumps(choices, sort_keys=True)
        before = patiently(lambda: self._study.user_attrs.get("choices"))
        if before is None:
            patiently(lambda: self._study.set_user_attr("choices", frozen))
        elif before != frozen:
            raise BadInput(
                f"the search in {out_dir} was started with another space or job.",
                "Resume it with the options it was started with, or choose another --out.",
            )

    def records(self) -> list[TrialRecord]:
        """Return the finished trials, in order.

        Raises:
            BadInput: a record is damaged or of another version.
        """
        found = []
        for file in sorted(self._dir.glob("[0-9]*.json")):
            try:
                found.append(TrialRecord.model_validate_json(file.read_bytes()))
            except ValidationError as error:
                raise BadInput(
                    f"{file} is not a trial of this version: {error.errors()[0]['msg']}.",
                    "Remove it to measure that candidate again, or choose another --out.",
                ) from error
        return found

    @property
    def given_up(self) -> frozenset[str]:
        """Keys of candidates whose process died more than once; they are not tried again."""
        return frozenset(self._given_up)

    def reap(self, tell: Callable[[TrialRecord], Told | None]) -> list[dict[str, Value]]:
        """End trials a dead process left running.

        One whose measurement is on disk is told; the others fail.

        Args:
            tell: returns what Optuna is told of a finished record.

        Returns:
            The parameters of those that failed and are to be probed again, once each.
        """
        again: list[dict[str, Value]] = []
        running = (self._states.RUNNING,)
        patiently = self._database.patiently
        records = {record.number: record for record in self.records()}
        for trial in patiently(lambda: self._study.get_trials(deepcopy=False, states=running)):
            if is_alive(trial.user_attrs.get("owner")):
                continue
            opened = patiently(partial(self._opened, trial._trial_id))
            record = records.get(trial.user_attrs.get("record", -1))
            if record is not None:
                self._tell(opened, record, tell(record), constrained=bool(trial.constraints))
                continue
            patiently(partial(self._interrupt, opened))
            key = str(trial.user_attrs.get("key"))
            if trial.user_attrs.get("requeued"):
                self._given_up.add(key)
            elif trial.params:
                self._again.add(key)
                again.append(dict(trial.params))
        return again

    def _opened(self, trial_id: int) -> Any:
        return self._database.optuna.trial.Trial(self._study, trial_id)

    def _interrupt(self, trial: Any) -> None:
        trial.set_user_attr("outcome", "interrupted")
        self._study.tell(trial, state=self._states.FAIL)

    def begin(
        self,
        params: Mapping[str, Value],
        choices: Mapping[str, tuple[Value, ...]],
        key: str,
        number: int,
    ) -> Any:
        """Open a trial and return Optuna's handle of it.

        Args:
            params: choice of every searched knob.
            choices: the values each may have.
            key: the candidate's key.
            number: number of the record it will have.
        """
        distributions = self._distributions(choices)
        patiently = self._database.patiently
        attributes = {
            "key": key,
            "record": number,
            "owner": this_process(),
            "requeued": key in self._again,
        }
        patiently(lambda: self._study.enqueue_trial(dict(params), user_attrs=attributes))
        while True:
            trial = patiently(lambda: self._study.ask(distributions))
            if trial.user_attrs.get("key") == key:
                return trial
            # Left waiting by a process that died between the two calls above.
            patiently(partial(self._study.tell, trial, state=self._states.FAIL))

    def keep_pruned(
        self,
        candidates: Sequence[Pruned],
        choices: Mapping[str, tuple[Value, ...]],
    ) -> None:
        """Note, once each, candidates that were not measured: they are predicted not to fit.

        Args:
            candidates: what is known of them.
            choices: the values each searched knob may have.
        """
        patiently = self._database.patiently
        states = (self._states.PRUNED,)
        noted = patiently(lambda: self._study.get_trials(deepcopy=False, states=states))
        known = {trial.user_attrs.get("key") for trial in noted}
        distributions = self._distributions(choices)
        for one in candidates:
            if one.key in known:
                continue
            known.add(one.key)
            note = {
                "key": one.key,
                "outcome": "predicted",
                "predicted_peak_bytes": one.predicted_peak_bytes,
            }
            trial = self._database.optuna.trial.create_trial(
                state=self._states.PRUNED,
                params=dict(one.params),
                distributions=distributions,
                user_attrs=note,
            )
            patiently(partial(self._study.add_trial, trial))

    def _distributions(self, choices: Mapping[str, tuple[Value, ...]]) -> dict[str, Any]:
        make = self._database.optuna.distributions.CategoricalDistribution
        return {name: make(values) for name, values in choices.items()}

    def finish(self, trial: Any | None, record: TrialRecord, told: Told | None) -> None:
        """Put a finished trial on disk, then tell Optuna.

        Args:
            trial: what `begin` returned; None for what is no trial of the searched space.
            record: what was measured.
            told: its objective and constraint; None when there is nothing to tell (it fails).

        Raises:
            EnvironmentUnable: the folder cannot be written to, or the database cannot be used.
        """
        file = self._dir / f"{record.number:04d}.json"
        try:
            write_document(file, record)
        except OSError as error:
            raise EnvironmentUnable(
                f"a finished measurement cannot be written: {error}.",
                "Make room or make the folder writable, then run again with --resume.",
            ) from error
        if trial is not None:
            self._tell(trial, record, told)

    def _tell(
        self, trial: Any, record: TrialRecord, told: Told | None, *, constrained: bool = False
    ) -> None:
        patiently = self._database.patiently
        ending = record.report.ending
        patiently(lambda: trial.set_user_attr("outcome", ending.outcome.value))
        if told is None:
            patiently(lambda: trial.set_user_attr("reason", ending.reason))
            patiently(lambda: self._study.tell(trial, state=self._states.FAIL))
            return
        if not constrained:
            patiently(lambda: trial.set_constraint("memory", told.violation))
        patiently(lambda: self._study.tell(trial, values=told.value))

    def abandon(self, trial: Any | None) -> None:
        """Fail an open trial that was interrupted."""
        if trial is None:
            return
        # What interrupted the trial matters more than a database that cannot note it: a trial
        # left running is reaped by the next run.
        with suppress(*self._database.errors):
            self._interrupt(trial)

    def close(self) -> None:
        """Let another process hold the folder."""
        self._lock.close()


def _study_name(out_dir: Path) -> str:
    """Return a name of its own for every run that shares a storage."""
    return f"{STUDY_NAME}-{hashlib.sha256(str(out_dir.resolve()).encode()).hexdigest()[:8]}"
