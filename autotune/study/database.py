"""Opens Optuna's database and talks to it patiently: what is locked may be free in a second.

A call that still fails is said in the database's own words, with the exit code it deserves.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from autotune.core.errors import AutotuneError, BadInput, EnvironmentUnable, ToolFailure

_T = TypeVar("_T")

#: How long SQLite itself waits for a database another process has locked.
_SQLITE_WAITS_S = 5.0
#: Pauses before a call is made again.
_PAUSES_S = (0.2, 0.5, 1.0, 2.0)

#: Words of SQLite, MySQL and PostgreSQL for what may pass, or what somebody must put right first.
_UNUSABLE_NOW = re.compile(
    r"locked|busy|deadlock|read-?only|unable to open|disk I/O error|disk is full|timed? ?out"
    r"|lost connection|gone away|closed the connection|can't connect|could not connect"
    r"|connection (refused|reset)|access denied|authentication failed|permission denied",
    re.IGNORECASE,
)
_NO_DATABASE = re.compile(r"not a database|malformed|unsupported file format", re.IGNORECASE)
_SAFE = "Put that right and run again: --resume goes on from what was measured."


class Database:
    """One Optuna study in a storage."""

    def __init__(
        self, url: str | None, study_name: str, wait: Callable[[float], None] = time.sleep
    ) -> None:
        """Open the storage and load or create the study.

        Args:
            url: Optuna storage URL; None keeps the study in memory only.
            study_name: name of the study in it.
            wait: lets time pass between two attempts.

        Raises:
            BadInput: the URL is none, or names a file that is no database.
            EnvironmentUnable: the driver is not installed, or the database cannot be used now.
            ToolFailure: the database fails otherwise.
        """
        import optuna
        from sqlalchemy.exc import SQLAlchemyError

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.optuna = optuna
        self.errors = (SQLAlchemyError, optuna.exceptions.StorageInternalError)
        self._wait = wait
        self.study: Any = self.patiently(
            lambda: optuna.create_study(
                study_name=study_name,
                storage=self._storage(url),
                direction="minimize",
                load_if_exists=True,
            )
        )

    def _storage(self, url: str | None) -> Any:
        if url is None:
            return self.optuna.storages.InMemoryStorage()
        with _a_database(url):
            return self.optuna.storages.RDBStorage(url, engine_kwargs=_engine_options(url))

    def patiently(self, call: Callable[[], _T]) -> _T:
        """Make a call, again after a pause while the database cannot be used.

        Args:
            call: one reading or writing of the database.

        Raises:
            BadInput, EnvironmentUnable, ToolFailure: as for the class.
        """
        for pause in _PAUSES_S:
            try:
                return call()
            except self.errors as error:
                if not _UNUSABLE_NOW.search(_words(error)):
                    raise _said(error) from error
                self._wait(pause)
        try:
            return call()
        except self.errors as error:
            raise _said(error) from error


def check_database(url: str) -> None:
    """Check that a storage can be opened and written to; nothing is left in it.

    Args:
        url: Optuna storage URL.

    Raises:
        BadInput, EnvironmentUnable, ToolFailure: as for `Database`.
    """
    from sqlalchemy import create_engine, make_url, text
    from sqlalchemy.exc import SQLAlchemyError

    with _a_database(url):
        place = make_url(url)
        engine = create_engine(place, **_engine_options(url))
    lite = place.get_backend_name() == "sqlite"
    file = Path(place.database) if lite and place.database not in (None, ":memory:") else None
    is_new = file is not None and not file.exists()
    try:
        with engine.connect() as connection:
            connection.execute(text("SELECT 1 FROM sqlite_master" if lite else "SELECT 1"))
            if lite:
                connection.exec_driver_sql("BEGIN IMMEDIATE")  # what may be read only refuses
                connection.exec_driver_sql("ROLLBACK")
    except SQLAlchemyError as error:
        raise _said(error) from error
    finally:
        engine.dispose()
        if file is not None and is_new:
            file.unlink(missing_ok=True)


@contextmanager
def _a_database(url: str) -> Iterator[None]:
    """Say what is wrong with the URL of a storage."""
    from sqlalchemy.exc import ArgumentError

    try:
        yield
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


def _engine_options(url: str) -> dict[str, Any]:
    """Have SQLite wait for a locked database instead of failing at once."""
    waits = url.startswith("sqlite") and "timeout=" not in url
    return {"connect_args": {"timeout": _SQLITE_WAITS_S}} if waits else {}


def _words(error: BaseException) -> str:
    """Return what the database really said, which Optuna and SQLAlchemy wrap."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _said(error: BaseException) -> AutotuneError:
    words = _words(error)
    if _NO_DATABASE.search(words):
        return BadInput(
            f"the study database cannot be used: {words}.", "Name another --storage or --out."
        )
    if _UNUSABLE_NOW.search(words):
        return EnvironmentUnable(
            f"the study database cannot be used, tried {len(_PAUSES_S) + 1} times: {words}.", _SAFE
        )
    return ToolFailure(f"the study database cannot be used: {words}.", _SAFE)
