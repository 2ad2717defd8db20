"""The search on disk: nothing finished is lost, nothing running is touched, nothing is mixed up."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from optuna.exceptions import UpdateFinishedTrialError

from autotune.core.errors import BadInput, EnvironmentUnable
from autotune.core.outcome import Outcome
from autotune.study.ownership import is_held
from autotune.study.storage import IN_MEMORY, STUDY_NAME, Pruned, Store, check_storage
from autotune.study.told import Told
from tests.support.facts import candidate_of, trial_of

CHOICES: dict[str, Any] = {"batch": (1, 2), "packing": ("none", "bfd")}
PARAMS = {"batch": 2, "packing": "bfd"}
RECORD = trial_of(3, candidate_of())


def open_store(
    folder: Path,
    storage: str | None = IN_MEMORY,
    *,
    wait: Callable[[float], None] = lambda _: None,
    **choices: Any,
) -> Store:
    return Store(folder, storage, choices or {"space": "x"}, wait)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database in a file; making one costs a third of a second."""
    folder = tmp_path_factory.mktemp("study")
    store = open_store(folder, None)
    store.finish(store.begin(PARAMS, CHOICES, "k", 3), RECORD, Told(10.0, -0.5))
    store.close()
    return folder


@pytest.fixture
def study(made: Path) -> Iterator[Store]:
    store = open_store(made, None)
    yield store
    store.close()


def trials(store: Store) -> list[Any]:
    return list(store._study.get_trials(deepcopy=False))


def test_a_resumed_search_finds_its_records(study: Store) -> None:
    assert study.records() == [RECORD]
    assert trials(study)[0].values == [10.0]


