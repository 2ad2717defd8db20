"""Facts, requests and reports for tests of everything between a job and its result; no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autotune.core.candidate import Candidate, Value
from autotune.core.environment import Device
from autotune.core.job import Budget, DatasetSource, Job, Trainer
from autotune.core.lengths import Lengths
from autotune.core.measurement import Measurement, ProbeReport, Step
from autotune.core.memory import Peaks
from autotune.core.outcome import Ending, Outcome, Phase
from autotune.core.positions import Positions
from autotune.core.result import Estimate, TrialRecord
from autotune.knobs.facts import Facts
from autotune.probe.protocol import ProbeSpec, RowPlan

MIB = 2**20
GIB = 2**30

#: What TRL 1.16 uses for options a user leaves out.
DEFAULTS: dict[str, Any] = {
    "max_length": 1024,
    "packing": False,
    "packing_strategy": "bfd",
    "padding_free": False,
    "pad_to_multiple_of": None,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "gradient_checkpointing": True,
    "gradient_checkpointing_kwargs": None,
    "activation_offloading": False,
    "train_sampling_strategy": "random",
    "max_steps": -1,
    "optim": "adamw_torch_fused",
    "dtype": "float32",
    "use_peft": False,
    "use_dora": False,
    "use_rslora": False,
    "lora_r": 16,
    "lora_alpha": 32,
    "load_in_4bit": False,
    "load_in_8bit": False,
    "use_liger_kernel": False,
    "torch_compile": False,
    "dataloader_num_workers": 0,
    "precompute_ref_log_probs": False,
    "loss_type": "nll",
}

CPU = Device(
    kind="cpu", index=None, name="a CPU", total_bytes=16 * GIB, free_bytes=12 * GIB, cores=2
)
GPU = Device(
    kind="cuda",
    index=0,
    name="a GPU",
    total_bytes=16 * GIB,
    free_bytes=15 * GIB,
    capability="8.0",
)

#: 200 rows with a long tail, the longest (900 tokens) last.
SKEWED = tuple(sorted(20 + (i * i * 7919) % 180 + (400 if i % 20 == 0 else 0) for i in range(199)))
SKEWED = (*SKEWED, 900)


def lengths_of(tokens: Sequence[int], labels: Sequence[int] | None = None) -> Lengths:
    """Return lengths of rows whose labels are the last of their tokens (all, when not given)."""
    counts = np.asarray(tokens, dtype=np.int64)
    trained = counts if labels is None else np.asarray(labels, dtype=np.int64)
    positions = np.zeros(int(counts.max(initial=0)), dtype=np.int64)
    for count, label in zip(counts, trained, strict=True):
        positions[count - label : count] += 1
    first = None if labels is None else counts - trained
    return Lengths(tokens=counts, labels=trained, label_positions=positions, first_labels=first)


def facts_of(
    tokens: Sequence[int] = SKEWED,
    *,
    labels: Sequence[int] | None = None,
    device: Device = CPU,
    positions: int | Positions | None = 2048,
    moe: bool = False,
    options: Mapping[str, Any] | None = None,
    trainer: Trainer = Trainer.SFT,
    versions: Mapping[str, str] | None = None,
    lacking: Mapping[str, str] | None = None,
    traits: Sequence[str] = (),
    unfit_adapters: Mapping[str, str] | None = None,
    **job: Any,
) -> Facts:
    """Return facts of a job (SFT unless said otherwise) over rows of these lengths."""
    return Facts(
        job=Job(
            trainer=trainer,
            model="model",
            dataset=DatasetSource(path="rows.jsonl"),
            options=dict(options or {}),
            **job,
        ),
        defaults=DEFAULTS,
        device=device,
        lengths=lengths_of(tokens, labels),
        positions=Positions(most=positions) if isinstance(positions, int) else positions,
        moe=moe,
        versions=dict(versions or {}),
        lacking=dict(lacking or {}),
        traits=frozenset(traits),
        unfit_adapters=dict(unfit_adapters or {}),
    )


def candidate_of(**knobs: Value) -> Candidate:
    """Return a candidate: TRL's defaults with these knobs replaced."""
    plain: dict[str, Value] = {
        "per_device_train_batch_size": 8,
        "max_length": 1024,
        "packing": "none",
        "padding_free": False,
        "pad_to_multiple_of": None,
        "gradient_checkpointing": "full",
        "activation_offloading": False,
    }
    return Candidate(knobs={**plain, **knobs})


