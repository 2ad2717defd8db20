"""Result documents as a real run would leave them, for tests of everything made from a result.

Numbers are plausible and fixed; nothing is measured here. Change a document with
``result.model_copy(update=...)``, or a job with `with_job`.
"""

from __future__ import annotations

from typing import Any, Literal

from autotune.core.candidate import Candidate
from autotune.core.environment import Device, Environment
from autotune.core.job import Budget, DatasetSource, Job, Trainer
from autotune.core.measurement import Measurement, ProbeReport, Step
from autotune.core.memory import Peaks
from autotune.core.outcome import Ending, Outcome, Phase
from autotune.core.prediction import Prediction
from autotune.core.profile import DatasetProfile, LengthHistogram, Notice
from autotune.core.result import Estimate, Ratio, Result, Skipped, TrialRecord
from autotune.core.traced_step import TracedPeak

GIB = 2**30
Role = Literal["baseline", "search", "confirmation"]

#: A config as people write it: comments, an own order, spellings YAML 1.1 and 1.2 read differently.
OWN_YAML = """\
# SFT of the support assistant
# owner: ml-platform

model_name_or_path: acme/base-7b   # the March checkpoint
dataset_name: acme/support-chats
dataset_train_split: train_sft

# schedule
learning_rate: 2e-5
num_train_epochs: 2
per_device_train_batch_size: 8     # what fitted on the old cards
gradient_accumulation_steps: 4
max_length: 1024
gradient_checkpointing: yes
warmup_steps: 20
eval_strategy: no

# where it goes
output_dir: runs/support-7b
report_to: wandb
push_to_hub: true
hub_model_id: acme/support-7b
resume_from_checkpoint: runs/support-7b/checkpoint-400

env:
  WANDB_PROJECT: support   # shared
  PYTORCH_CUDA_ALLOC_CONF: max_split_size_mb:128

# end of file
"""

OWN_OPTIONS: dict[str, Any] = {
    "learning_rate": 2e-5,
    "num_train_epochs": 2,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 4,
    "max_length": 1024,
    "gradient_checkpointing": True,
    "warmup_steps": 20,
    "eval_strategy": False,
    "output_dir": "runs/support-7b",
    "report_to": "wandb",
    "push_to_hub": True,
    "hub_model_id": "acme/support-7b",
    "resume_from_checkpoint": "runs/support-7b/checkpoint-400",
}

GPU = Device(
    kind="cuda",
    index=0,
    name="NVIDIA A10G",
    total_bytes=24 * GIB - 2**28,
    free_bytes=23 * GIB,
    capability="8.6",
)
CPU = Device(
    kind="cpu",
    index=None,
    name="AMD EPYC 7R13",
    total_bytes=16 * GIB,
    free_bytes=12 * GIB,
    bf16=True,
    cores=2,
)
VERSIONS = {
    "torch": "2.13.0",
    "transformers": "5.24.0",
    "trl": "1.16.0",
    "peft": "0.21.2",
    "datasets": "5.2.0",
    "accelerate": "1.15.0",
}


def steps(seconds: float, count: int, rows: int, width: int, filled: float) -> tuple[Step, ...]:
    """Return micro-steps around a time, with a small fixed jitter."""
    useful = int(rows * width * filled)
    return tuple(
        Step(
            seconds=round(seconds * (1 + 0.01 * ((n * 7) % 5 - 2)), 6),
            fetch_seconds=0.002,
            rows=rows,
            width=width,
            sequences=rows,
            useful_tokens=useful,
            label_tokens=int(useful * 0.6),
            longest=width,
            loss=2.1 - 0.01 * n,
        )
        for n in range(count)
    )


def peaks(allocated_gib: float, device: Device) -> Peaks:
    """Return four plausible peaks of one probe, those a CPU lacks absent with their reason."""
    allocated = int(allocated_gib * GIB)
    if device.kind == "cpu":
        return Peaks(
            allocated_bytes=allocated,
            process_bytes=int(allocated * 1.08),
            absent={
                "reserved_bytes": "the CPU allocator reserves nothing",
                "device_used_bytes": "only a GPU is shared with others",
            },
        )
    return Peaks(
        allocated_bytes=allocated,
        reserved_bytes=int(allocated * 1.06),
        process_bytes=int(allocated * 1.06) + 520 * 2**20,
        device_used_bytes=int(allocated * 1.06) + 760 * 2**20,
        allocation_retries=0,
    )


