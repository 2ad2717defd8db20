"""Which micro-batches are traced."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.core.job import Trainer
from autotune.core.lengths import Lengths
from autotune.knobs.facts import Facts
from autotune.knobs.passes import pass_shapes
from autotune.knobs.translate import settings
from autotune.predict.micro_batches import shape_of, timed_batches, worst_batch
from autotune.predict.request import Documents, Judged, Pair
from tests.support.facts import candidate_of, facts_of


def test_the_worst_batch_is_as_wide_as_the_longest_rows_and_as_rich_as_the_richest() -> None:
    facts = facts_of((100, 900, 500, 50), labels=(90, 10, 400, 50))
    rows = worst_batch(candidate_of(per_device_train_batch_size=2), facts)
    assert (
        Documents(tokens=(900,), label_tokens=400),
        Documents(tokens=(500,), label_tokens=90),
    ) == rows


def test_the_worst_batch_is_cut_and_padded_as_the_candidate_says() -> None:
    facts = facts_of((100, 900, 500))
    rows = worst_batch(candidate_of(per_device_train_batch_size=1, max_length=300), facts)
    assert (300, 300) == shape_of(rows, flattened=False)
    padded = worst_batch(
        candidate_of(per_device_train_batch_size=2, max_length=301, pad_to_multiple_of=64), facts
    )
    assert (640, 320) == shape_of(padded, flattened=False)
    assert {301} == {row.label_tokens for row in padded if isinstance(row, Documents)}


def test_a_packed_batch_is_of_the_fullest_rows_with_their_documents_apart() -> None:
    facts = facts_of((100, 100, 100, 40))
    packed = candidate_of(per_device_train_batch_size=1, max_length=200, packing="bfd")
    assert (Documents(tokens=(100, 100)),) == worst_batch(packed, facts)
    wrapped = packed.with_knobs(packing="wrapped")
    assert (Documents(tokens=(200,)),) == worst_batch(wrapped, facts)


def pair_facts(trainer: Trainer) -> Facts:
    facts = facts_of((60, 90))
    lengths = Lengths(
        tokens=np.asarray([60, 90]),
        labels=np.asarray([60, 70]),
        label_positions=np.zeros(90, dtype=np.int64),
        first_labels=np.asarray([20, 40]),
        chosen=np.asarray([60, 70]),
        rejected=np.asarray([40, 90]),
    )
    job = facts.job.model_copy(update={"trainer": trainer})
    return Facts(job, facts.defaults, facts.device, lengths, None, False, {})


def test_pairs_keep_their_prompt_and_both_sides() -> None:
    one = candidate_of(per_device_train_batch_size=1)
    assert (Pair(prompt=40, chosen=30, rejected=50),) == worst_batch(one, pair_facts(Trainer.DPO))
    assert (Pair(prompt=0, chosen=70, rejected=90),) == worst_batch(one, pair_facts(Trainer.REWARD))
    cut = one.with_knobs(max_length=50)
    assert (Pair(prompt=20, chosen=30, rejected=20),) == worst_batch(cut, pair_facts(Trainer.DPO))


def test_judged_rows_are_a_prompt_and_a_completion() -> None:
    facts = facts_of((60, 90), labels=(10, 30))
    job = facts.job.model_copy(update={"trainer": Trainer.KTO})
    kto = Facts(job, facts.defaults, facts.device, facts.lengths, None, False, {})
    rows = worst_batch(candidate_of(per_device_train_batch_size=1), kto)
    assert (Judged(prompt=60, completion=30),) == rows


@pytest.mark.parametrize("flattened", [False, True])
def test_timed_batches_determine_the_fit_and_span_the_passes(flattened: bool) -> None:
    facts = facts_of()
    candidates = [
        candidate_of(per_device_train_batch_size=n, padding_free=flattened) for n in (1, 4)
    ]
    passes = [pass_shapes(c, settings(c, facts), facts) for c in candidates]
    shapes = {
        shape_of(rows, flattened=flattened)
        for rows in timed_batches(passes, facts, flattened=flattened)
    }
    features = np.asarray([[1.0, t, t * w] for t, w in shapes])
    assert 3 == np.linalg.matrix_rank(features)
    assert max(int(p.width.max()) for p in passes) == max(w for _, w in shapes)


def test_label_rows_have_as_many_labels_as_an_average_row() -> None:
    facts = facts_of((100, 200), labels=(25, 50))
    candidate = candidate_of(per_device_train_batch_size=1)
    passes = [pass_shapes(candidate, settings(candidate, facts), facts)]
    row = timed_batches(passes, facts, flattened=False)[-1][0]
    assert Documents(tokens=(200,), label_tokens=50) == row
