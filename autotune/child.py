"""Entry of every measuring process: ``python -m autotune.child``.

Puts the probe's child and the tracer, which know nothing of each other, into one process: a trace
then starts from the same warm server, with torch and the trainers already imported.
"""

from __future__ import annotations

import sys
import time
import traceback
from pathlib import Path

from autotune.core.errors import AutotuneError
from autotune.probe.child.__main__ import main
from autotune.probe.progress import ProgressFile
from autotune.probe.protocol import Reply, Trace, TraceSpec


def answer(spec: TraceSpec, work_dir: Path) -> Reply:
    """Answer requests to trace one after the other, until the time is over.

    Args:
        spec: the requests.
        work_dir: where progress is told.
    """
    progress = ProgressFile(work_dir)
    until = time.monotonic() + spec.seconds
    traces: list[Trace] = []
    for number, document in enumerate(spec.requests):
        if time.monotonic() > until:
            break
        progress.tell("trace", number, len(spec.requests))
        traces.append(_trace(document))
    return Reply(traces=tuple(traces))


def _trace(document: dict[str, object]) -> Trace:
    """Trace one request; what it dies of is its own answer and not the others'."""
    from autotune.predict.request import TraceRequest
    from autotune.predict.traced import trace

    try:
        return Trace(step=trace(TraceRequest.model_validate(document)))
    except AutotuneError as error:
        return Trace(refusal=error.message)
    except Exception as error:  # noqa: BLE001  (outermost frame: a trainer may raise anything)
        print(traceback.format_exc(), file=sys.stderr)
        return Trace(refusal=f"tracing it ended with {type(error).__name__}: {error}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], answer))
