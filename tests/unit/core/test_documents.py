from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from autotune.core.errors import (
    AutotuneError,
    BadInput,
    EnvironmentUnable,
    Interrupted,
    NotBuiltYet,
    NothingFits,
    ToolFailure,
    disk_full,
    nearest,
)
from autotune.core.job import ALLOWABLE, Job
from autotune.core.memory import Peaks
from autotune.core.outcome import Outcome
from autotune.core.result import read_result
from tests.support.results import gpu_result


def test_exactly_the_memory_outcomes_are_memory() -> None:
    memory = {o for o in Outcome if o.is_memory}
    assert memory == {Outcome.OOM_DEVICE, Outcome.OOM_HOST, Outcome.SPILLED}


def test_the_largest_number_a_process_is_charged_with_decides() -> None:
    # BC12: what others hold (device_used) is shown, never charged to the candidate.
    peaks = Peaks(
        allocated_bytes=6_000, reserved_bytes=7_500, process_bytes=8_100, device_used_bytes=11_000
    )
    assert 8_100 == peaks.deciding_bytes


def test_without_any_number_nothing_decides_and_it_is_not_zero() -> None:
    assert Peaks(absent={"process": "no driver"}).deciding_bytes is None


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (2, BadInput),
        (3, NothingFits),
        (4, EnvironmentUnable),
        (4, NotBuiltYet),
        (5, ToolFailure),
        (130, Interrupted),
    ],
)
def test_every_error_has_its_exit_code(code: int, kind: type[AutotuneError]) -> None:
    assert code == kind("what happened.", "What to do.").exit_code
    assert str(kind("what happened.", "What to do.")) == "what happened. What to do."


def test_what_is_allowed_is_stored_in_one_order() -> None:
    # a search is resumed when it is the same document, from a process with another hash seed
    allowed = frozenset(ALLOWABLE)
    job = gpu_result().job.model_copy(update={"allow": allowed})
    assert sorted(allowed) == job.model_dump(mode="json")["allow"]
    assert allowed == Job.model_validate_json(job.model_dump_json()).allow


def test_a_full_disk_is_known_by_its_number_and_by_its_words_however_deep() -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "a.arrow")
    outer = ValueError("could not generate")
    outer.__cause__ = full
    for error in (full, outer):
        said = disk_full(error)
        assert said is not None
        assert "the disk is full at a.arrow: No space left on device." == said.message
    assert disk_full(RuntimeError("I/O error: No space left on device (os error 28)"))
    assert disk_full(OSError(errno.EACCES, "Permission denied")) is None


def test_the_nearest_name_is_offered_and_a_far_one_is_not() -> None:
    assert nearest("max_lenght", ["max_length", "packing"]) == "; did you mean 'max_length'?"
    assert nearest("zzz", ["max_length", "packing"]) == ""


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    file = tmp_path / "result.json"
    file.write_text(gpu_result().model_dump_json(), encoding="utf-8")
    return file


def test_a_result_is_read_from_its_folder_and_from_its_file(stored: Path) -> None:
    assert read_result(stored) == read_result(stored.parent) == gpu_result()


@pytest.mark.parametrize(
    ("field", "value"),
    [("schema_version", 2), ("trials", "none"), ("budget", {"total_bytes": 0}), ("surprise", 1)],
)
def test_a_damaged_result_is_bad_input_that_names_the_field(
    stored: Path, field: str, value: object
) -> None:
    document = json.loads(stored.read_text(encoding="utf-8"))
    document[field] = value
    stored.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(BadInput, match=field):
        read_result(stored)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[]", b"null"])
def test_a_file_that_is_no_result_is_bad_input(stored: Path, content: bytes) -> None:
    stored.write_bytes(content)
    with pytest.raises(BadInput, match=r"result\.json"):
        read_result(stored)


def test_a_missing_result_is_bad_input_that_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="folder"):
        read_result(tmp_path)
