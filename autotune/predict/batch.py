"""Rows of given lengths in the columns a trainer's preparation leaves, for its own collator.

The tokens mean nothing; lengths, labels and document boundaries are the batch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.predict.request import Documents, Judged, Pair, Row

#: Any token that is no special one.
_TOKEN = 3
_IGNORED = -100
#: Stands for log-probabilities of the reference that were computed beforehand.
_LOGP = -1.0


def columns(rows: Sequence[Row], *, packed: bool) -> list[dict[str, Any]]:
    """Return prepared rows, one mapping each.

    Args:
        rows: their lengths.
        packed: SFT rows say where their documents end.
    """
    return [_row(row, packed) for row in rows]


def _row(row: Row, packed: bool) -> dict[str, Any]:
    if isinstance(row, Documents):
        return _documents(row, packed)
    if isinstance(row, Pair):
        found = {"chosen_ids": _ids(row.chosen), "rejected_ids": _ids(row.rejected)}
        logps = {"ref_chosen_logps": _LOGP, "ref_rejected_logps": _LOGP}
        return {"prompt_ids": _ids(row.prompt), **found, **logps} if row.prompt else found
    assert isinstance(row, Judged)
    return {
        "prompt_ids": _ids(row.prompt),
        "completion_ids": _ids(row.completion),
        "label": row.desirable,
        "ref_logps": _LOGP,
        "ref_KL_logps": _LOGP,
    }


def _documents(row: Documents, packed: bool) -> dict[str, Any]:
    tokens = sum(row.tokens)
    trained = tokens if row.label_tokens is None else min(row.label_tokens, tokens)
    labels = [_IGNORED] * (tokens - trained) + [_TOKEN] * trained
    found: dict[str, Any] = {"input_ids": _ids(tokens), "labels": labels}
    return {**found, "seq_lengths": list(row.tokens)} if packed else found


def _ids(tokens: int) -> list[int]:
    return [_TOKEN] * tokens
