"""Entry of every measuring process: ``python -m autotune.child``.

Puts the probe's child and the tracer, which know nothing of each other, into one process: a trace
then starts from the same warm server, with torch and the trainers already imported.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.core.errors import AutotuneError
from autotune.probe.child.__main__ import main
from autotune.probe.progress import ProgressFile
from autotune.probe.protocol import Reply, Trace, TraceSpec

if TYPE_CHECKING:
    from autotune.predict.request import TraceRequest

#: Copies beyond these gain little: each works out for itself what operations return.
_MOST_CORES = 8
_OVER = "the time for tracing was over before it was reached"


def answer(spec: TraceSpec, work_dir: Path) -> Reply:
    """Answer requests to trace, those that share a run together, until the time is over.

    Runs are spread over the cores there are; no answer depends on how many that is.

    Args:
        spec: the requests.
        work_dir: where progress is told.
    """
    from autotune.predict.forks import in_forks
    from autotune.predict.request import TraceRequest
    from autotune.predict.traced import run_key

    tempfile.tempdir = str(work_dir)  # what a tracer leaves that is ended goes with its folder
    requests = [TraceRequest.model_validate(document) for document in spec.requests]
    alike: dict[str, list[int]] = {}
    for number, request in enumerate(requests):
        alike.setdefault(run_key(request), []).append(number)
    groups = list(alike.values())
    until = time.monotonic() + spec.seconds

    def traced(group: int) -> list[Trace]:
        if time.monotonic() > until:
            return [Trace(refusal=_OVER)] * len(groups[group])
        return _together([requests[number] for number in groups[group]])

    progress = ProgressFile(work_dir)
    progress.tell("trace", 0, len(requests))
    traces: dict[int, Trace] = {}
    for group, answers in in_forks(traced, len(groups), _cores()):
        traces.update(zip(groups[group], answers, strict=True))
        progress.tell("trace", len(traces), len(requests))
    return Reply(traces=tuple(traces[number] for number in range(len(requests))))


def _cores() -> int:
    """Return how many copies of this process may trace at once; 1 where it must not be forked."""
    import torch

    if not sys.platform.startswith("linux") or torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return 1
    return min(_MOST_CORES, len(os.sched_getaffinity(0)))


def _together(requests: Sequence[TraceRequest]) -> list[Trace]:
    """Trace requests in one run; what it dies of is their answer and not the others'."""
    import torch

    from autotune.predict.traced import trace_all

    # Python is what takes the time, and a fork must not use its parent's threads
    torch.set_num_threads(1)
    try:
        return [Trace(step=step) for step in trace_all(requests)]
    except AutotuneError as error:
        refusal = error.message
    except Exception as error:  # noqa: BLE001  (outermost frame: a trainer may raise anything)
        print(traceback.format_exc(), file=sys.stderr)
        refusal = f"tracing it ended with {type(error).__name__}: {error}"
    return [Trace(refusal=refusal)] * len(requests)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], answer))
