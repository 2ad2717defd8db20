"""Predicts what candidates hold and do, by running the installed trainer on fake tensors.

Candidates that differ only in their batch share one run, equal batches are run once, and models
whose layers repeat are run at two small depths and extended. Nothing here measures.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from autotune.core.traced_step import TracedStep
from autotune.predict.depth import Depth, depth_of, shallow_copy
from autotune.predict.extend import by_place, extended
from autotune.predict.followed import Followed, step_of
from autotune.predict.refusals import refuse
from autotune.predict.request import Row, TraceRequest
from autotune.predict.run import follow_batches
from autotune.predict.target_rules import rules_for

#: Farthest an extended peak may be from the same depth traced whole (DESIGN.md 6).
TOLERANCE = 0.005
#: Options that only decide which rows make a batch; rows are given.
_ROWS_ONLY = ("max_length", "per_device_train_batch_size", "gradient_accumulation_steps")


def trace(request: TraceRequest, *, whole: bool = False) -> TracedStep:
    """Return what one candidate's step holds and does.

    Args:
        request: the candidate and the rows of its micro-batch.
        whole: run the model at its full depth.

    Raises:
        Untraceable: something of it cannot be traced.
    """
    return next(iter(trace_all([request], whole=whole)))


def trace_all(requests: Sequence[TraceRequest], *, whole: bool = False) -> list[TracedStep]:
    """Return what the steps of several candidates hold and do, in order.

    Args:
        requests: candidates and rows.
        whole: run models at their full depth.

    Raises:
        Untraceable: something of a candidate cannot be traced.
    """
    groups: dict[str, list[TraceRequest]] = {}
    keyed = [(run_key(request), request) for request in requests]
    for key, request in keyed:
        groups.setdefault(key, []).append(request)
    answers: dict[tuple[str, tuple[Row, ...]], TracedStep] = {}
    for key, group in groups.items():
        batches = list(dict.fromkeys(request.rows for request in group))
        followed, notes = _follow(group[0], batches, whole)
        for rows, seen in zip(batches, followed, strict=True):
            answers[key, rows] = step_of(seen, notes)
    return [answers[key, request.rows] for key, request in keyed]


def run_key(request: TraceRequest) -> str:
    """Return what requests must share to share a run."""
    plain = request.model_dump(mode="json", exclude={"rows"})
    plain["options"] = {k: v for k, v in plain["options"].items() if k not in _ROWS_ONLY}
    return json.dumps(plain, sort_keys=True, default=str)


def _follow(
    request: TraceRequest, batches: list[tuple[Row, ...]], whole: bool
) -> tuple[list[Followed], tuple[str, ...]]:
    """Follow batches at two small depths and extend them, or at the model's own depth."""
    rules = tuple(rule.says for rule in rules_for(request.target, request.options))
    config = Path(request.model_dir) / "config.json"
    text = config.read_text(encoding="utf-8")
    refuse(request, text)
    depth = depth_of(text)
    if depth.shallow is not None and not whole:
        found = _extended(request, batches, text, depth)
        if found is not None:
            note = (
                f"{depth.layers} layers were extended from {depth.shallow[0]} and "
                f"{depth.shallow[1]}."
            )
            return found, (*rules, note)
    return follow_batches(request, config.parent, batches), rules


def _extended(
    request: TraceRequest, batches: list[tuple[Row, ...]], text: str, depth: Depth
) -> list[Followed] | None:
    """Extend two shallow runs; None where a third does not bear them out."""
    assert depth.shallow is not None and depth.period is not None
    low, high, check = depth.shallow
    period = depth.period
    with tempfile.TemporaryDirectory(prefix="autotune-depth-") as folder:

        def at(layers: int, asked: list[tuple[Row, ...]]) -> list[Followed]:
            copy = shallow_copy(text, layers, Path(folder) / str(layers))
            seen = follow_batches(request, copy, asked)
            return [by_place(followed, layers, period) for followed in seen]

        pairs = list(zip(at(low, batches), at(high, batches), strict=True))
        first = min(range(len(batches)), key=lambda n: _tokens(batches[n]))
        expected = extended(*pairs[first], (low, high), check)
        if expected is None or not _agree(expected, at(check, [batches[first]])[0]):
            return None
    found = [extended(*pair, (low, high), depth.layers) for pair in pairs]
    return [f for f in found if f is not None] if all(found) else None


def _tokens(rows: tuple[Row, ...]) -> int:
    return sum(row.all_tokens for row in rows)


def _agree(expected: Followed, seen: Followed) -> bool:
    mine, real = step_of(expected).peak_bytes, step_of(seen).peak_bytes
    return abs(mine / real - 1.0) <= TOLERANCE
