"""The measuring process: as warm server, or for one request.

``--serve FD [PACKAGE ...]`` is the warm server, which leaves the packages to its children; ``--once
FD REQUEST`` does one request in a fresh process. FD is the reading end of the parent's pipe. This
is the child's outermost frame: every exception becomes a `Failure` in the reply. It is started
through ``autotune.child``, which also knows the tracer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path

from autotune.core.environment import Environment
from autotune.core.errors import disk_full
from autotune.core.outcome import Phase
from autotune.probe.child.failure import failure_of
from autotune.probe.child.lifeline import adopt_orphans, watch
from autotune.probe.documents import REPLY_FILE, read_request, write_document
from autotune.probe.protocol import (
    ConstructSpec,
    GuardSpec,
    InspectSpec,
    PrepareSpec,
    ProbeSpec,
    Reply,
    TraceSpec,
)

Tracer = Callable[[TraceSpec, Path], Reply]


def main(arguments: list[str], tracer: Tracer) -> int:
    """Run as server or for one request.

    Args:
        arguments: of the command line.
        tracer: answers requests to trace, which this package knows nothing of.
    """
    mode, lifeline, rest = arguments[0], int(arguments[1]), arguments[2:]
    if mode == "--serve":
        from autotune.probe.child.serve import serve

        serve(lifeline, partial(work, tracer=tracer), rest)
    # No parent-death signal here: it would end this process before `watch` can end its group.
    adopt_orphans()
    watch(lifeline)
    return work(Path(rest[0]), tracer)


def work(request_file: Path, tracer: Tracer) -> int:
    """Answer one request; never raises.

    Args:
        request_file: the request; the reply is written beside it.
        tracer: answers requests to trace.

    Returns:
        0 when the reply holds what was asked for, 1 when it holds a failure.
    """
    from autotune.probe.child.driver_guard import look_anew
    from autotune.probe.child.serve import import_libraries
    from autotune.probe.child.visible import choose_visible

    spec, machine = choose_visible(read_request(request_file).spec)
    look_anew()
    import_libraries()  # before memory is measured; a warm child has them
    if isinstance(spec, ProbeSpec | GuardSpec) and spec.device == "cpu":
        with suppress(ImportError, OSError, RuntimeError):  # a warm server for GPUs left it out
            import_module("bitsandbytes")
    work_dir = request_file.parent
    if isinstance(spec, ProbeSpec):
        reply = _probe(spec, work_dir)
    elif isinstance(spec, GuardSpec):
        reply = _guard(spec, work_dir)
    else:
        reply = _answer(spec, work_dir, tracer, machine)
    write_document(request_file.with_name(REPLY_FILE), reply)
    return 0 if reply.failure is None else 1


def _answer(
    spec: PrepareSpec | InspectSpec | ConstructSpec | TraceSpec,
    work_dir: Path,
    tracer: Tracer,
    machine: Environment | None,
) -> Reply:
    from autotune.probe.child.inspect import devices_named, inspect_environment
    from autotune.probe.child.prepare import run_prepare
    from autotune.probe.child.rates import measure_rates
    from autotune.training.arguments import parse_file

    try:
        if isinstance(spec, TraceSpec):
            return tracer(spec, work_dir)
        if isinstance(spec, InspectSpec):
            environment = inspect_environment(matmul=spec.matmul)
            rates = tuple(measure_rates(d) for d in devices_named(environment, spec.rates))
            return Reply(environment=environment, rates=rates)
        if isinstance(spec, ConstructSpec):
            parse_file(spec.trainer, Path(spec.file), spec.arguments)
            return Reply()
        return Reply(prepared=run_prepare(spec, machine))
    except Exception as error:  # noqa: BLE001  (outermost frame of the child)
        return Reply(failure=failure_of(disk_full(error) or error, Phase.LOAD, 0))


def _probe(spec: ProbeSpec, work_dir: Path) -> Reply:
    from autotune.probe.child.isolate import cut_off
    from autotune.probe.child.probe import Probe

    cut_off(work_dir)
    probe = Probe(spec, work_dir)
    failure = None
    try:
        probe.run()
    except Exception as error:  # noqa: BLE001  (outermost frame of the child)
        failure = failure_of(error, probe.phase, probe.step)
    try:
        measurement = probe.measurement()
    except Exception as error:  # noqa: BLE001  (a broken device refuses to hand out its losses)
        failure = failure or failure_of(error, probe.phase, probe.step)
        measurement = None
    return Reply(failure=failure, measurement=measurement)


def _guard(spec: GuardSpec, work_dir: Path) -> Reply:
    from autotune.probe.child.guard import compare
    from autotune.probe.child.isolate import cut_off
    from autotune.probe.child.progress import Progress
    from autotune.probe.phase_file import PhaseFile

    cut_off(work_dir)
    progress = Progress(PhaseFile(work_dir).tell)
    try:
        return Reply(compared=compare(spec, work_dir, progress))
    except Exception as error:  # noqa: BLE001  (outermost frame of the child)
        return Reply(failure=failure_of(error, progress.phase, progress.step))
