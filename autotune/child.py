"""Entry of every measuring process: ``python -m autotune.child``.

Puts the probe's child and the tracer, which know nothing of each other, into one process: a trace
then starts from the same warm server, with torch and the trainers already imported.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from autotune.probe.child.__main__ import main
from autotune.probe.progress import ProgressFile
from autotune.probe.protocol import Reply, Trace, TraceSpec


def trace(spec: TraceSpec, work_dir: Path) -> Reply:
    """Answer requests to trace one after the other, until the time is over.

    Args:
        spec: the requests.
        work_dir: where progress is told.
    """
    from autotune.predict.request import TraceRequest
    from autotune.predict.trace import Tracer

    tracer = Tracer()
    progress = ProgressFile(work_dir)
    until = time.monotonic() + spec.seconds
    traces: list[Trace] = []
    for number, document in enumerate(spec.requests):
        if time.monotonic() > until:
            break
        progress.tell("trace", number, len(spec.requests))
        traces.append(tracer.answer(TraceRequest.model_validate(document)))
    return Reply(traces=tuple(traces))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], trace))