def test_records_are_files_that_outlive_the_database(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in (0, 2, 10):
        store.finish(None, RECORD.model_copy(update={"number": number}), None)
    names = [p.name for p in sorted((tmp_path / "trials").iterdir())]
    assert names == ["0000.json", "0002.json", "0010.json"]
    assert [r.number for r in store.records()] == [0, 2, 10]


def test_another_space_or_job_is_refused_and_the_folder_is_free_again(made: Path) -> None:
    with pytest.raises(BadInput, match="another space or job") as caught:
        open_store(made, None, space="y")
    assert caught.value.exit_code == 2
    assert not is_held(made)


def test_a_second_process_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    held = open_store(tmp_path)
    assert is_held(tmp_path)
    code = (
        "import sys; from pathlib import Path; from autotune.study.ownership import is_held;"
        "print(is_held(Path(sys.argv[1])))"
    )
    other = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == "True"
    with pytest.raises(BadInput, match="another autotune"):
        open_store(tmp_path)
    held.close()
    open_store(tmp_path).close()


def test_a_measurement_is_on_disk_before_the_database_hears_of_it(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    trial = store.begin(PARAMS, CHOICES, "k", 3)
    store.abandon(trial)
    with pytest.raises(UpdateFinishedTrialError):
        store.finish(trial, RECORD, Told(10.0, 0.0))
    assert store.records() == [RECORD]


def test_a_trial_keeps_its_own_parameters_when_another_was_left_waiting(tmp_path: Path) -> None:
    # A process that died between queuing a trial and taking it up leaves it waiting.
    store = open_store(tmp_path)
    store._study.enqueue_trial({"batch": 1, "packing": "none"}, user_attrs={"key": "stale"})
    trial = store.begin(PARAMS, CHOICES, "k", 3)
    assert trial.params == PARAMS
    assert trial.user_attrs["key"] == "k"
    assert [t.state.name for t in trials(store)] == ["FAIL", "RUNNING"]


def test_memory_that_is_missing_is_a_constraint_and_a_crash_is_a_failure(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.finish(store.begin(PARAMS, CHOICES, "a", 0), RECORD, Told(10.0, 0.25))
    store.finish(store.begin(PARAMS, CHOICES, "b", 1), RECORD, None)
    store.abandon(store.begin(PARAMS, CHOICES, "c", 2))
    told = trials(store)
    assert [t.state.name for t in told] == ["COMPLETE", "FAIL", "FAIL"]
    assert told[0].constraints == {"memory": 0.25}
    assert told[2].user_attrs["outcome"] == "interrupted"


def test_what_turned_out_to_be_invalid_has_no_value_and_keeps_its_reason(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    refused = trial_of(0, candidate_of(), seconds=None, outcome=Outcome.INVALID, reason="refused")
    store.finish(store.begin(PARAMS, CHOICES, "a", 0), refused, None)
    (told,) = trials(store)
    assert (told.state.name, told.values) == ("FAIL", None)
    assert (told.user_attrs["outcome"], told.user_attrs["reason"]) == ("invalid", "refused")


def owner(pid: int, started: float, host: str | None = None) -> dict[str, Any]:
    return {"host": host or os.uname().nodename, "pid": pid, "started": started}


def leave_running(store: Store, who: dict[str, Any], number: int = 3) -> None:
    trial = store.begin(PARAMS, CHOICES, "k", number)
    trial.set_user_attr("owner", who)


def nothing(record: Any) -> None:
    """Tell nothing of a record."""


def dead_process() -> dict[str, Any]:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    started = psutil.Process(child.pid).create_time()
    child.wait()
    return owner(child.pid, started)


def test_a_trial_of_a_dead_process_is_failed_and_queued_again_once(tmp_path: Path) -> None:
    # BC24
    store = open_store(tmp_path)
    leave_running(store, dead_process())
    assert store.reap(nothing) == [PARAMS]
    assert trials(store)[0].state.name == "FAIL"
    assert trials(store)[0].user_attrs["outcome"] == "interrupted"
    again = store.begin(PARAMS, CHOICES, "k", 3)
    again.set_user_attr("owner", dead_process())
    assert store.reap(nothing) == [], "a candidate that ends its process twice is not tried again"
    assert store.given_up == {"k"}


def test_a_measurement_a_dead_process_could_not_tell_is_told_and_not_probed_again(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    leave_running(store, dead_process(), number=RECORD.number)
    store.finish(None, RECORD, None)  # it was on disk before Optuna was to hear of it
    assert store.reap(lambda record: Told(10.0 * record.number, 0.25)) == []
    (told,) = trials(store)
    assert (told.state.name, told.values) == ("COMPLETE", [30.0])
    assert told.constraints == {"memory": 0.25}


def test_a_trial_of_this_process_id_is_left_over_from_another_life(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    leave_running(store, owner(os.getpid(), 0.0))
    assert store.reap(nothing) == [PARAMS]


def test_a_trial_of_a_live_process_is_not_touched(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    parent = psutil.Process(os.getppid())
    leave_running(store, owner(parent.pid, parent.create_time()))
    assert store.reap(nothing) == []
    assert trials(store)[0].state.name == "RUNNING"


def test_a_live_process_of_the_same_number_but_another_age_is_not_the_owner(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    leave_running(store, owner(os.getppid(), psutil.Process(os.getppid()).create_time() - 500.0))
    assert store.reap(nothing) == [PARAMS]


def test_a_trial_of_another_machine_is_its_own_business(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    leave_running(store, owner(1, 0.0, host="elsewhere"))
    assert store.reap(nothing) == []


def brief(made: Path) -> str:
    """Return the URL of a made database whose driver does not wait by itself."""
    return f"sqlite:///{made / 'study.db'}?timeout=0.01"


def test_a_locked_database_is_tried_again_and_then_said_clearly(made: Path, tmp_path: Path) -> None:
    waits: list[float] = []
    store = open_store(tmp_path, brief(made), wait=waits.append)
    trial = store.begin(PARAMS, CHOICES, "k", 3)
    with sqlite3.connect(made / "study.db") as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(EnvironmentUnable, match=r"5 times: .*locked") as caught:
            store.finish(trial, RECORD, Told(10.0, 0.0))
        other.rollback()
    assert waits == sorted(waits) and len(waits) == 4, "each pause is longer than the one before"
    assert store.records() == [RECORD], "the measurement itself is safe"
    assert "--resume" in str(caught.value)
    assert caught.value.exit_code == 4


def test_a_database_that_is_locked_for_a_moment_loses_nothing(made: Path, tmp_path: Path) -> None:
    other = sqlite3.connect(made / "study.db")
    store = open_store(tmp_path, brief(made), wait=lambda _: other.rollback())
    trial = store.begin(PARAMS, CHOICES, "k", 3)
    other.execute("BEGIN EXCLUSIVE")
    store.finish(trial, RECORD, Told(10.0, 0.25))
    other.close()
    (told,) = [t for t in trials(store) if t.number == trial.number]
    assert (told.state.name, told.values, told.constraints) == (
        "COMPLETE", [10.0], {"memory": 0.25}
    )  # fmt: skip


def test_a_candidate_that_is_predicted_not_to_fit_is_pruned_with_its_peak(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    one = Pruned(PARAMS, "k", 30 * 2**30)
    store.keep_pruned([one, one], CHOICES)
    store.keep_pruned([one], CHOICES)
    (told,) = trials(store)
    assert (told.state.name, told.params) == ("PRUNED", PARAMS)
    assert told.user_attrs["predicted_peak_bytes"] == 30 * 2**30
    assert store.records() == [], "it was not measured"
    assert store.reap(nothing) == []


def test_a_measurement_that_cannot_be_written_is_said_with_what_to_do(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    (tmp_path / "trials").rmdir()
    with pytest.raises(EnvironmentUnable, match="cannot be written") as caught:
        store.finish(None, RECORD, None)
    assert "--resume" in str(caught.value)


def test_an_interruption_is_not_hidden_by_a_database_that_cannot_note_it(
    made: Path, tmp_path: Path
) -> None:
    store = open_store(tmp_path, f"sqlite:///{made / 'study.db'}?timeout=0.01")
    trial = store.begin(PARAMS, CHOICES, "k", 3)
    with sqlite3.connect(made / "study.db") as other:
        other.execute("BEGIN EXCLUSIVE")
        store.abandon(trial)
        other.rollback()


def test_a_read_only_database_is_said_clearly(made: Path, tmp_path: Path) -> None:
    url = f"sqlite:///file:{made / 'study.db'}?mode=ro&uri=true"
    with pytest.raises(EnvironmentUnable, match=r"5 times: .*readonly") as caught:
        open_store(tmp_path, url)
    assert "--resume" in str(caught.value)


def test_a_database_that_is_none_is_said_clearly(tmp_path: Path) -> None:
    (tmp_path / "study.db").write_bytes(b"not a database at all, not even nearly" * 40)
    with pytest.raises(BadInput, match="not a database"):
        open_store(tmp_path, None)


@pytest.mark.parametrize("url", ["study.db", "redis://x", "://"])
def test_a_storage_that_is_no_database_url_is_bad_input(url: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--storage"):
        open_store(tmp_path, url)


def test_a_database_without_its_driver_is_the_environments_fault(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnable, match="mysql"):
        open_store(tmp_path, "mysql://user@nowhere/db")


def test_the_choices_are_frozen_in_the_database(made: Path) -> None:
    with sqlite3.connect(made / "study.db") as database:
        (text,) = database.execute(
            "SELECT value_json FROM study_user_attributes WHERE key = 'choices'"
        ).fetchone()
    assert json.loads(json.loads(text)) == {"space": "x"}
    assert STUDY_NAME == "autotune"


def test_a_damaged_record_names_its_file(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.finish(None, RECORD, None)
    (tmp_path / "trials" / "0003.json").write_text("{}", encoding="utf-8")
    with pytest.raises(BadInput, match=r"0003\.json"):
        store.records()


def test_a_storage_that_can_be_opened_is_checked_without_a_trace(tmp_path: Path) -> None:
    check_storage(IN_MEMORY)
    check_storage(f"sqlite:///{tmp_path / 'new.db'}")
    assert [] == list(tmp_path.iterdir())
    open_store(tmp_path, None).close()
    before = (tmp_path / "study.db").read_bytes()
    check_storage(f"sqlite:///{tmp_path / 'study.db'}")
    assert before == (tmp_path / "study.db").read_bytes()


@pytest.mark.parametrize(
    ("url", "error", "words"),
    [
        ("sqlite:///{}/nowhere/study.db", EnvironmentUnable, "unable to open"),
        ("sqlite:///{}/rows.txt", BadInput, "not a database"),
        ("study.db", BadInput, "It takes a database URL"),
        ("sqlight:///study.db", BadInput, "It takes a database URL"),
    ],
)
def test_a_storage_that_cannot_be_opened_is_said_before_it_is_needed(
    url: str, error: type[Exception], words: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.txt").write_text("no database at all, but long enough to be one " * 30)
    with pytest.raises(error, match=words):
        check_storage(url.format(tmp_path))
    assert ["rows.txt"] == [p.name for p in tmp_path.iterdir()]