def parameters(**changes: Any) -> dict[str, Any]:
    """Return weights as a probe counts them: of a small model, all trained, with no reference."""
    known: dict[str, Any] = {
        "total": 25_000_000,
        "trainable": 25_000_000,
        "bytes": 100_000_000,
        "dtype": "float32",
        "trainable_dtype": "float32",
        "reference_total": 0,
        "reference_bytes": 0,
        "reference_dtype": "",
    }
    return known | changes


def split_of(peak_bytes: int, *, offloaded_bytes: int = 0, **parts: float) -> TracedPeak:
    """Return a traced peak.

    Args:
        peak_bytes: all of it.
        offloaded_bytes: what is kept in host memory.
        parts: share of the peak by component; the activations are what is left.
    """
    shares = parts or {"weights": 0.2, "gradients": 0.2, "optimizer": 0.3, "logits": 0.1}
    split = {name: int(share * peak_bytes) for name, share in shares.items()}
    split["activations"] = peak_bytes - sum(split.values())
    return TracedPeak(
        peak_bytes=peak_bytes,
        phase="backward",
        split=split,  # type: ignore[arg-type]
        offloaded_bytes=offloaded_bytes,
    )


def prediction_of(trial: TrialRecord, off: float = 1.0) -> Prediction:
    """Return what was expected of a fitting trial: all that was measured, times ``off``."""
    assert trial.estimate is not None and trial.report.measurement is not None
    peak = int(off * (trial.report.measurement.peaks.deciding_bytes or 0))
    seconds = off * trial.estimate.score_seconds
    traced = split_of(int(0.9 * peak))
    return Prediction(
        candidate=trial.candidate,
        accumulation=4,
        peak_bytes=peak,
        low_bytes=int(0.95 * peak),
        high_bytes=int(1.05 * peak),
        traced_bytes=traced.peak_bytes,
        split=traced.split,
        phase=traced.phase,
        micro_steps=3125,
        micro_step_seconds=seconds / 3125,
        optimizer_seconds=0.02,
        parts_seconds={"matmul": 0.8 * seconds, "attention": 0.2 * seconds},
        pass_seconds=seconds,
        score_seconds=seconds,
        useful_tokens_per_s=trial.estimate.useful_tokens_per_s / off,
        time_band_ratio=0.3,
    )


def predicted_result() -> Result:
    """Return `gpu_result` with every fitting probe predicted before it ran."""
    result = gpu_result()
    expected = {
        t.candidate.key: prediction_of(t, 1.0 + 0.02 * t.number)
        for t in result.trials
        if t.estimate is not None and t.role != "confirmation"
    }
    trials = tuple(
        t.model_copy(update={"prediction": expected.get(t.candidate.key)}) for t in result.trials
    )
    return result.model_copy(
        update={"trials": trials, "predictions": tuple(expected.values()), "gated": ("f" * 12,)}
    )


def fitting_trial(
    number: int,
    knobs: dict[str, Any],
    peak_gib: float,
    tokens_per_s: float,
    *,
    accumulation: int = 4,
    more: dict[str, Any] | None = None,
    env: dict[str, str] | None = None,
    role: Role = "search",
    changes: str = "neutral",
    retention: float = 1.0,
    padding: float = 0.3,
    effective: dict[str, Any] | None = None,
    pretruncate_tokens: int | None = None,
    note: str = "",
    device: Device = GPU,
    total_tokens: int = 9_200_000,
) -> TrialRecord:
    """Return a trial that fits, with times that follow from its speed."""
    batch = int(knobs.get("per_device_train_batch_size", 8))
    width = int(knobs.get("max_length") or 2048)
    pass_seconds = total_tokens / tokens_per_s
    step_seconds = batch * width * (1 - padding) / tokens_per_s
    timed = steps(step_seconds, 10, batch, width, 1 - padding)
    return TrialRecord(
        number=number,
        candidate=Candidate(knobs=knobs),
        options=options_of(knobs, accumulation, **(more or {})),
        env=env or {},
        pretruncate_tokens=pretruncate_tokens,
        changes=changes,
        role=role,
        report=ProbeReport(
            ending=Ending(outcome=Outcome.FITS, phase=Phase.STEADY),
            measurement=Measurement(
                peaks=peaks(peak_gib, device),
                memory_steps=timed[:4],
                warmup_steps=timed[:2],
                timed_steps=timed,
                optimizer_seconds=(0.021, 0.02, 0.022),
                grad_norms=(1.1, 1.05),
                worst_rows=(411, 7),
                effective={"max_length": 1024, "bf16": device.kind == "cuda"} | (effective or {}),
                parameters=parameters(),
                load_seconds=3.2,
                cap_bytes=20 * GIB,
            ),
            wall_seconds=14.5,
            log_file=f"logs/{number:03d}.log",
        ),
        estimate=Estimate(
            pass_seconds=pass_seconds,
            score_seconds=pass_seconds / retention,
            retention_ratio=retention,
            useful_tokens_per_s=tokens_per_s,
            padded_tokens_per_s=tokens_per_s / (1 - padding),
            label_tokens_per_s=tokens_per_s * 0.6,
            padding_ratio=padding,
            sequences_per_update=32.0,
            updates_per_pass=781,
            rows_cut=0 if retention == 1.0 else 312,
            tokens_dropped_ratio=1.0 - retention,
            spread_ratio=0.012,
        ),
        note=note,
    )


