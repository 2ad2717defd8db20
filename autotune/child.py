"""Entry of every measuring process: ``python -m autotune.child``.

Puts the probe's child and the tracer, which know nothing of each other, into one process: a trace
then starts from the same warm server, with torch and the trainers already imported.
"""

from __future__ import annotations

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

_OVER = "the time for tracing was over before it was reached"


def answer(spec: TraceSpec, work_dir: Path) -> Reply:
    """Answer requests to trace, those that share a run together, until the time is over.

    Args:
        spec: the requests.
        work_dir: where progress is told.
    """
    from autotune.predict.request import TraceRequest
    from autotune.predict.traced import run_key

    tempfile.tempdir = str(work_dir)  # what a tracer leaves that is ended goes with its folder
    requests = [TraceRequest.model_validate(document) for document in spec.requests]
    groups: dict[str, list[int]] = {}
    for number, request in enumerate(requests):
        groups.setdefault(run_key(request), []).append(number)
    progress = ProgressFile(work_dir)
    until = time.monotonic() + spec.seconds
    traces = [Trace(refusal=_OVER)] * len(requests)
    done = 0
    for members in groups.values():
        if time.monotonic() > until:
            break
        progress.tell("trace", done, len(requests))
        answers = _together([requests[number] for number in members])
        for number, trace in zip(members, answers, strict=True):
            traces[number] = trace
        done += len(members)
    return Reply(traces=tuple(traces))


def _together(requests: Sequence[TraceRequest]) -> list[Trace]:
    """Trace requests in one run; what it dies of is their answer and not the others'."""
    from autotune.predict.traced import trace_all

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
