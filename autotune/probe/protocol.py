"""What is asked of a measuring process and what it answers; how it is written is in documents.py.

Both are versioned: a child of another version is refused by name instead of being misread.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from autotune.core.environment import Device, Environment
from autotune.core.equivalence import Compared
from autotune.core.job import Frozen, Job, Trainer
from autotune.core.measurement import Measurement
from autotune.core.outcome import Phase
from autotune.core.rates import Rates
from autotune.core.traced_step import TracedStep
from autotune.probe.prepared import Prepared

SCHEMA_VERSION = 1
#: A probe gives cached memory back after so many updates where the user's run would do so after
#: more (``torch_empty_cache_steps``), so that some of its few timed updates show what that costs.
EMPTIED_EVERY = 3


class RowPlan(Frozen):
    """Name the rows a probe uses, as indices into the prepared rows.

    Args:
        worst: row sets for the memory phase of unpacked candidates; the maximum decides.
        paired: the stratified sample every unpacked candidate is timed on.
        block: the block of up to 1000 rows packed candidates pack and are timed on.
        batch: rows a micro-batch holds on the whole data set: the candidate's batch, or all
            (packed) rows when there are fewer; None takes the candidate's.
    """

    worst: tuple[tuple[int, ...], ...]
    paired: tuple[int, ...]
    block: tuple[int, ...]
    batch: int | None = None


class Verification(Frozen):
    """Look at one candidate for longer before it is emitted (DESIGN.md 5.9).

    Args:
        updates: optimizer updates over the worst batches among typical and short ones, at least
            20, after two of each worst one.
        save: save one checkpoint half-way, and go on after it.
        eval_rows_dir: folder of the prepared evaluation rows; None when the config does not
            evaluate.
        eval_rows: their longest rows, two batches of them.
        eval_pretruncate_tokens: length they are cut to before TRL sees them.
    """

    updates: int = 20
    save: bool = False
    eval_rows_dir: str | None = None
    eval_rows: tuple[int, ...] = ()
    eval_pretruncate_tokens: int | None = None


class ProbeSpec(Frozen):
    """Measure one candidate.

    Args:
        trainer: which TRL trainer.
        model_dir: local directory with the model's config and tokenizer.
        weights: ``random`` or ``real``.
        options: final TRL options, the candidate's and the isolation's included.
        env: environment variables the candidate needs beside the job's own.
        device: ``cpu`` or ``cuda:i``.
        device_uuid: its entry in ``CUDA_VISIBLE_DEVICES``, where one is known.
        rows_dir: folder of the prepared rows.
        plan: which rows.
        pretruncate_tokens: length rows are cut to before TRL sees them.
        cap_bytes: memory the candidate may use above the start; None measures without a cap.
        budget_bytes: what the job may use of the device, headroom included; None if unknown.
        device_total_bytes: memory of the device; a peak above it has spilled. None: unknown.
        memory_only: stop after the memory phase.
        verification: look for longer instead of timing; None for an ordinary probe.
        timed_steps: least number of timed micro-steps.
        timed_rows: least number of rows timed.
    """

    kind: Literal["probe"] = "probe"
    trainer: Trainer
    model_dir: str
    weights: Literal["random", "real"]
    options: dict[str, Any]
    env: dict[str, str] = {}
    device: str
    device_uuid: str | None = None
    rows_dir: str
    plan: RowPlan
    pretruncate_tokens: int | None = None
    cap_bytes: int | None = None
    budget_bytes: int | None = None
    device_total_bytes: int | None = None
    memory_only: bool = False
    verification: Verification | None = None
    timed_steps: int = 8
    timed_rows: int = 64


class GuardSide(Frozen):
    """One of two candidates that are compared.

    Args:
        options: final TRL options, the candidate's included.
        pretruncate_tokens: length rows are cut to before TRL sees them.
    """

    options: dict[str, Any]
    pretruncate_tokens: int | None = None


class GuardSpec(Frozen):
    """Run one optimizer update of two candidates on the same rows and weights (DESIGN.md 5.7).

    Args:
        trainer: which TRL trainer.
        model_dir: local directory with the model's config and tokenizer.
        weights: ``random`` (seeded) or ``real``.
        device: ``cpu`` or ``cuda:i``.
        device_uuid: its entry in ``CUDA_VISIBLE_DEVICES``, where one is known.
        rows_dir: folder of the prepared rows.
        rows: the rows of the update, in order; both candidates realise the same tokens of them.
        reference: what the candidate is compared with.
        candidate: the one that would be emitted.
        seed: of the random weights.
    """

    kind: Literal["guard"] = "guard"
    trainer: Trainer
    model_dir: str
    weights: Literal["random", "real"]
    device: str
    device_uuid: str | None = None
    rows_dir: str
    rows: tuple[int, ...]
    reference: GuardSide
    candidate: GuardSide
    seed: int = 0


class PrepareSpec(Frozen):
    """Resolve the job and prepare its rows, before any probe.

    Args:
        job: what the user asked for.
        device: ``auto``, ``cpu`` or ``cuda[:i]``.
        out_dir: folder for the prepared rows and the model's config and tokenizer.
        cache_dir: folder of caches shared between runs.
        demo_model: the job's model is the embedded demo; build it at that path when missing.
        sample_rows: most rows to prepare; None prepares all, of a stream a bounded number.
        train_only: only look at the train rows: nothing will be emitted from them.
        target: a device that is not here and that everything is resolved for; None takes
            ``device``.
        attention_kernels: attention code of the hub that may be searched.
        layer_kernels: whether layers may be searched with kernels of the hub.
    """

    kind: Literal["prepare"] = "prepare"
    job: Job
    device: str
    out_dir: str
    cache_dir: str
    demo_model: bool = False
    sample_rows: int | None = None
    train_only: bool = False
    target: Device | None = None
    attention_kernels: tuple[str, ...] = ()
    layer_kernels: bool = False

    @property
    def asked_device(self) -> str:
        """``device``, where the config's own ``use_cpu`` decides what ``auto`` is."""
        cpu = self.device == "auto" and self.job.options.get("use_cpu")
        return "cpu" if cpu else self.device


