"""What is emitted, as values: the user's configuration with the winner's options put in.

Every emitter renders this one value. Nothing here knows a file format.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from autotune.core.errors import NothingFits
from autotune.core.result import Result, TrialRecord
from autotune.core.units import show_bytes
from autotune.emit import fields
from autotune.emit.location import AS_GIVEN, Location, locate_rows
from autotune.emit.values import same_value, typed
from autotune.emit.variables import merge_env

APART = "apart from the file"
#: TRL's own names of the two splits (``trl.ScriptArguments``).
TRL_SPLITS = {"dataset_train_split": "train", "dataset_test_split": "test"}


@dataclass(frozen=True)
class Change:
    """One key of the user's configuration that is emitted with another value.

    Args:
        name: the key; ``env.NAME`` for an environment variable.
        old: what the user wrote; None when they did not write it.
        new: what is emitted; None when the key goes.
        reason: why, in a few words.
        written: whether the user wrote the key.
        kept: whether the key is emitted.
    """

    name: str
    old: Any
    new: Any
    reason: str
    written: bool
    kept: bool = True


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
            *fields.LAUNCH_FIELDS,
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
    asked = _asked(result, own)
    bare = {k: "no" for k in fields.STRATEGIES if asked.get(k) is False}
    asked |= bare
    # Rows cut beforehand carry their labels and are no conversation any more; TRL would refuse.
    labelled = trial.pretruncate_tokens is not None and typed(asked.get("assistant_only_loss"))
    asked |= {"assistant_only_loss": False} if labelled else {}
    tuned = {
        k: v
        for k, v in trial.options.items()
        if k not in (*fields.SIDE_EFFECTS, *fields.MACHINE_FACTS, *fields.LOCATION_FIELDS)
    }
    options = {**asked, **tuned}
    implicit = _implicit(result, trial, classes, options)
    options |= implicit
    location = locate_rows(result, trial, _evaluates(options))
    own_env = {str(k): str(v) for k, v in (own.get("env") or {}).items()}
    own_env = {**result.job.env, **own_env}
    env = merge_env(own_env, trial.env)
    model = _model(result)
    reasons = dict.fromkeys(implicit, "TRL's default, written out")
    reasons |= dict.fromkeys(bare, "YAML reads a bare no as false, which TRL refuses")
    reasons |= {"assistant_only_loss": "the written rows carry their labels"} if labelled else {}
    reasons |= {n: _reason(n, trial, options) for n in tuned}
    changes = (
        *_model_change(own, model),
        *_location_changes(own, location, result),
        *_option_changes(own, options, reasons),
        *(
            Change(f"env.{n}", own_env.get(n), v, "tuned", written=n in own_env)
            for n, v in env.items()
            if own_env.get(n) != v
        ),
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
    """What the user asked for, from the file and the command line, without model and rows."""
    place = {"model_name_or_path", "env", *fields.LOCATION_FIELDS}
    asked = {k: v for k, v in own.items() if k not in place}
    for name, value in result.job.options.items():
        if name in place or (name in fields.MACHINE_FACTS and name not in own):
            continue
        asked[name] = value
    return asked


def _implicit(
    result: Result,
    trial: TrialRecord,
    classes: fields.TrainerClasses,
    options: dict[str, Any],
) -> dict[str, Any]:
    """Length and precision, where neither the user nor the tuner wrote them."""
    measured = trial.report.measurement.effective if trial.report.measurement else {}
    found: dict[str, Any] = {}
    if "max_length" not in options:
        found["max_length"] = measured.get("max_length", classes.max_length)
    if options.get("bf16") is None:
        # TRL: bf16 unless fp16 is set. What a CPU computed in is no advice for a GPU.
        default = not typed(options.get("fp16"))
        found["bf16"] = default if result.device.kind == "cpu" else measured.get("bf16", default)
    return found


def _evaluates(options: dict[str, Any]) -> bool:
    return options.get("eval_strategy") not in (None, "no")


def _model(result: Result) -> str:
    path = Path(result.job.model).expanduser()
    return str(path.absolute()) if path.is_dir() else result.job.model


def _same_place(written: Any, meant: str) -> bool:
    return written == meant or (
        isinstance(written, str) and str(Path(written).expanduser().absolute()) == meant
    )


def _model_change(own: dict[str, Any], model: str) -> tuple[Change, ...]:
    written = own.get("model_name_or_path")
    if _same_place(written, model):
        return ()
    reason = f"given {APART}" if own else "given"
    return (Change("model_name_or_path", written, model, reason, written is not None),)


def _location_changes(
    own: dict[str, Any], location: Location, result: Result
) -> tuple[Change, ...]:
    changes = []
    as_given = location.reason == AS_GIVEN
    reason = (f"given {APART}" if own else "given") if as_given else location.reason
    for name, value in location.options.items():
        known = own.get(name)
        if not (_same_place(known, value) if name == "dataset_name" else known == value):
            changes.append(Change(name, known, value, reason, name in own))
    if as_given and result.job.dataset.blocks is not None:
        return tuple(changes)
    # A name beside a block is ignored with a warning, a split's name beside it is a KeyError.
    for name in fields.LOCATION_FIELDS:
        harmless = {None, TRL_SPLITS.get(name)}
        if name in own and name not in location.options and _hashable(own[name]) not in harmless:
            changes.append(Change(name, own[name], None, reason, True, kept=False))
    return tuple(changes)


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str | None) else repr(value)


def _option_changes(
    own: dict[str, Any], options: dict[str, Any], reasons: dict[str, str]
) -> tuple[Change, ...]:
    changes = []
    for name, value in options.items():
        if name in own and same_value(own[name], value):
            continue
        reason = reasons.get(name, f"given {APART}" if own else "given")
        changes.append(Change(name, own.get(name), value, reason, name in own))
    return tuple(changes)


def _reason(name: str, trial: TrialRecord, options: dict[str, Any]) -> str:
    if name in fields.STEP_COUNTED:
        return "the same number of samples as before"
    if name == "gradient_accumulation_steps" and trial.estimate is not None:
        return f"about {trial.estimate.sequences_per_update:.3g} sequences per update"
    return "tuned"
