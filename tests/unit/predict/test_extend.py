"""Shallow models extended to the depth of the real one."""

from __future__ import annotations

import numpy as np

from autotune.core.traced_step import Work
from autotune.predict.extend import by_place, extended
from autotune.predict.followed import Followed, step_of
from autotune.predict.ledger import COMPONENTS, Height, Segment

WEIGHTS, KEPT, SPIKE, LOGITS = 1000, 70, 30, 400


def height(segment: Segment, **split: int) -> Height:
    return Height(segment, np.array([float(split.get(name, 0)) for name in COMPONENTS]))


def seen(layers: int, period: int = 1) -> Followed:
    """What a model of equal layers holds on its way forward and back."""
    weights = WEIGHTS * layers
    heights = [height(Segment("load"), weights=weights)]
    for layer in range(layers):
        kept = KEPT * (layer + 1)
        forward = Segment("forward", layer, 0, 1)
        heights.append(height(forward, weights=weights, activations=kept, temporaries=SPIKE))
    head = Segment("backward", "head", 0, 1)
    heights.append(height(head, weights=weights, activations=KEPT * layers, logits=LOGITS))
    for layer in reversed(range(layers)):
        gradients = WEIGHTS * (layers - layer)
        back = Segment("backward", layer, 0, 1)
        kept = KEPT * (layer + 1)
        heights.append(height(back, weights=weights, gradients=gradients, activations=kept))
    work = (
        Work(kind="matmul", dtype="bfloat16", flops=9 * layers, moved_bytes=5, launches=layers),
    )
    return by_place(Followed(tuple(heights), weights, 3 * layers, work, work), layers, period)


def test_two_depths_say_what_a_third_one_holds() -> None:
    found = extended(seen(2), seen(3), (2, 3), 32)
    assert found is not None
    assert step_of(seen(32)) == step_of(found)


def test_the_peak_may_move_from_the_loss_to_the_last_gradients() -> None:
    shallow, deep = step_of(seen(2)), extended(seen(2), seen(3), (2, 3), 32)
    assert deep is not None
    assert "backward" == shallow.phase == step_of(deep).phase
    assert 0 == step_of(deep).split["logits"]
    assert 32 * WEIGHTS == step_of(deep).split["gradients"]


def test_work_and_what_is_held_grow_with_every_layer() -> None:
    found = extended(seen(2), seen(3), (2, 3), 32)
    assert found is not None
    assert 32 * WEIGHTS == found.held_bytes
    assert 96 == found.offloaded_bytes
    assert (288, 5, 32) == tuple(
        getattr(found.micro_step[0], name) for name in ("flops", "moved_bytes", "launches")
    )


def test_layers_far_from_both_ends_are_left_out() -> None:
    parts = {h.segment.part for h in seen(9, period=2).heights if h.segment.phase == "forward"}
    assert {0, 1, -2, -1} == parts


def test_runs_that_did_different_things_are_not_extended() -> None:
    other = seen(3)
    more = height(Segment("forward", "outside", 0, 2), weights=1)
    assert extended(seen(2), Followed((*other.heights, more), 0, 0, (), ()), (2, 3), 32) is None


def test_the_highest_of_several_visits_to_a_place_counts() -> None:
    twice = tuple(height(Segment("backward", 0, 0, 1), weights=n) for n in (5, 9, 7))
    (kept,) = by_place(Followed(twice, 0, 0, (), ()), 4, 1).heights
    assert 9 == kept.total_bytes