def failed_trial(
    number: int,
    knobs: dict[str, Any],
    outcome: Outcome,
    phase: Phase,
    reason: str,
    *,
    detail: str = "",
    needed_bytes: int | None = None,
    role: Role = "search",
) -> TrialRecord:
    """Return a trial that did not fit or did not run."""
    return TrialRecord(
        number=number,
        candidate=Candidate(knobs=knobs),
        options=options_of(knobs, 4),
        changes="neutral",
        role=role,
        report=ProbeReport(
            ending=Ending(outcome=outcome, phase=phase, reason=reason, detail=detail),
            wall_seconds=6.25,
            log_file=f"logs/{number:03d}.log",
            needed_bytes=needed_bytes,
        ),
    )


def knobs_of(batch: int, **more: Any) -> dict[str, Any]:
    """Return one choice for every knob, those of TRL's defaults unless said otherwise."""
    usual = {
        "max_length": 1024,
        "packing": "none",
        "padding_free": False,
        "pad_to_multiple_of": None,
        "gradient_checkpointing": "full",
        "activation_offloading": False,
    }
    return {"per_device_train_batch_size": batch, **usual, **more}


def options_of(knobs: dict[str, Any], accumulation: int, **more: Any) -> dict[str, Any]:
    """Return the TRL options the knobs stand for."""
    packing, checkpointing = knobs["packing"], knobs["gradient_checkpointing"]
    options = {
        "per_device_train_batch_size": knobs["per_device_train_batch_size"],
        "gradient_accumulation_steps": accumulation,
        "max_length": knobs["max_length"],
        "packing": packing != "none",
        "padding_free": knobs["padding_free"],
        "pad_to_multiple_of": knobs["pad_to_multiple_of"],
        "gradient_checkpointing": checkpointing != "none",
        "activation_offloading": knobs["activation_offloading"],
    }
    if packing != "none":
        options["packing_strategy"] = packing
    if checkpointing == "selective":
        options["gradient_checkpointing_kwargs"] = {"selective": True}
    return {**options, **more}


def gpu_trials() -> tuple[TrialRecord, ...]:
    """Return the trials of `gpu_result`: winner is number 4, baseline number 0."""
    base = knobs_of(8)
    best = knobs_of(4, max_length=2048, gradient_checkpointing="selective", packing="bfd")
    return (
        fitting_trial(0, base, 17.2, 3100.0, role="baseline", retention=0.968, padding=0.46),
        fitting_trial(1, {**base, "per_device_train_batch_size": 4}, 13.1, 2890.0, retention=0.968),
        failed_trial(
            2,
            {**base, "gradient_checkpointing": "none"},
            Outcome.OOM_DEVICE,
            Phase.FIRST_STEP,
            "the first backward pass needs more than 20.90 GiB",
            detail="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.95 GiB.",
            needed_bytes=int(24.6 * GIB),
        ),
        failed_trial(
            3,
            {**base, "padding_free": True},
            Outcome.INVALID,
            Phase.LOAD,
            "padding_free without packing needs max_length=None",
        ),
        fitting_trial(
            4,
            best,
            18.9,
            7420.0,
            accumulation=1,
            more={"warmup_steps": 19},
            env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
            changes="data",
            padding=0.03,
            note="order of the rows differs from the baseline's",
        ),
        fitting_trial(
            5,
            {**best, "per_device_train_batch_size": 2},
            14.4,
            6710.0,
            changes="data",
            padding=0.03,
        ),
        fitting_trial(
            6,
            {**best, "gradient_checkpointing": "full"},
            15.6,
            6330.0,
            changes="data",
            padding=0.03,
        ),
        failed_trial(
            7,
            {**best, "per_device_train_batch_size": 8},
            Outcome.OOM_DEVICE,
            Phase.OPTIMIZER_STEP,
            "the first optimizer step needs more than 20.90 GiB",
            needed_bytes=int(27.9 * GIB),
        ),
        failed_trial(
            8,
            {**best, "pad_to_multiple_of": 64},
            Outcome.TIMEOUT,
            Phase.STEADY,
            "no end after 120 s",
        ),
        fitting_trial(9, best, 18.9, 7405.0, role="confirmation", changes="data", padding=0.03),
    )


