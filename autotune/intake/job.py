"""Turns a request into a job: reads the user's YAML, checks names."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autotune import demo
from autotune.core.errors import BadInput, NotBuiltYet, nearest
from autotune.core.job import ALLOWABLE, PROBED_TRAINERS, Job, Trainer
from autotune.core.secrets import without_secrets
from autotune.core.units import parse_ratio
from autotune.emit.read_config import UserConfig, parse_user_config, read_user_config
from autotune.intake.cache import cache_dir, home_cache_refused
from autotune.intake.request import Request
from autotune.intake.secrets import hub_token, withhold
from autotune.intake.subject import subject_of
from autotune.knobs.versions import canonical_options

#: Keys of a TRL YAML that ``--set`` cannot give, and what does.
_ELSEWHERE = {
    "model_name_or_path": "--model",
    "dataset_name": "--dataset",
    "datasets": "--dataset, or a --config with a datasets block,",
    "dataset_config": "--dataset-config",
    "dataset_train_split": "--dataset-train-split",
    "dataset_test_split": "--dataset-test-split",
}


@dataclass(frozen=True)
class Origin:
    """What is known of the user's input beside the job.

    Args:
        demo_model: the model is the embedded demo's.
        demo_rows: the rows are.
        memory_bytes: the demo's budget; None for every other job.
        notices: remarks on what was filled in or left out.
        secret_env: variables from the YAML's ``env:`` block that are written nowhere.
    """

    demo_model: bool
    demo_rows: bool
    memory_bytes: int | None
    notices: tuple[str, ...]
    secret_env: dict[str, str] = field(default_factory=dict)


def build_job(request: Request, known: tuple[Trainer, ...] = PROBED_TRAINERS) -> tuple[Job, Origin]:
    """Turn a request into a job, reading the user's YAML.

    Args:
        request: what the user asks for.
        known: the trainers the use case can do.

    Raises:
        BadInput: a name is unknown, a file cannot be read, or a model or rows are missing.
        NotBuiltYet: this version cannot probe the trainer.
    """
    trainers = [t.value for t in Trainer]
    if request.trainer not in trainers:
        raise BadInput(
            f"unknown trainer {request.trainer!r}{nearest(request.trainer, trainers)}.",
            f"Trainers are {', '.join(trainers)}.",
        )
    trainer = Trainer(request.trainer)
    if trainer not in known:
        raise NotBuiltYet(
            f"this version cannot do this for the {trainer.value} trainer yet.",
            f"It can for {', '.join(t.value for t in known)}.",
        )
    _check_alone(os.environ)
    _check_words(request)
    withheld = withhold(_user_config(request))
    config = withheld.config
    set_options, more = without_secrets(request.set_options)
    env = {**withheld.env, **hub_token(request.set_options)}
    withheld = replace(withheld, env=env, names=(*withheld.names, *more))
    subject = subject_of(request, config)
    notices = [
        f"{key} is written more than once in {request.config}: the last one counts, as for TRL."
        for key in config.repeated
    ]
    notices += withheld.notices
    if elsewhere := home_cache_refused():
        notices.append(elsewhere)
    memory_bytes = None
    if subject.demo_model and subject.demo_rows and request.config is None:
        memory_bytes = demo.MEMORY_BYTES
        base = parse_user_config(demo.base_config_path().read_text("utf-8"), "demo.yaml")
        config = replace(config, text=base.text, options=base.options)
    notices += subject.notices
    source = subject.source.model_copy(
        update={
            "config": request.dataset_config or subject.source.config,
            "train_split": request.dataset_train_split or subject.source.train_split,
            "test_split": request.dataset_test_split or subject.source.test_split,
        }
    )
    job = Job(
        trainer=trainer,
        model=subject.model or str(demo_model_dir()),
        dataset=source,
        options={**canonical_options(config.options), **canonical_options(set_options)},
        env=config.env,
        config_text=config.text or None,
        objective=_one_of(request.objective, ("throughput", "memory", "length"), "--objective"),
        min_retention_ratio=parse_ratio(request.min_retention, "--min-retention"),
        effective_batch_sequences=request.effective_batch,
        allow=frozenset(request.allow),
        weights=_one_of(request.weights, ("random", "real"), "--weights"),
        seed=request.seed,
    )
    origin = Origin(
        demo_model=subject.demo_model,
        demo_rows=subject.demo_rows,
        memory_bytes=memory_bytes,
        notices=tuple(notices),
        secret_env=withheld.env,
    )
    return job, origin


def _check_alone(environment: Mapping[str, str]) -> None:
    """Check that this is no rank of a distributed launch: every one would search for itself.

    Raises:
        BadInput: torchrun, accelerate or DeepSpeed started several of us.
    """
    # LOCAL_RANK is set by launchers alone; some clusters give WORLD_SIZE to single processes too
    count = environment.get("WORLD_SIZE", "1")
    if "LOCAL_RANK" in environment and count not in ("", "1"):
        raise BadInput(
            f"autotune was started by a distributed launcher (WORLD_SIZE is {count}), and every "
            "process would search for itself.",
            "Start it alone, without torchrun or accelerate launch: it measures one process.",
        )


def _check_words(request: Request) -> None:
    """Check what needs no file to be checked.

    Raises:
        BadInput: an option of ``--set`` belongs elsewhere, or a word or number is none of those.
    """
    for name, option in _ELSEWHERE.items():
        if name in request.set_options:
            raise BadInput(f"--set {name} would be ignored.", f"Use {option} for it.")
    for change in request.allow:
        if change not in ALLOWABLE:
            raise BadInput(
                f"--allow {change} is unknown{nearest(change, list(ALLOWABLE))}.",
                f"It takes {', '.join(ALLOWABLE)}.",
            )
    if request.seed < 0:
        raise BadInput(f"--seed is {request.seed}, expected 0 or more.")


def _one_of(value: str, known: tuple[str, ...], option: str) -> Any:
    if value not in known:
        raise BadInput(
            f"{option} is {value!r}{nearest(value, list(known))}.", f"It takes {', '.join(known)}."
        )
    return value


def _user_config(request: Request) -> UserConfig:
    if request.config is None:
        return UserConfig(text="", model=None, dataset=None)
    return read_user_config(Path(request.config).expanduser())


def demo_model_dir() -> Path:
    """Return where the demo model lies, or will be built; its name changes with its config."""
    text = b"".join(f.read_bytes() for f in sorted(demo.DEMO_DIR.glob("*.json")))
    return cache_dir() / f"demo-model-{hashlib.sha256(text).hexdigest()[:12]}"
