"""What is kept with all that comes before it, against counting label by label."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.core.kept import (
    Documents,
    Reference,
    documents,
    kept_labels,
    least_length,
    unlabelled_rows,
    useful_ratio,
)
from autotune.core.lengths import Lengths
from tests.unit.core.test_lengths import completions, plain


def counted(
    tokens: list[int], labels: list[list[int]], length: int, packing: str, reference: Reference
) -> int:
    """Count the labels that see as far back as under the reference, one by one."""
    kept = begun = 0
    for size, trained in zip(tokens, labels, strict=True):
        for at in trained:
            wanted = at // reference.length * reference.length
            if not reference.splits and wanted:
                continue  # beyond the reference
            begins = at // length * length if packing == "bfd_split" else 0
            if packing == "wrapped":
                begins = max((begun + at) // length * length - begun, 0)
            if packing in ("none", "bfd") and at >= length:
                continue
            kept += begins <= wanted
        begun += size
    return kept


def of(tokens: list[int], labels: list[list[int]]) -> Lengths:
    size = np.array(tokens, dtype=np.int64)
    flat = np.concatenate([np.asarray(row, dtype=np.int64) for row in labels])
    return Lengths(
        tokens=size,
        labels=np.array([len(row) for row in labels], dtype=np.int64),
        label_positions=np.bincount(flat, minlength=int(size.max())),
        first_labels=np.array(
            [row[0] if row else n for n, row in zip(tokens, labels, strict=True)], dtype=np.int64
        ),
    )


@pytest.mark.parametrize("reference", [Reference(16), Reference(40), Reference(16, splits=True)])
@pytest.mark.parametrize("packing", ["none", "bfd", "bfd_split"])
@pytest.mark.parametrize("length", [5, 8, 16, 24, 48])
def test_labels_between_masked_turns_are_counted_exactly(
    reference: Reference, packing: str, length: int
) -> None:
    rng = np.random.default_rng(length)
    tokens = [int(n) for n in rng.integers(1, 60, 30)]
    labels = [[at for at in range(n) if rng.random() < 0.4] for n in tokens]
    assert counted(tokens, labels, length, packing, reference) == kept_labels(
        of(tokens, labels), length, packing, reference
    )


@pytest.mark.parametrize("reference", [Reference(16), Reference(60), Reference(16, splits=True)])
@pytest.mark.parametrize("length", [8, 16, 24, 5000])
def test_joined_rows_keep_what_lies_before_the_first_border(
    reference: Reference, length: int
) -> None:
    tokens = [int(n) for n in np.random.default_rng(3).integers(1, 60, 40)]
    labels = [list(range(n)) for n in tokens]
    expected = counted(tokens, labels, length, "wrapped", reference)
    assert expected == pytest.approx(
        kept_labels(plain(*tokens), length, "wrapped", reference), abs=1e-6
    )


def test_every_document_is_whole_cut_split_or_left_out() -> None:
    lengths = completions((10, 10), (30, 10), (5, 40))
    assert Documents(1, 1, 0, 1, 0) == documents(lengths, 25, "none")
    assert Documents(1, 2, 0, 0, 1) == documents(lengths, 25, "bfd")
    assert Documents(1, 0, 2, 0, 1) == documents(lengths, 25, "bfd_split")
    assert Documents(1, 0, 2, 0, 1) == documents(lengths, 25, "wrapped")
    assert Documents(3, 0, 0, 0, 0) == documents(lengths, None, "none")
    assert Documents(3, 0, 0, 0, 0) == documents(lengths, 200, "wrapped")


def test_the_least_length_keeps_a_trained_token_of_every_row_that_has_one() -> None:
    lengths = completions((150, 1), (10, 10), (170, 0))
    assert 151 == least_length(lengths)
    assert not unlabelled_rows(lengths, 151).any()
    assert [True, False, False] == unlabelled_rows(lengths, 150).tolist()


def test_tokens_beyond_the_reference_or_out_of_context_are_not_useful() -> None:
    lengths = plain(100, 300)
    assert 1.0 == useful_ratio(lengths, 200, "bfd", Reference(200))
    assert 0.75 == useful_ratio(lengths, 300, "none", Reference(200))
    assert 0.5 == useful_ratio(lengths, 100, "bfd_split", Reference(300))
    assert 1.0 == useful_ratio(lengths, 300, "bfd_split", Reference(300))


def test_tokens_beside_no_label_are_not_useful() -> None:
    lengths = completions((90, 10), (0, 100), (100, 0))
    # cut at 50, the first row has a prompt only; packed, it is run through the model all the same
    assert 0.5 == useful_ratio(completions((90, 10), (0, 100)), 50, "bfd", Reference(100))
    assert 2 / 3 == pytest.approx(useful_ratio(lengths, None, "none", Reference(100)))
