"""Validity rules about rows and batches: length, packing, padding, order.

Each returns None when it has nothing against a candidate, else a reason a person reads.
"""

from __future__ import annotations

from autotune.core.candidate import Candidate
from autotune.core.job import Trainer
from autotune.core.positions import Positions
from autotune.knobs.facts import Facts
from autotune.knobs.translate import settings

#: KTO's only loss without the KL term that compares the rows of a batch (trl/trainer/kto_trainer).
_WITHOUT_KL = "apo_zero_unpaired"


def packing_needs_a_length(candidate: Candidate, facts: Facts) -> str | None:
    """TRL: "When packing is enabled, `max_length` can't be `None`"."""
    if candidate.get("packing", "none") != "none" and candidate.get("max_length") is None:
        return "packing needs a max_length: it is the length of a packed row"
    return None


def length_within_positions(candidate: Candidate, facts: Facts) -> str | None:
    """A row must not be longer than a table of positions, its pad multiple included."""
    if facts.positions is None or not facts.positions.fixed:
        return None
    return _beyond(candidate, facts, facts.positions)


def length_within_training(candidate: Candidate, facts: Facts) -> str | None:
    """Rotary positions go on beyond those a model was trained on; nothing says it is of use there.

    A length the user set themselves is theirs.
    """
    return None if facts.longest_tried is None else beyond_training(candidate, facts)


def beyond_training(candidate: Candidate, facts: Facts) -> str | None:
    """Say how far rows reach beyond positions a model goes on at, but was not made for."""
    if facts.positions is None or facts.positions.fixed:
        return None
    return _beyond(candidate, facts, facts.positions)


def _beyond(candidate: Candidate, facts: Facts, positions: Positions) -> str | None:
    length, longest = candidate.get("max_length"), facts.lengths.longest
    # Packed rows are filled up to max_length; other rows are as long as they are.
    packed = candidate.get("packing", "none") != "none"
    widest = longest if not isinstance(length, int) else length if packed else min(length, longest)
    if widest > positions.most:
        return (
            f"max_length {_shown(length)} lets rows be {widest} tokens long, beyond the model's "
            f"{positions.most} positions ({positions.field})"
        )
    multiple = candidate.get("pad_to_multiple_of")
    if isinstance(multiple, int) and multiple > 0:
        padded = -(-widest // multiple) * multiple
        if padded > positions.most:
            return (
                f"pad_to_multiple_of {multiple} widens {widest} tokens to {padded}, beyond the "
                f"model's {positions.most} positions ({positions.field})"
            )
    return None


def batch_within_the_rows(candidate: Candidate, facts: Facts) -> str | None:
    """There must be a micro-batch: one that is not full is left out by ``dataloader_drop_last``.

    Without it a micro-batch is as large as there are rows (`autotune.knobs.placebos`).
    """
    batch = int(candidate.get("per_device_train_batch_size") or 1)
    rows, what = _rows_left(candidate, facts)
    if batch > rows:
        dropped = ", and dataloader_drop_last leaves it out" if facts.drops_last else ""
        return f"a batch of {batch} is more than the {rows} {what} there are{dropped}"
    return None


def packed_rows_are_filled(candidate: Candidate, facts: Facts) -> str | None:
    """A packed row longer than all rows together is one short batch, whatever it is called."""
    length, packing = candidate.get("max_length"), candidate.get("packing", "none")
    tokens = facts.trained_tokens
    if packing == "none" or not isinstance(length, int) or length <= tokens:
        return None
    return f"all rows together have {tokens} tokens: nothing fills a packed row of {length}"


def streams_fill_an_update(candidate: Candidate, facts: Facts) -> str | None:
    """transformers begins a stream anew when it ends, and an unfinished update with it, for ever.

    Other rows are counted beforehand, and the last update of a pass is made of what is left.
    """
    if not facts.streams:
        return None
    batch = int(candidate.get("per_device_train_batch_size") or 1)
    accumulation = settings(candidate, facts).accumulation
    rows, what = _rows_left(candidate, facts)
    if -(-rows // batch) < accumulation:
        return f"the {rows} {what} of the stream never fill an update of {batch} x {accumulation}"
    return None


def _rows_left(candidate: Candidate, facts: Facts) -> tuple[int, str]:
    """Return how many rows there are to train on, and what they are."""
    length, packing = candidate.get("max_length"), str(candidate.get("packing", "none"))
    length = length if isinstance(length, int) else None
    rows = facts.rows_left(length, packing)
    if packing != "none":
        return rows, "packed rows"
    if facts.lengths.drops_longer and length is not None:  # Reward leaves longer ones out
        return rows, f"rows of {length} tokens or less"
    every = rows == len(facts.lengths.trained)
    return rows, "rows" if every else f"rows with a trained token at {length} tokens"


def _shown(length: object) -> str:
    return "null" if length is None else str(length)


def rows_are_prepared_by_trl(candidate: Candidate, facts: Facts) -> str | None:
    """With ``skip_prepare_dataset`` TRL neither truncates nor packs."""
    kwargs = facts.option("dataset_kwargs") or {}
    if kwargs.get("skip_prepare_dataset") and candidate.get("packing", "none") != "none":
        return "dataset_kwargs.skip_prepare_dataset skips packing"
    return None


def streams_are_not_cut_beforehand(candidate: Candidate, facts: Facts) -> str | None:
    """Padding-free rows without packing are cut by us and written; a stream is not all there."""
    flattens = candidate.get("padding_free") and candidate.get("packing", "none") == "none"
    if facts.streams and flattens and facts.option("max_length") is not None:
        return (
            "padding_free needs rows cut to max_length beforehand, and a stream cannot be written "
            "cut"
        )
    return None


def streams_have_no_reference_beforehand(candidate: Candidate, facts: Facts) -> str | None:
    """TRL: "`precompute_ref_log_probs=True` is not supported with IterableDataset"."""
    if facts.streams and candidate.get("precompute_ref_log_probs"):
        return "precompute_ref_log_probs runs over all rows first, and a stream is not all there"
    return None


def lengths_are_known_to_the_sampler(candidate: Candidate, facts: Facts) -> str | None:
    """transformers' length-grouped sampler reads ``input_ids``, which preference rows have not."""
    grouped = candidate.get("train_sampling_strategy") == "group_by_length"
    if grouped and facts.job.trainer is not Trainer.SFT:
        return (
            f"group_by_length needs rows with input_ids, and those of {facts.job.trainer.value} "
            "have two sides instead"
        )
    return None


def kto_compares_rows_of_a_batch(candidate: Candidate, facts: Facts) -> str | None:
    """KTO estimates its KL term from the other rows of a batch: order and size are bound to it."""
    if facts.job.trainer is not Trainer.KTO or facts.option("loss_type") == _WITHOUT_KL:
        return None
    if int(candidate.get("per_device_train_batch_size") or 1) < 2:
        return "KTO compares the rows of a micro-batch: a batch of 1 has nothing to compare"
    strategy = candidate.get("train_sampling_strategy", "sequential")
    if strategy != "sequential":
        return f"KTO pairs rows beforehand, and the order {strategy} breaks the pairs"
    return None


ROW_RULES = (
    packing_needs_a_length,
    length_within_positions,
    length_within_training,
    rows_are_prepared_by_trl,
    streams_are_not_cut_beforehand,
    streams_have_no_reference_beforehand,
    lengths_are_known_to_the_sampler,
    kto_compares_rows_of_a_batch,
    batch_within_the_rows,
    packed_rows_are_filled,
    streams_fill_an_update,
)
