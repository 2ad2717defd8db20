"""Builds what the user's own config asks for once, without memory or time, to see what refuses it.

Some values are only refused when PEFT, the trainer, the optimizer or the loss is built from them.
The model is the user's own without weights (torch's ``meta`` device); the loss of the preference
trainers, which choose it while they train, is computed once with a model of a few weights. Says
nothing of rows, of memory or of what a machine can do: those have rules and checks of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from autotune.core.errors import BadInput, EnvironmentUnable
from autotune.core.job import Trainer
from autotune.training.arguments import build_arguments, isolated
from autotune.training.blame import blamed
from autotune.training.model import build_model, init_kwargs
from autotune.training.prepared import trainer_class
from autotune.training.trainer import REFERENCED

#: Errors by which libraries refuse a value.
_REFUSALS = (ValueError, TypeError, NameError)
#: Options about rows or the machine: judged elsewhere, and not to be stumbled over here.
_SET_ASIDE: dict[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "fp16": False,
    "tf32": None,
    "torch_compile": False,
    "use_liger_kernel": False,
    "activation_offloading": False,
    "load_in_4bit": False,
    "load_in_8bit": False,
    "packing": False,
    "padding_free": False,
    "max_length": None,
    "chat_template_path": None,
    "eos_token": None,
    "pad_token": None,
    "dataset_kwargs": None,
    "gradient_checkpointing_kwargs": None,
    "precompute_ref_log_probs": False,
    "deepspeed": None,
    "fsdp": None,
    "parallelism_config": None,
}
_ROWS: dict[Trainer, list[dict[str, Any]]] = {
    Trainer.SFT: [{"input_ids": [1, 2, 3], "labels": [1, 2, 3]}] * 2,
    Trainer.DPO: [{"prompt_ids": [1, 2], "chosen_ids": [3], "rejected_ids": [4]}] * 2,
    Trainer.REWARD: [{"chosen_ids": [1, 2], "rejected_ids": [1, 3]}] * 2,
    Trainer.KTO: [
        {"prompt_ids": [1, 2], "completion_ids": [3], "label": True},
        {"prompt_ids": [1, 2], "completion_ids": [4], "label": False},
    ],
}


def check_constructs(
    trainer: Trainer,
    options: Mapping[str, Any],
    *,
    model_dir: Path,
    tokenizer: Any,
    small: Any,
    folder: Path,
) -> None:
    """Stop where a value of the user's cannot be built from, whatever the machine and the rows.

    What cannot be built without that value either is not about it, and is left to the probes.

    Args:
        trainer: which ``trl`` command.
        options: the user's options with their final types.
        model_dir: local directory with the model's ``config.json``.
        tokenizer: the model's tokenizer.
        small: a causal model of a few weights and at least 8 tokens.
        folder: the only folder a trainer may write to.

    Raises:
        BadInput: names the option, its value and what refused it.
        EnvironmentUnable: an option needs a package that is not installed.
    """
    attempt = partial(
        _build, trainer, model_dir=model_dir, tokenizer=tokenizer, small=small, folder=folder
    )
    try:
        attempt(dict(options))
    except BadInput:
        raise
    except ImportError as error:
        name = blamed(options, attempt, error, (*_REFUSALS, ImportError))
        if name is not None:
            raise EnvironmentUnable(
                f"{name} {_shown(options[name])} needs a package that is not installed: "
                f"{_first_line(error)}",
                "Install it, or choose another value.",
            ) from error
    except _REFUSALS as error:
        name = blamed(options, attempt, error, _REFUSALS)
        if name is not None:
            raise BadInput(
                f"{name} is {_shown(options[name])}, which trl {trainer.value} refuses: "
                f"{_first_line(error)}",
                f"Change {name}, or leave it out.",
            ) from error
    except Exception:  # noqa: BLE001  (a model without weights cannot do everything)
        return


def _build(
    trainer: Trainer,
    options: Mapping[str, Any],
    *,
    model_dir: Path,
    tokenizer: Any,
    small: Any,
    folder: Path,
) -> None:
    """Build what a run builds before its first step."""
    from datasets import Dataset
    from transformers.integrations import get_reporting_integration_callbacks
    from trl import get_peft_config

    known = {**isolated(trainer, options, folder), **_attention(options)}
    known |= {k: v for k, v in _SET_ASIDE.items() if k in options or k in ("use_cpu", "bf16")}
    arguments = build_arguments(trainer, known)
    kwargs = init_kwargs(arguments.model, arguments.training)
    model = build_model(
        trainer, model_dir, kwargs=kwargs, weights="random", quantization=None, device="meta"
    )
    arguments.training.model_init_kwargs = None
    given: dict[str, Any] = {
        "args": arguments.training,
        "train_dataset": Dataset.from_list(_ROWS[trainer]),
        "processing_class": tokenizer,
    }
    peft = get_peft_config(arguments.model)
    if trainer in REFERENCED and peft is None:
        given["ref_model"] = small
    built = _unmoved(trainer)(model=model, peft_config=peft, **given)
    _optimizer(built)
    built.get_train_dataloader()
    trackers = options.get("report_to")
    names = [trackers] if isinstance(trackers, str) else trackers or []
    get_reporting_integration_callbacks([name for name in names if name not in ("all", "none")])
    if trainer in REFERENCED:
        _loss(trainer, given, small)


def _attention(options: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out attention kernels that a package or an accelerator brings."""
    named = str(options.get("attn_implementation"))
    return {"attn_implementation": None} if "flash" in named or "/" in named else {}


def _unmoved(trainer: Trainer) -> Any:
    class Unmoved(trainer_class(trainer)):  # type: ignore[misc]
        """A trainer that leaves its model where it is: one without weights cannot be moved."""

        def _move_model_to_device(self, *_: Any) -> None:
            return

    return Unmoved


def _optimizer(built: Any) -> None:
    """Make the optimizer of one weight, and its schedule."""
    import torch

    cls, kwargs = built.get_optimizer_cls_and_kwargs(built.args, built.model)
    optimizer = cls([torch.nn.Parameter(torch.zeros(1))], **kwargs)
    built.create_scheduler(num_training_steps=2, optimizer=optimizer)


def _loss(trainer: Trainer, given: Mapping[str, Any], small: Any) -> None:
    """Compute the loss of the rows once."""
    import copy

    import torch

    built = trainer_class(trainer)(**{**given, "model": copy.deepcopy(small), "ref_model": small})
    with torch.no_grad():
        built.compute_loss(built.model, built.data_collator(list(built.train_dataset)))


def _shown(value: Any) -> str:
    return repr(getattr(value, "value", value))  # TRL's parser makes enumerations of words


def _first_line(error: Exception) -> str:
    if isinstance(error, NameError):
        return "the installed version has no code for it."
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return text if text.endswith(".") else f"{text}."
