"""What is emitted, as values: the user's configuration with the winner's options put in.

Every emitter renders this one value. Nothing here knows a file format.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from autotune.core.errors import NothingFits
from autotune.core.job import Trainer
from autotune.core.result import Result, TrialRecord
from autotune.core.units import show_bytes
from autotune.emit import fields
from autotune.emit.changes import (
    NEWER_NAME,
    TUNED,
    Change,
    env_changes,
    location_changes,
    model_change,
    option_changes,
)
from autotune.emit.location import Location, locate_rows
from autotune.emit.repairs import launcher_repairs, repairs
from autotune.emit.values import typed
from autotune.knobs.catalog import BY_NAME
from autotune.knobs.isolation import LAUNCH_FIELDS
from autotune.knobs.placebos import UNPAGED
from autotune.knobs.readback import READ
from autotune.knobs.translate import STEP_COUNTED
from autotune.knobs.variables import merge_env
from autotune.knobs.versions import RENAMED, canonical_options, spelled, spelled_name


@dataclass(frozen=True)
class Settings:
    """Everything an emitter writes.

    Args:
        classes: TRL's names for the trainer.
        trial: the trial that is emitted.
        model: hub id or absolute path.
        location: where the rows are.
        options: every other explicit key, final values, in the order they are written.
        own: the user's own file as TRL reads it; empty when there is none.
        env: environment variables, the user's and the tuner's merged.
        changes: every difference from what the user wrote, in the order they are written.
    """

    classes: fields.TrainerClasses
    trial: TrialRecord
    model: str
    location: Location
    options: dict[str, Any]
    own: dict[str, Any]
    env: dict[str, str]
    changes: tuple[Change, ...]

    @property
    def config_options(self) -> dict[str, Any]:
        """Options of the trainer's config class."""
        elsewhere = {
            *fields.MODEL_FIELDS,
            *fields.SCRIPT_FIELDS,
            *fields.MIXTURE_FIELDS,
            *LAUNCH_FIELDS,
        }
        return {k: v for k, v in self.options.items() if k not in elsewhere}

    @property
    def model_options(self) -> dict[str, Any]:
        """Options of ``trl.ModelConfig``, the model's name left out."""
        return {k: v for k, v in self.options.items() if k in fields.MODEL_FIELDS}

    @property
    def evaluates(self) -> bool:
        """Whether training stops to evaluate."""
        return _evaluates(self.options)


def settings_of(result: Result) -> Settings:
    """Work out what to emit for a result's best trial.

    Raises:
        NothingFits: the result has no best trial.
        NotBuiltYet: this version does not emit for the job's trainer.
    """
    trial = best_trial(result)
    classes = fields.trainer_classes(result.job.trainer)
    own = read_own(result.job.config_text)
    versions = result.environment.versions
    asked = _asked(result, own)
    repaired = repairs(asked, trial, result.device)
    tuned = {
        k: v
        for k, v in trial.options.items()
        if k not in (*fields.SIDE_EFFECTS, *fields.MACHINE_FACTS, *fields.LOCATION_FIELDS)
    }
    if result.device.kind == "cpu" and UNPAGED.get(str(asked.get("optim"))) == tuned.get("optim"):
        tuned.pop("optim", None)  # paging is for the GPU the file is meant for
    tuned = spelled(tuned, versions)
    options = {**asked, **{k: value for k, (value, _) in repaired.items()}, **tuned}
    implicit = _implicit(result, trial, classes, options)
    options |= implicit
    launched = launcher_repairs(options)
    options |= {k: value for k, (value, _) in launched.items()}
    repaired |= launched
    reasons = dict.fromkeys(_respelt(own, asked, versions), NEWER_NAME)
    reasons |= dict.fromkeys(implicit, "TRL's default, written out")
    reasons |= {k: reason for k, (_, reason) in repaired.items()}
    reasons |= {n: _reason(n, v, result, trial) for n, v in tuned.items()}
    if result.job.trainer is Trainer.REWARD:
        reasons["lora_task_type"] = "what adapters of a reward model need"
    names = {name: spelled_name(name, versions) for name in own}
    renamed = {name: wanted for name, wanted in names.items() if wanted != name}
    location = locate_rows(result, trial, _evaluates(options))
    written_env = {str(k): str(v) for k, v in (own.get("env") or {}).items()}
    env = merge_env({**result.job.env, **written_env}, trial.env)
    model = _model(result)
    changes = (
        *model_change(own, model),
        *location_changes(own, location, result),
        *option_changes(own, options, reasons, renamed),
        *env_changes(written_env, env, trial.env),
    )
    options = {k: typed(v) for k, v in options.items()}
    return Settings(classes, trial, model, location, options, own, env, changes)