def gpu_result() -> Result:
    """Return a finished search on a GPU, from a user's own YAML and hub data."""
    trials = gpu_trials()
    return Result(
        created="2026-03-02T10:15:00Z",
        autotune_version="0.1.0",
        job=Job(
            trainer=Trainer.SFT,
            model="acme/base-7b",
            dataset=DatasetSource(path="acme/support-chats", train_split="train_sft"),
            options=OWN_OPTIONS,
            env={"WANDB_PROJECT": "support", "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128"},
            config_text=OWN_YAML,
        ),
        budget=Budget(total_bytes=22 * GIB, headroom_ratio=0.05, explicit=True),
        device=GPU,
        environment=Environment(
            versions=VERSIONS,
            python="3.11.9",
            platform="Linux-6.8.0-x86_64",
            devices=(GPU, CPU),
            notices=("flash-attn is not installed: its attention cannot be measured",),
        ),
        profile=profile(),
        space={"name": "sft", "hash": "a1b2c3d4e5f6", "candidates": 148},
        trials=trials,
        reference=trials[0].candidate.key,
        best=trials[4].candidate.key,
        chosen_because="it has the shortest pass of the 5 that fit: 2.47 times as fast as your own "
        "config (95 % interval 2.41 to 2.53, measured in turns 12 times)",
        speedup=Ratio(reference=trials[0].candidate.key, value=2.47, low=2.41, high=2.53, pairs=12),
        skipped=(
            Skipped(
                what="packing_strategy=wrapped",
                reason="it mixes documents, which needs --allow mixing",
                count=24,
            ),
            Skipped(
                what="activation_offloading=true with selective checkpointing",
                reason="TRL offloads what is checkpointed, not both",
                count=12,
            ),
        ),
        overrides={
            "output_dir": "runs/support-7b",
            "report_to": "wandb",
            "push_to_hub": True,
            "hub_model_id": "acme/support-7b",
            "resume_from_checkpoint": "runs/support-7b/checkpoint-400",
        },
        notices=(
            "3.2 % of the label tokens were cut by max_length 1024; the winner keeps them.",
            "The weights were random: memory and speed are the same, losses are not.",
        ),
        search_seconds=412.0,
        pays_back_seconds=690.0,
        out_dir="/work/runs/support",
    )


def profile(**changes: Any) -> DatasetProfile:
    """Return the profile of a chat data set with a long tail."""
    known: dict[str, Any] = {
        "layout": "messages",
        "conversion": None,
        "rows_given": 25_010,
        "rows_used": 25_000,
        "tokens": 9_200_000,
        "label_tokens": 5_520_000,
        "quantiles": {"0.5": 290, "0.9": 810, "0.95": 1105, "0.99": 1710, "1.0": 2031},
        "longest_row": 24_811,
        "model_positions": 32_768,
        "vocabulary": 32_000,
        "pad_token": "</s>, from the tokenizer",
        "notices": (Notice(code="empty", message="10 rows have no trained token", count=10),),
        "rows_dir": "/work/runs/support/rows",
        "converted_file": None,
        "fingerprint": "9f8e7d6c5b4a",
        "length_histogram": histogram(),
    }
    return DatasetProfile(**(known | changes))


def histogram() -> LengthHistogram:
    """Return 60 bins of 25,000 rows with a long tail to the right."""
    edges = tuple(range(0, 60 * 34 + 1, 34))
    shape = [n * n * 2.718 ** (-n / 4.2) if n < 30 else 6 / n for n in range(60)]
    rows = [round(25_000 * value / sum(shape)) for value in shape]
    rows[7] += 25_000 - sum(rows)
    return LengthHistogram(edges=edges, rows=tuple(rows))


