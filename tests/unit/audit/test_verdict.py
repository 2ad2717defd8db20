"""What the audit calls agreement, on made-up runs."""

from __future__ import annotations

from typing import Any

from tests.audit.trl_run import Done, MicroBatch
from tests.audit.verdict import alike, stopped, trained

BATCH = MicroBatch(rows=4, width=31, tokens=80, labels=76, ids=900)


def done(**changes: Any) -> Done:
    plain: dict[str, Any] = {
        "ending": "trains",
        "batches": (BATCH, BATCH),
        "losses": (7.5, 7.4),
        "grad_norms": (1.2, 1.1),
        "peak_bytes": 1_000_000,
    }
    return Done(**{**plain, **changes})


REFUSED = Done(ending="refused", said="ValueError: no\nlonger")
WIDER = done(batches=(BATCH.model_copy(update={"width": 32}), BATCH))


def test_an_accepted_combination_must_train() -> None:
    assert (True, "trains") == trained(done())
    assert (False, "is refused: ValueError: no longer") == trained(REFUSED)
    broken = Done(ending="breaks", said="0 of 2 updates were made")
    assert (False, "breaks in training: 0 of 2 updates were made") == trained(broken)


def test_a_rejected_combination_that_trl_refuses_agrees() -> None:
    assert (True, "is refused: ValueError: no longer") == stopped(REFUSED, ["peft"], [], "float32")


def test_a_warning_must_name_a_knob_of_the_fault() -> None:
    run = done(warnings=("trl: padding_free is ignored\nsince it is",))
    expected = (True, "trains and warns: trl: padding_free is ignored")
    assert expected == stopped(run, ["padding_free"], [], "float32")
    assert (False, "trains") == stopped(run, ["peft"], [], "float32")
    also = WIDER.model_copy(update={"warnings": run.warnings})
    assert (False, "trains") == stopped(run, ["padding_free"], [also], "float32")


def test_a_rejected_choice_may_provably_change_nothing() -> None:
    expected = (True, "trains, and does what a valid candidate does")
    assert expected == stopped(done(), ["peft"], [REFUSED, WIDER, done()], "float32")
    assert (False, "trains") == stopped(done(), ["peft"], [REFUSED, WIDER], "float32")


def test_merged_combinations_must_do_the_same() -> None:
    assert (True, "does the same") == alike(done(), done(), "float32", None)
    for other in (
        WIDER,
        done(peak_bytes=1_002_000),
        done(losses=(7.5, 7.4002)),
        done(grad_norms=(1.2, 1.101)),
        REFUSED,
    ):
        assert not alike(done(), other, "float32", None)[0]


def test_half_precision_is_compared_as_coarsely_as_it_computes() -> None:
    other = done(losses=(7.5, 7.401), grad_norms=(1.2, 1.101))
    assert alike(done(), other, "bfloat16", None)[0]


def test_a_spelling_trl_refuses_is_compared_once_it_is_put_right() -> None:
    agrees, words = alike(REFUSED, done(), "float32", done())
    assert agrees
    assert words.startswith("does the same once what TRL refuses is put right")
    assert not alike(REFUSED, done(), "float32", WIDER)[0]
    assert alike(REFUSED, done(), "float32", None)[0]
