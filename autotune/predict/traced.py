"""Predicts what candidates hold and do, by running the installed trainer on fake tensors.

Candidates that differ only in their batch share one run, equal batches are run once, and models
whose layers repeat are run at two small depths and extended. Nothing here measures.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from autotune.core.job import Trainer
from autotune.core.traced_step import TracedStep
from autotune.predict.depth import Depth, depth_of, shallow_copy
from autotune.predict.extend import by_place, extended
from autotune.predict.followed import Followed, step_of
from autotune.predict.refusals import refuse
from autotune.predict.request import Row, TraceRequest
from autotune.predict.run import follow_batches
from autotune.predict.shapes_fit import TRIED, BatchSize, chosen, fitted, joins, size_of
from autotune.predict.target_rules import is_flash, rules_for

#: Farthest an extended peak may be from the same depth traced whole (DESIGN.md 6).
TOLERANCE = 0.005
#: And farthest its work may be.
WORK_TOLERANCE = 0.01
#: Options that only decide which rows make a batch; rows are given.
_ROWS_ONLY = ("max_length", "per_device_train_batch_size", "gradient_accumulation_steps")
#: Options that join rows.
_JOINING = ("packing", "packing_strategy", "padding_free")
#: What every FlashAttention library is called here.
FLASH = "flash_attention_2"


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
        shared = json.loads(key)["options"]
        followed, notes = _follow_many(
            group[0].model_copy(update={"options": shared}), batches, whole
        )
        for rows, seen in zip(batches, followed, strict=True):
            answers[key, rows] = step_of(seen, notes)
    return [answers[key, request.rows] for key, request in keyed]


def run_key(request: TraceRequest) -> str:
    """Return what requests must share to share a run: what their rows do not already say.

    Rows joined into one are alike whether they were packed or only flattened, and every library of
    FlashAttention has the same kernels.
    """
    plain = request.model_dump(mode="json", exclude={"rows"})
    options = {k: v for k, v in plain["options"].items() if k not in _ROWS_ONLY}
    if request.trainer is Trainer.SFT and joins(options):
        options = {k: v for k, v in options.items() if k not in _JOINING} | {"packing": True}
    if is_flash(options):
        options["attn_implementation"] = FLASH
    return json.dumps({**plain, "options": options}, sort_keys=True, default=str)


def _follow_many(
    request: TraceRequest, batches: list[tuple[Row, ...]], whole: bool
) -> tuple[list[Followed], tuple[str, ...]]:
    """Follow some of many batches and fit the others to them, where that holds."""
    sizes = [size_of(rows, request.options) for rows in batches]
    alike: dict[str, list[int]] = {}
    for number, (_, kind) in enumerate(sizes):
        alike.setdefault(kind, []).append(number)
    asked = {
        kind: [members[n] for n in chosen([sizes[m][0] for m in members])]
        for kind, members in alike.items()
    }
    if whole or not _sums_up(request):
        asked = alike
    traced = [number for members in asked.values() for number in members]
    seen, notes = _follow(request, [batches[n] for n in traced], whole)
    found = dict(zip(traced, seen, strict=True))
    fits = 0
    for kind, members in alike.items():
        others = [n for n in members if n not in found]
        guessed = _fit([sizes[n][0] for n in asked[kind]], [found[n] for n in asked[kind]],
                       [sizes[n][0] for n in others]) if others else []  # fmt: skip
        if guessed is None:
            guessed = _follow(request, [batches[n] for n in others], whole)[0]
        else:
            fits += len(others)
        found.update(zip(others, guessed, strict=True))
    if fits:
        notes = (*notes, "Batches of many sizes were fitted to those of a few that were traced.")
    return [found[n] for n in range(len(batches))], notes


def _sums_up(request: TraceRequest) -> bool:
    """Whether what a step holds is a sum of terms that grow with the batch.

    On the CPU the last of the tiles of TRL's head decides; offloading keeps so many tensors,
    whatever their size.
    """
    return request.target != "cpu" and not request.options.get("activation_offloading")


def _fit(
    sizes: list[BatchSize], seen: list[Followed], wanted: list[BatchSize]
) -> list[Followed] | None:
    """Fit batches to traced ones; None where those kept for trying do not bear it out."""
    known, tried = slice(None, -TRIED), slice(-TRIED, None)
    expected = fitted(sizes[known], seen[known], sizes[tried])
    if expected is None or not all(
        _agree(a, b) and _do_the_same(a, b) for a, b in zip(expected, seen[tried], strict=True)
    ):
        return None
    return fitted(sizes, seen, wanted)


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


def _do_the_same(expected: Followed, seen: Followed) -> bool:
    """Whether two micro-steps differ by no more than `WORK_TOLERANCE` in what they do."""
    mine, real = (
        (sum(w.flops for w in f.micro_step), sum(w.moved_bytes for w in f.micro_step))
        for f in (expected, seen)
    )
    return all(abs(a / b - 1.0) <= WORK_TOLERANCE for a, b in zip(mine, real, strict=True))