def cpu_result() -> Result:
    """Return a finished search on a CPU without a user's YAML, with rows that were converted."""
    base = knobs_of(8)
    best = knobs_of(2, max_length=512, gradient_checkpointing="none", packing="bfd_split")
    trials = (
        fitting_trial(0, base, 0.9, 310.0, role="baseline", device=CPU, total_tokens=61_000),
        fitting_trial(
            1, best, 0.7, 905.0, changes="data", padding=0.02, device=CPU, total_tokens=61_000
        ),
    )
    result = gpu_result()
    return result.model_copy(
        update={
            "job": Job(
                trainer=Trainer.SFT,
                model="acme/tiny",
                dataset=DatasetSource(path="/data/alpaca.json"),
                options={"learning_rate": 2e-5, "optim": "adamw_torch"},
            ),
            "budget": Budget(total_bytes=GIB, headroom_ratio=0.05, explicit=True),
            "device": CPU,
            "environment": result.environment.model_copy(update={"devices": (CPU,)}),
            "profile": profile(
                layout="instruction-input-output",
                conversion="instruction, input and output to prompt and completion",
                converted_file="/work/runs/tiny/dataset/train.parquet",
                rows_given=400,
                rows_used=400,
                tokens=61_000,
                label_tokens=40_000,
                model_positions=2048,
                vocabulary=1024,
            ),
            "trials": trials,
            "reference": trials[0].candidate.key,
            "best": trials[1].candidate.key,
            "speedup": Ratio(
                reference=trials[0].candidate.key, value=2.92, low=2.8, high=3.05, pairs=9
            ),
            "overrides": {"use_cpu": True, "bf16": False},
            "out_dir": "/work/runs/tiny",
        }
    )


def preference_result(trainer: Trainer) -> Result:
    """Return a finished search on a CPU for DPO, Reward or KTO, with rows that were converted."""
    result = with_job(cpu_result(), trainer=trainer, dataset=DatasetSource(path="/data/pairs.json"))
    conversion = "chosen and rejected to prompt, chosen and rejected messages"
    rows = result.profile.model_copy(
        update={"layout": "conversation preference", "conversion": conversion}
    )
    options = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "max_length": 512,
        "gradient_checkpointing": False,
    }
    result = with_best(result.model_copy(update={"profile": rows}), options=options)
    return _with_reference(result) if trainer in (Trainer.DPO, Trainer.KTO) else result


def _with_reference(result: Result) -> Result:
    """Return the result with a reference model beside every policy, and every peak traced."""
    held = parameters(reference_total=25_000_000, reference_bytes=50_000_000)
    held["reference_dtype"] = "bfloat16"
    trials = []
    for trial in result.trials:
        assert trial.report.measurement is not None
        measured = trial.report.measurement.model_copy(update={"parameters": held})
        report = trial.report.model_copy(update={"measurement": measured})
        trials.append(trial.model_copy(update={"report": report}))
    shares = {"weights": 0.2, "reference": 0.1, "gradients": 0.2, "optimizer": 0.3, "logits": 0.1}
    traced = {
        t.candidate.key: split_of(t.report.measurement.peaks.allocated_bytes or 0, **shares)
        for t in trials
        if t.report.measurement is not None
    }
    return result.model_copy(update={"trials": tuple(trials), "traced": traced})


def nothing_fits_result() -> Result:
    """Return a search in which every candidate needs more than the budget."""
    trials = (
        failed_trial(
            0,
            knobs_of(8),
            Outcome.OOM_DEVICE,
            Phase.FIRST_STEP,
            "the first backward pass needs more than 7.60 GiB",
            needed_bytes=int(17.9 * GIB),
            role="baseline",
        ),
        failed_trial(
            1,
            knobs_of(1),
            Outcome.OOM_DEVICE,
            Phase.OPTIMIZER_STEP,
            "the first optimizer step needs more than 7.60 GiB",
            needed_bytes=int(9.1 * GIB),
        ),
    )
    return gpu_result().model_copy(
        update={
            "budget": Budget(total_bytes=8 * GIB, headroom_ratio=0.05, explicit=True),
            "trials": trials,
            "reference": None,
            "best": None,
            "chosen_because": "nothing that was probed fits the budget",
            "speedup": None,
            "pays_back_seconds": None,
        }
    )


def with_job(result: Result, **changes: Any) -> Result:
    """Return the result with parts of its job replaced."""
    return result.model_copy(update={"job": result.job.model_copy(update=changes)})


def with_best(result: Result, **changes: Any) -> Result:
    """Return the result with parts of its winning trial replaced."""
    trials = tuple(
        t.model_copy(update=changes) if t.candidate.key == result.best else t for t in result.trials
    )
    return result.model_copy(update={"trials": trials})


def with_versions(result: Result, versions: dict[str, str]) -> Result:
    """Return the result as measured with other versions of some packages."""
    changed = {"versions": {**result.environment.versions, **versions}}
    return result.model_copy(update={"environment": result.environment.model_copy(update=changed)})