def budget_of(total_bytes: int, headroom: float = 0.0) -> Budget:
    """Return an explicit budget."""
    return Budget(total_bytes=total_bytes, headroom_ratio=headroom, explicit=True)


def spec_of(
    lengths: Lengths, *, device: str = "cpu", cap_bytes: int | None = None, **options: Any
) -> ProbeSpec:
    """Return a request over all rows."""
    rows = tuple(range(len(lengths)))
    order = tuple(sorted(rows, key=lambda i: -int(lengths.tokens[i])))
    batch = int(options.get("per_device_train_batch_size", 8))
    return ProbeSpec(
        trainer=Trainer.SFT,
        model_dir="model",
        weights="random",
        options=options,
        device=device,
        rows_dir="rows",
        plan=RowPlan(worst=(order[:batch],), paired=rows, block=rows),
        cap_bytes=cap_bytes,
    )


def step_of(**changes: Any) -> Step:
    """Return a plausible micro-step."""
    plain = {
        "seconds": 0.1,
        "fetch_seconds": 0.0,
        "rows": 2,
        "width": 64,
        "sequences": 2,
        "useful_tokens": 100,
        "label_tokens": 98,
        "longest": 64,
        "loss": 2.0,
    }
    return Step(**{**plain, **changes})


def measurement_of(**changes: Any) -> Measurement:
    """Return a plausible measurement of a probe that fits."""
    plain: dict[str, Any] = {
        "peaks": Peaks(process_bytes=100 * MIB, allocated_bytes=90 * MIB),
        "memory_steps": tuple(step_of() for _ in range(4)),
        "timed_steps": tuple(step_of() for _ in range(8)),
        "optimizer_seconds": (0.01,) * 4,
        "grad_norms": (1.0, 0.9),
    }
    return Measurement(**{**plain, **changes})


def ending_of(outcome: Outcome, reason: str = "", phase: Phase = Phase.STEADY) -> Ending:
    """Return an ending."""
    return Ending(outcome=outcome, phase=phase, reason=reason)


def trial_of(
    number: int,
    candidate: Candidate,
    *,
    seconds: float | None = 10.0,
    role: str = "search",
    changes: str = "neutral",
    outcome: Outcome = Outcome.FITS,
    peak_bytes: int = 100 * MIB,
    needed_bytes: int | None = None,
    reason: str = "",
) -> TrialRecord:
    """Return a finished trial; ``seconds`` None is one without an estimate."""
    fits = seconds is not None
    return TrialRecord(
        number=number,
        candidate=candidate,
        options={},
        changes=changes,
        role=role,  # type: ignore[arg-type]
        report=ProbeReport(
            ending=ending_of(outcome, reason),
            measurement=measurement_of(peaks=Peaks(process_bytes=peak_bytes)) if fits else None,
            needed_bytes=needed_bytes,
            log_file=f"logs/{number:04d}.txt",
        ),
        estimate=None if seconds is None else estimate_of(seconds),
    )


def estimate_of(seconds: float) -> Estimate:
    """Return the estimate of a pass that takes this long."""
    return Estimate(
        pass_seconds=seconds,
        score_seconds=seconds,
        retention_ratio=1.0,
        useful_tokens_per_s=1000 / seconds,
        padded_tokens_per_s=1200 / seconds,
        label_tokens_per_s=990 / seconds,
        padding_ratio=0.2,
        sequences_per_update=8.0,
        updates_per_pass=25,
        rows_cut=0,
        tokens_dropped_ratio=0.0,
        spread_ratio=0.01,
    )
