"""An exception of the measuring process is written down with its types, not only its words."""

from __future__ import annotations

import errno

import pytest

from autotune.core.errors import EnvironmentUnable
from autotune.core.outcome import Outcome, Phase
from autotune.probe.child.failure import failure_of
from autotune.probe.judge_memory import memory_of
from autotune.probe.protocol import Failure


class EngineFull(MemoryError):
    """What a library might derive from Python's own class."""


def failure_from(error: Exception, cause: BaseException | None = None) -> Failure:
    try:
        if cause is None:
            raise error
        raise error from cause
    except Exception as caught:  # noqa: BLE001  (what the child's outermost frame does)
        return failure_of(caught, Phase.STEADY, 3)


def test_a_class_is_written_down_with_what_it_derives_from() -> None:
    failure = failure_from(EngineFull("slabs are gone"))
    assert failure.chain[0].types[-2:] == ("builtins.MemoryError", "builtins.Exception")
    assert memory_of(failure, "cpu") is Outcome.OOM_HOST


def test_what_an_exception_was_raised_from_is_part_of_it() -> None:
    failure = failure_from(ValueError("generation failed"), MemoryError())
    assert [raised.types[0] for raised in failure.chain] == [
        "builtins.ValueError",
        "builtins.MemoryError",
    ]
    assert memory_of(failure, "cpu") is Outcome.OOM_HOST


def test_what_was_suppressed_is_no_part_of_it() -> None:
    try:
        try:
            raise MemoryError
        except MemoryError:
            raise ValueError("a smaller table was used") from None
    except ValueError as error:
        failure = failure_of(error, Phase.LOAD, 0)
    assert memory_of(failure, "cpu") is None


@pytest.mark.parametrize(
    ("number", "expected"), [(errno.ENOMEM, Outcome.OOM_HOST), (errno.ENOENT, None)]
)
def test_an_error_of_the_system_is_judged_by_its_number(
    number: int, expected: Outcome | None
) -> None:
    failure = failure_from(OSError(number, "words", "/rows/out of memory.json"))
    assert failure.chain[0].errno == number
    assert memory_of(failure, "cpu") is expected


def test_where_it_was_raised_is_kept() -> None:
    assert failure_from(RuntimeError("x")).chain[0].frames[-1].endswith(":failure_from")


def test_the_traceback_is_that_of_the_exception_though_another_is_said_in_its_place() -> None:
    try:
        raise OSError(errno.ENOSPC, "No space left on device")
    except OSError:
        failure = failure_of(EnvironmentUnable("the disk is full."), Phase.LOAD, 0)
    assert failure.unable
    assert "No space left on device" in failure.traceback