class InspectSpec(Frozen):
    """Describe this machine and its libraries; with ``matmul`` also prove that torch computes.

    Args:
        matmul: run a parallel matrix product, which hangs where forking is unsafe.
        rates: devices whose rates are measured, named as ``--device`` names them.
    """

    kind: Literal["inspect"] = "inspect"
    matmul: bool = False
    rates: tuple[str, ...] = ()


class ConstructSpec(Frozen):
    """Have the installed TRL's own parser read a file it is to train from, as a whole.

    Args:
        trainer: which ``trl`` command.
        file: the YAML: options, environment and ``datasets:`` block.
        arguments: what stands behind it on the command line.
    """

    kind: Literal["construct"] = "construct"
    trainer: Trainer
    file: str
    arguments: tuple[str, ...] = ()


class TraceSpec(Frozen):
    """Follow steps on fake tensors, without weights and without the device they are for.

    Args:
        requests: what is traced, as the tracer's own documents (`autotune.predict.request`).
        seconds: no trace is begun after this long; those that are left are refused.
    """

    kind: Literal["trace"] = "trace"
    requests: tuple[dict[str, Any], ...]
    seconds: float


class Trace(Frozen):
    """The answer to one request of a `TraceSpec`.

    Args:
        step: the traced step; None when it cannot be traced.
        refusal: why not, one sentence.
    """

    step: TracedStep | None = None
    refusal: str = ""


Spec = Annotated[
    ProbeSpec | GuardSpec | PrepareSpec | InspectSpec | ConstructSpec | TraceSpec,
    Field(discriminator="kind"),
]


class Request(Frozen):
    """Ask a measuring process for one thing."""

    schema_version: Literal[1] = 1
    spec: Spec


class Raised(Frozen):
    """One exception as it was raised; with what it was raised from, one of a chain.

    Args:
        types: qualified names of its class and of the classes that derives from, its own first,
            as far down as ``Exception``.
        message: its text.
        errno: the system's number of the error, where the system gave one.
        frames: its innermost frames, ``file:function``, the innermost last.
    """

    types: tuple[str, ...]
    message: str
    errno: int | None = None
    frames: tuple[str, ...] = ()


class Failure(Frozen):
    """An exception in the child, in its own words.

    Args:
        type_name: qualified name of the exception's class.
        message: its text.
        traceback: its last lines.
        chain: the exception and what it was raised from or while handling, outermost first;
            empty where only its words are known.
        phase: what the child was doing.
        user_error: it is about the user's input (exit code 2), not about the measured thing.
        unable: it is about the machine or the installation (exit code 4).
        hint: what to do next.
        step: micro-steps finished before it.
        device_full: whether the device's allocator was at its limit; None where nobody knows.
    """

    type_name: str
    message: str
    traceback: str = ""
    chain: tuple[Raised, ...] = ()
    phase: Phase = Phase.LOAD
    user_error: bool = False
    unable: bool = False
    hint: str | None = None
    step: int = 0
    device_full: bool | None = None


class Reply(Frozen):
    """A child's answer: a failure, or what was asked for.

    A probe that failed after its memory phase carries both.
    """

    schema_version: Literal[1] = 1
    failure: Failure | None = None
    measurement: Measurement | None = None
    prepared: Prepared | None = None
    environment: Environment | None = None
    rates: tuple[Rates, ...] = ()
    traces: tuple[Trace, ...] = ()
    compared: Compared | None = None
