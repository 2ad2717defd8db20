"""What prepared rows tell before any probe: stops that cost a run, and counted remarks.

The checks that need the rows as given are in ``survey``, those of the tokenizer in ``tokenizer``,
and remarks on what is not read in ``unread`` and ``unlearned``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from autotune.core.cut_words import Setting, cut_words
from autotune.core.errors import BadInput
from autotune.core.job import Trainer
from autotune.core.kept import SPLITTING, least_length
from autotune.core.lengths import Lengths
from autotune.core.positions import Positions
from autotune.core.profile import IMPLICIT_CUT, OWN_CUT, Notice
from autotune.dataset.scan import Column, tail_of


def check_prepared(lengths: Lengths) -> None:
    """Stop at rows that no run can train on.

    Raises:
        BadInput: rows without a token, or not one label in all rows; with row and lengths.
    """
    empty = np.flatnonzero(lengths.tokens == 0)
    if len(empty):
        raise BadInput(
            f"{len(empty)} of {len(lengths)} rows have no tokens, first row {int(empty[0]) + 1} "
            "(rows count from 1).",
            "Remove those rows: TRL's collator fails on them.",
        )
    if not lengths.labels.any():
        raise BadInput(
            f"none of the {len(lengths)} rows has a token to train on: row 1 has "
            f"{int(lengths.tokens[0])} tokens and {int(lengths.tokens[0])} labels of -100, "
            "and so have the others.",
            "Give labels other than -100, or leave the labels column out.",
        )


def check_left(lengths: Lengths, options: Mapping[str, Any], positions: Positions | None) -> None:
    """Stop where the longest ``max_length`` that may be tried leaves nothing to train on.

    Args:
        lengths: the rows, uncut.
        options: TRL options the user set; beyond rotary positions a length of theirs counts.
        positions: how long a sequence the model takes; None when unlimited.

    Raises:
        BadInput: no label of any row survives the cut; says how long rows are.
    """
    explicit = options.get("max_length")
    counts = positions is not None and (positions.fixed or "max_length" not in options)
    most = positions.most if positions is not None and counts else None
    limits = [n for n in (explicit, most) if n is not None]
    if not limits or options.get("truncation_mode") == "keep_end":
        return
    limit = min(limits)
    if lengths.labels_kept(limit) > 0:
        return
    if lengths.drops_longer:
        need = int(lengths.tokens.min())
        why = f"longer rows are left out, and the shortest has {need} tokens"
    else:
        first = lengths.first_labels
        before = 0 if first is None else int(first[lengths.labels > 0].min())
        need = before + 1
        cut = "split" if options.get("packing_strategy") in SPLITTING else "cut"
        why = f"rows are {cut} there, and {before} tokens come before the first one to train on"
    every = least_length(lengths)
    more = f"; from {every} on every row keeps a token to train on" if every > need else ""
    whose = f"max_length is {limit}"
    if limit != explicit and positions is not None:
        whose = f"the model has {limit} positions ({positions.field})"
    raise BadInput(
        f"no row is left to train on: {whose}, {why}.",
        f"Raise max_length to at least {need}{more}."
        if positions is None or need <= positions.most or not positions.fixed
        else f"Shorten the rows, or take a model with at least {need} positions.",
    )


def check_next_token(lengths: Lengths, options: Mapping[str, Any]) -> None:
    """Stop where no row has a second token: a language model learns to predict the next one.

    Args:
        lengths: the rows of sft, uncut.
        options: TRL options the user set.

    Raises:
        BadInput: every row is one token long, or is cut to one.
    """
    if options.get("max_length") == 1:
        raise BadInput(
            "max_length is 1: a row of one token has no next token to learn.",
            "Raise max_length to at least 2.",
        )
    if lengths.longest < 2:
        raise BadInput(
            f"all {len(lengths)} rows are one token long: there is no next token to learn.",
            "Give rows with text in them.",
        )


def remarks(lengths: Lengths, positions: Positions | None) -> tuple[Notice, ...]:
    """Return counted remarks on the prepared rows.

    Args:
        lengths: the rows, uncut.
        positions: how long a sequence the model takes; None when unlimited.
    """
    found = []
    rows = len(lengths)
    masked = np.flatnonzero(lengths.labels == 0)
    if len(masked):
        found.append(
            Notice(
                code="masked-rows",
                count=len(masked),
                message=f"{len(masked)} of {rows} rows have no label, first row "
                f"{int(masked[0]) + 1} with {int(lengths.tokens[masked[0]])} tokens, all -100: "
                "TRL drops them where it cuts to max_length and trains nothing on them elsewhere. "
                "(Rows count from 1.)",
            )
        )
    if positions is not None and lengths.longest > positions.most:
        beyond = np.flatnonzero(lengths.tokens > positions.most)
        found.append(
            Notice(
                code="beyond-positions",
                count=len(beyond),
                message=f"{len(beyond)} of {rows} rows are longer than the model's "
                f"{positions.most} positions ({positions.field}), first row "
                f"{int(beyond[0]) + 1} with {int(lengths.tokens[beyond[0]])} tokens: "
                f"{_beyond(lengths, positions)}. (Rows count from 1.)",
            )
        )
    if lengths.real is not None:
        padded = np.flatnonzero(lengths.real < lengths.tokens)
        pads = int((lengths.tokens - lengths.real).sum())
        first = int(padded[0])
        found.append(
            Notice(
                code="pre-padded",
                count=len(padded),
                message=f"{len(padded)} of {rows} rows are padded already, first row {first + 1} "
                f"with {int(lengths.tokens[first] - lengths.real[first])} pads: TRL drops the "
                f"attention mask, so {pads} pad tokens are computed and counted"
                f"{_trained_pads(lengths)}. Useful tokens leave them out. Remove the padding. "
                "(Rows count from 1.)",
            )
        )
    return tuple(found)


def _beyond(lengths: Lengths, positions: Positions) -> str:
    if not positions.fixed:
        return "it computes them, and was not trained on such positions"
    return "they are left out" if lengths.drops_longer else "they can only be trained cut"


def sampled_columns(
    columns: Mapping[str, Column], needed: Iterable[str], rows: int
) -> tuple[Notice, ...]:
    """Return a remark when the layout was recognised from a sample of the rows.

    Args:
        columns: what each column holds.
        needed: columns of the layout.
        rows: rows of the split.
    """
    sampled = [c for name, c in columns.items() if name in needed and c.scanned < rows]
    if not sampled:
        return ()
    scanned, names = sampled[0].scanned, ", ".join(repr(c.name) for c in sampled)
    tail = tail_of(scanned)
    return (
        Notice(
            code="sampled-recognition",
            count=scanned,
            message=f"{names}: the layout was recognised from {scanned:,} of {rows:,} rows, "
            f"{scanned - tail:,} spread evenly and the last {tail:,}; every row is read after that "
            "and one of another kind stops.",
        ),
    )


def _trained_pads(lengths: Lengths) -> str:
    return " and trained on" if bool((lengths.labels == lengths.tokens).any()) else ""


def own_cut(
    lengths: Lengths, trainer: Trainer, options: Mapping[str, Any], positions: int | None
) -> tuple[Notice, ...]:
    """Return a remark when the config's ``max_length``, or TRL's default, takes from the rows.

    Args:
        lengths: the rows, uncut.
        trainer: whose default counts.
        options: TRL options the user set.
        positions: longest sequence the model takes in tokens, None when it has no limit.
    """
    if _skips(options):
        return ()  # TRL neither cuts nor packs
    strategy = options.get("packing_strategy", "bfd")  # TRL's own default
    setting = Setting(
        given="max_length" in options,
        value=options.get("max_length"),
        default=default_max_length(trainer),
        packing=str(strategy) if options.get("packing") else "none",
    )
    words = cut_words(lengths, setting, trainer, positions)
    if not words:
        return ()
    code = OWN_CUT if setting.given else IMPLICIT_CUT
    return (Notice(code=code, count=lengths.rows_cut(setting.implied), message=words),)


def default_max_length(trainer: Trainer) -> int | None:
    """Return the ``max_length`` TRL takes when none is given (trl 1.16: 1024)."""
    import trl

    configs = {
        Trainer.SFT: trl.SFTConfig,
        Trainer.DPO: trl.DPOConfig,
        Trainer.REWARD: trl.RewardConfig,
        Trainer.KTO: trl.KTOConfig,
    }
    fields = {f.name: f for f in dataclasses.fields(configs[trainer])}
    default = fields["max_length"].default
    return default if isinstance(default, int) else None


def check_skip(options: Mapping[str, Any], tokenised: bool, columns: list[str]) -> bool:
    """Return whether the user skips TRL's preparation; stop where the rows do not allow it.

    Raises:
        BadInput: rows that are not tokenised, or masks without labels.
    """
    if not _skips(options):
        return False
    if not tokenised:
        raise BadInput(
            "dataset_kwargs has skip_prepare_dataset, but the rows are not tokenised: found "
            f"columns {', '.join(columns)}, expected input_ids.",
            "Leave skip_prepare_dataset out, so that TRL tokenises the rows.",
        )
    masks = [name for name in ("completion_mask", "assistant_masks") if name in columns]
    if masks and "labels" not in columns:
        raise BadInput(
            f"dataset_kwargs has skip_prepare_dataset, so TRL would ignore column {masks[0]!r} "
            "and train on every token.",
            "Add a labels column with -100 where nothing is trained, or leave the option out.",
        )
    return True


def _skips(options: Mapping[str, Any]) -> bool:
    kwargs = options.get("dataset_kwargs")
    return isinstance(kwargs, dict) and bool(kwargs.get("skip_prepare_dataset"))
