"""Keeps the search on disk: every finished measurement as a file, and the Optuna study beside it.

A measurement is written before Optuna hears of it, so that nothing finished is ever lost. The
choices of a study are frozen when it is created; a resumed search must have the same ones.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import psutil
from pydantic import ValidationError

from autotune.core.candidate import Value
from autotune.core.errors import BadInput, EnvironmentUnable, ToolFailure
from autotune.core.result import TrialRecord
from autotune.probe.protocol import write_document

STUDY_NAME = "autotune"
IN_MEMORY = "memory:"
_LOCK = ".lock"
#: How long SQLite waits for a database another process has locked.
_ATTEMPTS_S = 10.0


class Store:
    """The folder of one search; held by one process at a time."""

    def __init__(self, out_dir: Path, storage: str | None, choices: Mapping[str, Any]) -> None:
        """Open or create the study.

        Args:
            out_dir: the run's folder.
            storage: Optuna storage URL; None keeps ``study.db`` in the folder, ``memory:`` keeps
                no database (the trials folder is kept all the same).
            choices: everything that must not change between resumed runs; JSON values.

        Raises:
            BadInput: the study was made with other choices, another process holds the folder, or
                the URL is none.
            EnvironmentUnable: the database's driver is not installed.
            ToolFailure: the database cannot be opened.
        """
        import optuna
        from sqlalchemy.exc import SQLAlchemyError

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna = optuna
        self._database_errors = (SQLAlchemyError, optuna.exceptions.StorageInternalError)
        self._dir = out_dir / "trials"
        self._dir.mkdir(parents=True, exist_ok=True)
        self._again: set[str] = set()
        self._given_up: set[str] = set()
        self._lock = _hold(out_dir)
        try:
            self._open(out_dir, storage, choices)
        except BaseException:
            self._lock.close()
            raise

    def _open(self, out_dir: Path, storage: str | None, choices: Mapping[str, Any]) -> None:
        optuna = self._optuna
        url = storage or f"sqlite:///{(out_dir / 'study.db').resolve()}"
        try:
            self._study = optuna.create_study(
                study_name=STUDY_NAME if storage is None else _study_name(out_dir),
                storage=self._database(url),
                direction="minimize",
                load_if_exists=True,
            )
            frozen = json.dumps(choices, sort_keys=True)
            before = self._study.user_attrs.get("choices")
            if before is None:
                self._study.set_user_attr("choices", frozen)
        except self._database_errors as error:
            raise self._database_failed(error) from error
        if before is not None and before != frozen:
            raise BadInput(
                f"the search in {out_dir} was started with another space or job.",
                "Resume it with the options it was started with, or choose another --out.",
            )

    def _database(self, url: str) -> Any:
        from sqlalchemy.exc import ArgumentError

        storages = self._optuna.storages
        if url == IN_MEMORY:
            return storages.InMemoryStorage()
        try:
            return storages.RDBStorage(url, engine_kwargs=_engine_options(url))
        except ArgumentError as error:  # unknown dialects included
            raise BadInput(
                f"--storage is {url!r}: {error}.",
                "It takes a database URL such as sqlite:///study.db or mysql+pymysql://host/name.",
            ) from error
        except ImportError as error:
            raise EnvironmentUnable(
                f"the driver of --storage {url.partition('://')[0]} is not installed.",
                "Install it, or name another, as in mysql+pymysql://.",
            ) from error

    def _database_failed(self, error: Exception) -> ToolFailure:
        cause: BaseException = error
        while cause.__cause__ is not None:  # Optuna wraps what the database really said
            cause = cause.__cause__
        first = str(cause).strip().splitlines()[0]
        return ToolFailure(
            f"the study database cannot be used: {first}",
            "Finished measurements are in the trials folder; run again with --resume.",
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

    def reap(self) -> list[dict[str, Value]]:
        """Fail trials a dead process left running and return their parameters, once each."""
        states = self._optuna.trial.TrialState
        again: list[dict[str, Value]] = []
        try:
            for trial in self._study.get_trials(deepcopy=False, states=(states.RUNNING,)):
                if _alive(trial.user_attrs.get("owner")):
                    continue
                self._study._storage.set_trial_user_attr(trial._trial_id, "outcome", "interrupted")
                self._study.tell(trial.number, state=states.FAIL)
                key = str(trial.user_attrs.get("key"))
                if trial.user_attrs.get("requeued"):
                    self._given_up.add(key)
                elif trial.params:
                    self._again.add(key)
                    again.append(dict(trial.params))
        except self._database_errors as error:
            raise self._database_failed(error) from error
        return again

    def begin(
        self, params: Mapping[str, Value], choices: Mapping[str, tuple[Value, ...]], key: str
    ) -> Any:
        """Open a trial and return Optuna's handle of it.

        Args:
            params: choice of every searched knob.
            choices: the values each may have.
            key: the candidate's key.
        """
        distributions = {
            n: self._optuna.distributions.CategoricalDistribution(v) for n, v in choices.items()
        }
        attributes = {"key": key, "owner": _owner(), "requeued": key in self._again}
        try:
            self._study.enqueue_trial(dict(params), user_attrs=attributes)
            while True:
                trial = self._study.ask(distributions)
                if trial.user_attrs.get("key") == key:
                    return trial
                # Left waiting by a process that died between the two calls above.
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        except self._database_errors as error:
            raise self._database_failed(error) from error

    def finish(
        self, trial: Any | None, record: TrialRecord, value: float | None, violation: float | None
    ) -> None:
        """Put a finished trial on disk, then tell Optuna.

        Args:
            trial: what `begin` returned; None for trials outside the searched space.
            record: what was measured.
            value: the objective; None when there is none (the trial fails).
            violation: ``peak / limit - 1``; above zero means it does not fit.
        """
        write_document(self._dir / f"{record.number:04d}.json", record)
        if trial is None:
            return
        try:
            trial.set_user_attr("outcome", record.report.ending.outcome.value)
            if value is None:
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
                return
            if violation is not None:
                trial.set_constraint("memory", violation)
            self._study.tell(trial, values=value)
        except self._database_errors as error:
            raise self._database_failed(error) from error

    def abandon(self, trial: Any | None) -> None:
        """Fail an open trial that was interrupted."""
        if trial is None:
            return
        # What interrupted the trial matters more than a database that cannot note it: a trial
        # left running is reaped by the next run.
        with suppress(*self._database_errors):
            trial.set_user_attr("outcome", "interrupted")
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)

    def close(self) -> None:
        """Let another process hold the folder."""
        self._lock.close()


def _study_name(out_dir: Path) -> str:
    """Return a name of its own for every run that shares a storage."""
    return f"{STUDY_NAME}-{hashlib.sha256(str(out_dir.resolve()).encode()).hexdigest()[:8]}"


def _engine_options(url: str) -> dict[str, Any]:
    """Have SQLite wait for a locked database instead of failing at once."""
    waits = url.startswith("sqlite") and "timeout=" not in url
    return {"connect_args": {"timeout": _ATTEMPTS_S}} if waits else {}


def _hold(out_dir: Path) -> IO[str]:
    lock = (out_dir / _LOCK).open("a", encoding="ascii")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise BadInput(
            f"another autotune is working in {out_dir}.", "Wait for it, or choose another --out."
        ) from error
    return lock


def is_held(out_dir: Path) -> bool:
    """Whether a process is working in a run's folder."""
    if not (out_dir / _LOCK).exists():
        return False
    try:
        _hold(out_dir).close()
    except BadInput:
        return True
    return False


def _owner() -> dict[str, Any]:
    process = psutil.Process()
    return {"host": socket.gethostname(), "pid": process.pid, "started": process.create_time()}


def _alive(owner: dict[str, Any] | None) -> bool:
    """Whether the process that opened a trial still lives, other than this one."""
    if not owner:
        return False
    if owner["host"] != socket.gethostname():
        return True  # another machine's business
    if owner["pid"] == os.getpid():
        return False
    try:
        return abs(psutil.Process(owner["pid"]).create_time() - float(owner["started"])) < 1.0
    except psutil.NoSuchProcess:
        return False