def best_trial(result: Result) -> TrialRecord:
    """Return the trial that is emitted.

    Raises:
        NothingFits: nothing fits the budget.
    """
    if result.best_trial is None:
        raise NothingFits(
            f"Nothing fits {show_bytes(result.budget.total_bytes)}: there is nothing to emit.",
            "The report says how near the nearest came and what would have to change.",
        )
    return result.best_trial


def read_own(text: str | None) -> dict[str, Any]:
    """Return the user's YAML as TRL's own reader sees it."""
    loaded = yaml.safe_load(text) if text else None
    return dict(loaded) if isinstance(loaded, dict) else {}


def _asked(result: Result, own: dict[str, Any]) -> dict[str, Any]:
    """What the user asked for, from the file and the command line, without model and rows.

    By the names the installed versions want.
    """
    place = {"model_name_or_path", "env", *fields.LOCATION_FIELDS}
    asked = canonical_options({k: v for k, v in own.items() if k not in place})
    for name, value in canonical_options(result.job.options).items():
        if name in place or (name in fields.MACHINE_FACTS and name not in own):
            continue
        asked[name] = value
    return spelled(asked, result.environment.versions)


def _respelt(own: dict[str, Any], asked: dict[str, Any], versions: dict[str, str]) -> list[str]:
    """Return the options of the user's file whose value the installed versions call otherwise."""
    written = spelled(own, versions)
    return [n for n, v in written.items() if n in own and own[n] != v and asked.get(n) == v]


def _implicit(
    result: Result,
    trial: TrialRecord,
    classes: fields.TrainerClasses,
    options: dict[str, Any],
) -> dict[str, Any]:
    """What was measured under a default that may be another one in the next version.

    Length, precision, checkpointing, attention, optimizer and the batch of an evaluation, where
    neither the user nor the tuner wrote them.
    """
    measured = trial.report.measurement.effective if trial.report.measurement else {}
    found: dict[str, Any] = {}
    if "max_length" not in options:
        found["max_length"] = measured.get("max_length", classes.max_length)
    if options.get("bf16") is None:
        # TRL: bf16 unless fp16 is set. What a CPU computed in is no advice for a GPU.
        measured_bf16 = result.device.kind == "cpu" or measured.get("bf16", True)
        found["bf16"] = bool(measured_bf16) and not typed(options.get("fp16"))
    if not options.keys() & {*RENAMED, *RENAMED.values()}:
        # TRL sets it by the name that newer versions warn of.
        named = spelled({"gradient_checkpointing": True}, result.environment.versions)
        found |= {k: v for k, v in named.items() if k in RENAMED}
    init = options.get("model_init_kwargs")
    known = {**(init if isinstance(init, dict) else {}), **options}
    wanted = ["attn_implementation", "optim"]
    wanted += ["per_device_eval_batch_size"] if _evaluates(options) else []
    used = {name: measured[name] for name in wanted if measured.get(name) is not None}
    dtype = READ["dtype"](measured) if "dtype" in measured else None
    if dtype in (BY_NAME["dtype"].choices or ()):  # a quantized model's is none anybody asks for
        used["dtype"] = dtype
    return found | {name: value for name, value in used.items() if name not in known}


def _evaluates(options: dict[str, Any]) -> bool:
    return options.get("eval_strategy") not in (None, "no")


def _model(result: Result) -> str:
    path = Path(result.job.model).expanduser()
    return str(path.absolute()) if path.is_dir() else result.job.model


def _reason(name: str, value: Any, result: Result, trial: TrialRecord) -> str:
    before = result.baseline_trial
    written = {} if before is None else spelled(before.options, result.environment.versions)
    if name in written and written[name] == value:
        return "as before, written out"
    if name in STEP_COUNTED:
        return "the same number of samples as before"
    if name == "gradient_accumulation_steps" and trial.estimate is not None:
        return f"about {trial.estimate.sequences_per_update:.3g} sequences per update"
    return TUNED
