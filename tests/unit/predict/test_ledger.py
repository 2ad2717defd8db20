"""The book of storages: what lived when, what for, and where."""

from __future__ import annotations

import pytest

from autotune.predict.followed import Followed, step_of
from autotune.predict.ledger import COMPONENTS, Ledger, Segment


def as_asked(size: int) -> int:
    return size


def by_512(size: int) -> int:
    return -(-size // 512) * 512


def test_the_peak_of_a_segment_is_the_most_that_lived_in_it() -> None:
    ledger = Ledger()
    ledger.come(100, "weights")
    ledger.mark(Segment("forward"))
    first = ledger.come(30, None)
    ledger.come(20, None)
    ledger.go(first)
    ledger.come(10, None)
    load, forward = ledger.heights(as_asked)
    assert 100 == load.total_bytes
    assert 150 == forward.total_bytes
    assert 130 == ledger.held_bytes(as_asked)


def test_a_segment_without_events_holds_what_there_was() -> None:
    ledger = Ledger()
    ledger.come(100, "weights")
    ledger.mark(Segment("forward"))
    assert [100, 100] == [height.total_bytes for height in ledger.heights(as_asked)]


def test_what_a_block_was_for_may_be_said_after_the_peak() -> None:
    ledger = Ledger()
    block = ledger.come(40, None)
    ledger.come(2, None)
    ledger.tag(block, "gradients")
    (height,) = ledger.heights(as_asked)
    split = dict(zip(COMPONENTS, height.split, strict=True))
    assert (40, 2) == (split["gradients"], split["temporaries"])


def test_what_the_forward_pass_leaves_behind_is_activations_and_around_the_loss_logits() -> None:
    ledger = Ledger()
    ledger.mark(Segment("forward", 0))
    ledger.come(7, None)
    ledger.mark(Segment("forward", "head"))
    ledger.come(5, None)
    ledger.tag_unknown("activations")
    split = dict(zip(COMPONENTS, ledger.heights(as_asked)[-1].split, strict=True))
    assert (7, 5) == (split["activations"], split["logits"])


def test_blocks_in_host_memory_take_none_of_the_device() -> None:
    ledger = Ledger()
    ledger.come(100, "weights")
    ledger.mark(Segment("forward", 0, batch=0))
    ledger.to_host(ledger.come(60, None))
    assert 100 == ledger.heights(as_asked)[-1].total_bytes
    assert 60 == ledger.host_heights()[0]
    assert 100 == ledger.held_bytes(as_asked)


def test_sizes_are_rounded_when_the_book_is_read() -> None:
    ledger = Ledger()
    ledger.come(1, "weights")
    ledger.come(513, "weights")
    assert 1536 == ledger.heights(by_512)[0].total_bytes


def test_a_step_names_its_highest_phase_and_its_split_adds_up() -> None:
    ledger = Ledger()
    ledger.come(100, "weights")
    spike = ledger.come(500, None)
    ledger.go(spike)
    ledger.mark(Segment("forward", 0, batch=0))
    ledger.come(50, None)
    step = step_of(Followed(tuple(ledger.heights(as_asked)), 150, 0, (), ()))
    assert ("load", 600) == (step.phase, step.peak_bytes)
    assert {"load": 600, "forward": 150} == step.phase_bytes
    assert step.peak_bytes == sum(step.split.values())


@pytest.mark.parametrize("phase", ["forward", "load", "optimizer_step"])
def test_only_a_forward_pass_within_backward_repeats_one(phase: str) -> None:
    ledger = Ledger()
    ledger.mark(Segment(phase))  # type: ignore[arg-type]
    assert not ledger.recomputes
    ledger.mark(Segment("backward", 3))
    assert ledger.recomputes
