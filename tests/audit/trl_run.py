"""Trains two updates with TRL's own trainer, as ``trl sft`` and its kin do; runs in a fork.

Of autotune only the argument objects and the meter of live bytes take part: rows, model, sampler
and trainer are TRL's, from the user's own rows and the model's folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from autotune.core.job import Frozen, Trainer
from tests.audit.watched import UPDATES, MicroBatch, Watched, finite

_CLASSES = {
    Trainer.SFT: "SFTTrainer",
    Trainer.DPO: "DPOTrainer",
    Trainer.REWARD: "RewardTrainer",
    Trainer.KTO: "KTOTrainer",
}


class Attempt(Frozen):
    """Train like this.

    Args:
        trainer: which trainer.
        model_dir: folder of a model with weights.
        rows_file: rows as the user wrote them, JSON lines.
        prepared_dir: folder of tokenised rows, used where rows are cut beforehand.
        cut_tokens: length SFT rows are cut to beforehand; None hands over the user's own rows.
        options: TRL options.
        env: environment variables.
        streams: hand the rows over as an iterable.
        scales: give accelerate the gradient scaler and the autocast it has on a GPU under fp16.
        folder: where the trainer may write.
    """

    trainer: Trainer
    model_dir: str
    rows_file: str
    prepared_dir: str
    cut_tokens: int | None = None
    options: dict[str, Any]
    env: dict[str, str] = {}
    streams: bool = False
    scales: bool = False
    folder: str


class Done(Frozen):
    """What became of it.

    Args:
        ending: whether it ``trains``, was ``refused`` while it was constructed, or ``breaks``
            later; also where it trains nothing: no label, no gradient, a loss that is no number.
        said: the error, or what it did not train.
        batches: micro-batches in order.
        losses: of every micro-batch; empty when one is no number.
        grad_norms: of every update; empty when one is no number.
        peak_bytes: peak of live bytes in the last update.
        warnings: what the libraries remarked.
    """

    ending: Literal["trains", "refused", "breaks"]
    said: str = ""
    batches: tuple[MicroBatch, ...] = ()
    losses: tuple[float, ...] = ()
    grad_norms: tuple[float, ...] = ()
    peak_bytes: int | None = None
    warnings: tuple[str, ...] = ()


def run(asked: str) -> str:
    """Answer an `Attempt` with a `Done`, both as JSON."""
    from autotune.probe.child.remarks import listening

    attempt = Attempt.model_validate_json(asked)
    os.environ.update(attempt.env)
    watched = Watched()
    heard: list[str] = []
    ending: Literal["refused", "breaks"] = "refused"
    said = ""
    try:
        with listening(heard):
            trainer = _constructed(attempt, watched)
            ending = "breaks"
            trainer.train()
    except Exception as error:  # noqa: BLE001  (outermost frame: a trainer may raise anything)
        said = f"{type(error).__name__}: {error}"
    said = said or watched.missing()
    return Done(
        ending=ending if said else "trains",
        said=said,
        batches=tuple(watched.batches),
        losses=finite(watched.losses),
        grad_norms=finite(watched.grad_norms),
        peak_bytes=watched.peak_bytes,
        warnings=tuple(heard),
    ).model_dump_json()


def _constructed(attempt: Attempt, watched: Watched) -> Any:
    """Construct the trainer as ``trl/scripts/{sft,dpo,reward,kto}.py`` do."""
    import transformers
    import trl

    from autotune.training.arguments import build_arguments

    arguments = build_arguments(attempt.trainer, {**attempt.options, **_apart(attempt)})
    training, model = arguments.training, arguments.model
    training.model_init_kwargs = {
        "revision": model.model_revision,
        "trust_remote_code": training.trust_remote_code,
        "attn_implementation": model.attn_implementation,
        "dtype": model.dtype,
        **(training.model_init_kwargs or {}),
    }
    transformers.set_seed(training.seed)
    cls = watched.around(getattr(trl, _CLASSES[attempt.trainer]), attempt.trainer)
    trainer = cls(
        model=attempt.model_dir,
        args=training,
        train_dataset=_rows(attempt),
        quantization_config=trl.get_quantization_config(model),
        peft_config=trl.get_peft_config(model),
    )
    if attempt.scales:
        _scale(trainer.accelerator)
    trainer.add_callback(watched.callback(trainer))
    return trainer


def _scale(accelerator: Any) -> None:
    """Scale gradients as on a GPU; accelerate trains plainly under fp16 on a CPU."""
    import torch

    accelerator.native_amp = True
    accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=256.0)


def _apart(attempt: Attempt) -> dict[str, Any]:
    """Return options that keep an attempt to itself and to two updates."""
    return {
        "output_dir": str(Path(attempt.folder) / "trainer"),
        "max_steps": UPDATES,
        "use_cpu": True,
        "report_to": "none",
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
    }


def _rows(attempt: Attempt) -> Any:
    import json

    import datasets

    datasets.disable_progress_bars()
    datasets.disable_caching()
    if attempt.cut_tokens is not None:
        from autotune.probe.child.rows import SOURCE_COLUMN, take_rows

        count = len(datasets.load_from_disk(attempt.prepared_dir))
        rows = take_rows(
            attempt.trainer, attempt.prepared_dir, list(range(count)), attempt.cut_tokens
        ).remove_columns(SOURCE_COLUMN)
    else:
        lines = Path(attempt.rows_file).read_text("utf-8").splitlines()
        rows = datasets.Dataset.from_list([json.loads(line) for line in lines])
    return rows.to_iterable_dataset() if attempt.streams else rows


class Weights(Frozen):
    """Give a model folder weights: random ones, the same every time."""

    model_dir: str


def write_weights(asked: str) -> str:
    """Answer a `Weights` with an empty JSON object once they are written."""
    import transformers

    folder = Weights.model_validate_json(asked).model_dir
    transformers.set_seed(0)
    config = transformers.AutoConfig.from_pretrained(folder)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return "{}"


def prepare(asked: str) -> str:
    """Answer a `PrepareSpec` with a `Prepared`, both as JSON."""
    from autotune.probe.child.prepare import run_prepare
    from autotune.probe.protocol import PrepareSpec

    return run_prepare(PrepareSpec.model_validate_json(asked)).model_dump_json()
