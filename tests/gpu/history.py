"""Records what an allocator was asked for while a candidate trained one update: a replay's fixture.

On a GPU the record is the caching allocator's own history (``torch.cuda.memory``), on the CPU the
profiler's memory events; both become one list of [address, bytes], bytes below zero when freed
(the profiler's address is always 0).
"""

from __future__ import annotations

import gc
import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autotune.probe.child.guard import guard_options
from autotune.probe.child.rows import take_rows
from autotune.probe.protocol import GuardSide, GuardSpec, ProbeSpec
from tests.gpu.lab import Lab

_MOST_EVENTS = 1_000_000


def record(lab: Lab, spec: ProbeSpec, name: str) -> dict[str, Any]:
    """Train one update in this process and write ``history-NAME.json.gz``; return its summary.

    Args:
        lab: device and folders.
        spec: the candidate; its worst rows are trained.
        name: of the file.
    """
    trainer = _trainer(lab, spec, name)
    events, sizes = (_on_gpu if lab.on_gpu else _on_cpu)(trainer.train)
    summary = {"events": len(events), **sizes}
    document = {"options": spec.options, "tokens": lab.tokens, **summary, "trace": events}
    file = lab.out / f"history-{name}.json.gz"
    # mtime 0: the same trace makes the same bytes
    file.write_bytes(gzip.compress(json.dumps(document).encode(), mtime=0))
    del trainer
    gc.collect()
    return summary


def _trainer(lab: Lab, spec: ProbeSpec, name: str) -> Any:
    from autotune.training.trainer import build_trainer

    packing = bool(spec.options.get("packing", False))
    rows = spec.plan.block if packing else spec.plan.worst[0]
    side = GuardSide(options=spec.options)
    alone = GuardSpec(
        trainer=spec.trainer,
        model_dir=spec.model_dir,
        weights="random",
        device=spec.device,
        rows_dir=spec.rows_dir,
        rows=rows,
        reference=side,
        candidate=side,
    )
    trainer = build_trainer(
        spec.trainer,
        options=guard_options(alone, side, lab.folder / name),
        model_dir=Path(spec.model_dir),
        weights="random",
        rows=take_rows(spec.trainer, spec.rows_dir, list(rows), None),
        device=spec.device,
    )
    batch = int(trainer.args.per_device_train_batch_size)
    trainer.args.gradient_accumulation_steps = math.ceil(len(trainer.train_dataset) / batch)
    return trainer


def _on_gpu(train: Callable[[], Any]) -> tuple[list[list[int]], dict[str, int]]:
    import torch

    torch.cuda.empty_cache()
    start = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.memory._record_memory_history(  # type: ignore[attr-defined]
        "all", context=None, max_entries=_MOST_EVENTS
    )
    train()
    torch.cuda.synchronize()
    snapshot = torch.cuda.memory._snapshot()  # type: ignore[attr-defined]
    torch.cuda.memory._record_memory_history(None)  # type: ignore[attr-defined]
    signs = {"alloc": 1, "free_completed": -1}
    events = [
        [int(event["addr"]), signs[event["action"]] * int(event["size"])]
        for event in snapshot["device_traces"][torch.cuda.current_device()]
        if event["action"] in signs
    ]
    return events, {
        "held_at_start_bytes": start,
        "allocated_peak_bytes": torch.cuda.max_memory_allocated(),
        "reserved_peak_bytes": torch.cuda.max_memory_reserved(),
    }


def _on_cpu(train: Callable[[], Any]) -> tuple[list[list[int]], dict[str, int]]:
    from torch.autograd import profiler

    make: Any = profiler.profile
    with make(profile_memory=True) as profile:
        train()
    memory = [e for e in profile.kineto_results.events() if e.name() == "[memory]"]
    memory.sort(key=lambda event: event.start_ns())
    events = [[0, int(event.nbytes())] for event in memory]
    live = highest = 0
    for _, size in events:
        live += size
        highest = max(highest, live)
    return events, {"held_at_start_bytes": 0, "allocated_peak_bytes": highest}
