"""One function per validity rule: what the installed TRL would refuse, ignore or change.

Each rule takes the facts and a canonical candidate and returns None when it has nothing against
it, else a reason a person reads. Invalid candidates never cost a probe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autotune.core.candidate import Candidate
from autotune.core.job import ALLOWABLE, DEFAULT_CHANGES
from autotune.core.units import show_ratio
from autotune.knobs.changes import change_class
from autotune.knobs.facts import Facts
from autotune.knobs.translate import EFFECTIVE_BATCH_TOLERANCE, settings

Rule = Callable[[Candidate, Facts], str | None]


@dataclass(frozen=True)
class Verdict:
    """Say whether a candidate may be probed.

    Args:
        valid: whether it may.
        rule: name of the rule that is against it; empty when valid.
        reason: one sentence for a person; empty when valid.
    """

    valid: bool
    rule: str = ""
    reason: str = ""


def packing_needs_a_length(candidate: Candidate, facts: Facts) -> str | None:
    """TRL: "When packing is enabled, `max_length` can't be `None`"."""
    if candidate.get("packing", "none") != "none" and candidate.get("max_length") is None:
        return "packing needs a max_length: it is the length of a packed row"
    return None


def length_within_positions(candidate: Candidate, facts: Facts) -> str | None:
    """A row, its pad multiple included, must not be longer than the model's positions."""
    length = candidate.get("max_length")
    if facts.positions is None or not isinstance(length, int):
        return None
    # Packed rows are filled up to max_length; other rows are as long as they are.
    packed = candidate.get("packing", "none") != "none"
    widest = length if packed else min(length, facts.lengths.longest)
    if widest > facts.positions:
        return (
            f"max_length {length} lets rows be {widest} tokens long, beyond the model's "
            f"{facts.positions} positions"
        )
    multiple = candidate.get("pad_to_multiple_of")
    if isinstance(multiple, int) and multiple > 0:
        padded = -(-widest // multiple) * multiple
        if padded > facts.positions:
            return (
                f"pad_to_multiple_of {multiple} widens {widest} tokens to {padded}, beyond the "
                f"model's {facts.positions} positions"
            )
    return None


def selective_is_not_reentrant(candidate: Candidate, facts: Facts) -> str | None:
    """TRL refuses selective checkpointing with ``use_reentrant``."""
    kwargs = facts.option("gradient_checkpointing_kwargs") or {}
    if candidate.get("gradient_checkpointing") == "selective" and kwargs.get("use_reentrant"):
        return "selective checkpointing is non-reentrant and the config sets use_reentrant"
    return None


def offloading_needs_an_accelerator(candidate: Candidate, facts: Facts) -> str | None:
    """TRL's offloading context needs CUDA streams and raises on the CPU."""
    if candidate.get("activation_offloading") and facts.device.kind == "cpu":
        return "activation_offloading needs an accelerator; this job runs on the CPU"
    if candidate.get("activation_offloading") and facts.device.unified:
        return (
            "activation_offloading is pointless here: the device's memory is shared with the "
            "system, so nothing is moved away"
        )
    return None


def batch_within_the_rows(candidate: Candidate, facts: Facts) -> str | None:
    """A micro-batch cannot hold more rows than there are, packed ones included."""
    batch = int(candidate.get("per_device_train_batch_size") or 1)
    rows, what = len(facts.lengths), "rows"
    length, packing = candidate.get("max_length"), str(candidate.get("packing", "none"))
    if packing != "none" and isinstance(length, int):
        rows, what = facts.packed_rows(length, packing), "packed rows"
    if batch > rows:
        return f"a batch of {batch} is more than the {rows} {what} there are"
    return None


def effective_batch_held(candidate: Candidate, facts: Facts) -> str | None:
    """Sequences per update stay within 10 % of the user's unless that is allowed to change."""
    if "effective-batch" in facts.job.allow:
        return None
    wanted, got = facts.effective_batch, settings(candidate, facts).sequences_per_update
    if abs(got / wanted - 1.0) > EFFECTIVE_BATCH_TOLERANCE:
        return (
            f"one update would see {got:.1f} sequences instead of {wanted:.1f} "
            "(--allow effective-batch accepts that)"
        )
    return None


def enough_is_kept(candidate: Candidate, facts: Facts) -> str | None:
    """A candidate keeps at least the wanted share of the reference label tokens."""
    kept, least = retention(candidate, facts), facts.job.min_retention_ratio
    if kept < least:
        return (
            f"max_length {candidate.get('max_length')} keeps {show_ratio(kept)} of the label "
            f"tokens, less than the {show_ratio(least)} asked for (--min-retention)"
        )
    return None


def no_longer_than_the_reference(candidate: Candidate, facts: Facts) -> str | None:
    """An explicit max_length is only exceeded when the user allows it."""
    explicit = facts.job.options.get("max_length")
    length = candidate.get("max_length")
    if explicit is None or not isinstance(length, int) or "longer" in facts.job.allow:
        return None
    if length > int(explicit):
        return f"max_length {length} is beyond your own {explicit} (--allow longer accepts that)"
    return None


def change_is_allowed(candidate: Candidate, facts: Facts) -> str | None:
    """Changes of class mixing and model are only searched when the user allows them."""
    change = change_class(candidate, facts)
    if change in DEFAULT_CHANGES or change in facts.job.allow:
        return None
    advice = f"; --allow {change} accepts that" if change in ALLOWABLE else ""
    return f"it changes what is learned ({change}){advice}"


def rows_are_prepared_by_trl(candidate: Candidate, facts: Facts) -> str | None:
    """With ``skip_prepare_dataset`` TRL neither truncates nor packs."""
    kwargs = facts.option("dataset_kwargs") or {}
    if kwargs.get("skip_prepare_dataset") and candidate.get("packing", "none") != "none":
        return "dataset_kwargs.skip_prepare_dataset skips packing"
    return None


def streams_are_not_cut_beforehand(candidate: Candidate, facts: Facts) -> str | None:
    """Padding-free rows without packing are cut by us and written; a stream is not all there."""
    streams = facts.option("dataset_streaming") or facts.option("streaming")
    if streams and candidate.get("padding_free") and candidate.get("packing", "none") == "none":
        return "padding_free needs rows cut beforehand, and a stream cannot be written cut"
    return None


RULES: tuple[Rule, ...] = (
    packing_needs_a_length,
    length_within_positions,
    selective_is_not_reentrant,
    offloading_needs_an_accelerator,
    rows_are_prepared_by_trl,
    streams_are_not_cut_beforehand,
    batch_within_the_rows,
    no_longer_than_the_reference,
    enough_is_kept,
    effective_batch_held,
    change_is_allowed,
)

#: Rules the user's own config is not held to: it is measured as it is.
_FOR_CANDIDATES_ONLY = (
    length_within_positions,
    batch_within_the_rows,
    enough_is_kept,
    effective_batch_held,
    change_is_allowed,
    no_longer_than_the_reference,
)


def judge(candidate: Candidate, facts: Facts, *, own: bool = False) -> Verdict:
    """Return whether a candidate may be probed, and if not, why.

    Args:
        candidate: a canonical candidate.
        facts: job, rows and machine.
        own: it is the user's own config, which need not keep to what they asked of others.
    """
    for rule in RULES:
        if own and rule in _FOR_CANDIDATES_ONLY:
            continue
        reason = rule(candidate, facts)
        if reason is not None:
            return Verdict(False, rule.__name__, reason)
    return Verdict(True)


def retention(candidate: Candidate, facts: Facts) -> float:
    """Return the share of the reference label tokens a candidate keeps, 0..1.

    ``bfd_split`` and ``wrapped`` lose nothing; the others cut rows at ``max_length``.
    """
    reference = facts.lengths.labels_kept(facts.reference_length)
    if reference == 0:
        return 1.0
    length = candidate.get("max_length")
    if candidate.get("packing") in ("bfd_split", "wrapped") or length is None:
        return 1.0
    return min(1.0, facts.lengths.labels_kept(int(length)) / reference)
