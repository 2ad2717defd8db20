"""Builds what the user's own config asks for once, without memory or time, to see what refuses it.

Some values are only refused when PEFT, the trainer or the optimizer is built from them: that is
tried with the user's own model without weights (torch's ``meta`` device). Others are only met by
the first step: that is taken with a model of a few weights. Says nothing of rows, of memory or of
what a machine can do: those have rules and checks of their own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from autotune.core.errors import AutotuneError, BadInput, EnvironmentUnable, first_line
from autotune.core.job import Trainer
from autotune.knobs.rules_own import OF_TRANSFORMERS
from autotune.training.arguments import build_arguments, isolated, option_owners
from autotune.training.blame import blamed
from autotune.training.model import build_model, init_kwargs
from autotune.training.prepared import trainer_class
from autotune.training.trainer import REFERENCED

#: Errors by which libraries refuse a value when something is built from it.
_REFUSALS = (ValueError, TypeError, NameError)
#: Errors a value can end a step in.
_FAULTS = (
    *_REFUSALS,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
)
#: Options about rows or the machine: judged elsewhere, and not to be stumbled over here.
_SET_ASIDE: dict[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "fp16": False,
    "torch_compile": False,
    "torch_compile_backend": None,  # either switches it on
    "torch_compile_mode": None,
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
    "precompute_ref_log_probs": False,
}
#: What is set aside besides when a step is taken with another model: the user's model and
#: optimizer, which were built before, and processes that load rows.
_BUILT_BEFORE: dict[str, Any] = {
    "use_peft": False,
    "router_aux_loss_coef": None,
    "optim": "adamw_torch",
    "optim_args": None,
    "optim_target_modules": None,
    "dataloader_num_workers": 0,
    "dataloader_prefetch_factor": None,
    "dataloader_persistent_workers": False,
    "dataloader_multiprocessing_context": None,
    "torch_empty_cache_steps": None,
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
    """Stop where a value of the user's cannot be trained with, whatever the machine and the rows.

    What fails without that value too is not about it, and is left to the probes.

    Args:
        trainer: which ``trl`` command.
        options: the user's options with their final types.
        model_dir: local directory with the model's ``config.json``.
        tokenizer: the model's tokenizer.
        small: a model of a few weights and at least 8 tokens, of the kind the trainer trains.
        folder: the only folder a trainer may write to.

    Raises:
        BadInput: names the option, its value and what refused it.
        EnvironmentUnable: an option needs a package that is not installed.
    """
    build = partial(_build, trainer, model_dir=model_dir, tokenizer=tokenizer, folder=folder)
    step = partial(_step, trainer, tokenizer=tokenizer, folder=folder)
    for attempt, refusals in ((build, _REFUSALS), (step, _FAULTS)):
        try:
            attempt(options, small=small)
        except AutotuneError:
            raise
        except (*refusals, ImportError) as error:
            name = blamed(*_suspected(trainer, options, attempt, small), error, (Exception,))
            if name is not None:
                raise _named(trainer, name, options[name], error) from error
        except Exception:  # noqa: BLE001  (a model without weights cannot do everything)
            continue


def _suspected(
    trainer: Trainer, options: Mapping[str, Any], attempt: Callable[..., None], small: Any
) -> tuple[dict[str, Any], Callable[[dict[str, Any]], None]]:
    """Return the options that may be to blame, and the same attempt with some of them."""
    # The task of a reward model's adapters is resolved: without it the refusal is another one.
    kept = ("lora_task_type",) if trainer is Trainer.REWARD else ()
    always = {name: options[name] for name in kept if name in options}
    suspects = {name: value for name, value in options.items() if name not in always}
    return suspects, lambda some: attempt({**always, **some}, small=small)


def _named(
    trainer: Trainer, name: str, value: Any, error: Exception
) -> BadInput | EnvironmentUnable:
    """Return the error that says what is wrong with one option."""
    shown = repr(getattr(value, "value", value))  # TRL's parser makes enumerations of words
    if isinstance(error, ImportError):
        return EnvironmentUnable(
            f"{name} {shown} needs a package that is not installed: {_first_line(error)}",
            "Install it, or choose another value.",
        )
    words = _first_line(error)
    return BadInput(
        f"{name} is {shown}, which trl {trainer.value} refuses: {words}",
        _way_out(name, words, trainer),
    )


def _way_out(name: str, words: str, trainer: Trainer) -> str:
    """Return what to do: a refusal may speak of another option, one left at its default."""
    if "target_modules" in words and name == "use_peft":
        return "PEFT has no list of layers for this model: name some with lora_target_modules."
    others = [o for o in option_owners(trainer) if o != name and "_" in o and o in words.split()]
    if others:
        return f"Change {' or '.join(others)}, or leave {name} out."
    return f"Change {name}, or leave it out."


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
    from transformers.integrations import get_reporting_integration_callbacks
    from trl import get_peft_config

    set_aside = {**_SET_ASIDE, "gradient_checkpointing_kwargs": None, **_kernels(options)}
    arguments = build_arguments(trainer, _kept(trainer, options, folder, set_aside))
    kwargs = init_kwargs(arguments.model, arguments.training)
    model = build_model(
        trainer, model_dir, kwargs=kwargs, weights="random", quantization=None, device="meta"
    )
    peft = get_peft_config(arguments.model)
    reference = small if trainer in REFERENCED and peft is None else None
    cls = _unmoved(trainer)
    built = _trainer(cls, trainer, arguments.training, model, reference, tokenizer, peft)
    _optimizer(built)
    built.get_train_dataloader()
    trackers = options.get("report_to")
    names = [trackers] if isinstance(trackers, str) else trackers or []
    get_reporting_integration_callbacks([name for name in names if name not in ("all", "none")])


def _step(
    trainer: Trainer, options: Mapping[str, Any], *, tokenizer: Any, small: Any, folder: Path
) -> None:
    """Train the small model for one step."""
    set_aside = {**_SET_ASIDE, **_BUILT_BEFORE, **_checkpointing(options)}
    arguments = build_arguments(trainer, _kept(trainer, options, folder, set_aside))
    reference = small if trainer in REFERENCED else None
    model, cls = copy.deepcopy(small), trainer_class(trainer)
    _trainer(cls, trainer, arguments.training, model, reference, tokenizer, None).train()


def _kept(
    trainer: Trainer, options: Mapping[str, Any], folder: Path, set_aside: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options with some set aside, and everything with a side effect."""
    always = ("use_cpu", "bf16")
    return {
        **isolated(trainer, options, folder),
        **{k: v for k, v in set_aside.items() if k in options or k in always},
    }


def _trainer(
    cls: Any, trainer: Trainer, training: Any, model: Any, reference: Any, tokenizer: Any, peft: Any
) -> Any:
    from datasets import Dataset

    training.model_init_kwargs = None
    return cls(
        model=model,
        args=training,
        train_dataset=Dataset.from_list(_ROWS[trainer]),
        processing_class=tokenizer,
        peft_config=peft,
        **({} if reference is None else {"ref_model": reference}),
    )


def _kernels(options: Mapping[str, Any]) -> dict[str, Any]:
    """Set kernels aside that `autotune.knobs.needs` looks after; none is for torch's ``meta``."""
    found: dict[str, Any] = {}
    if _from_elsewhere(options.get("attn_implementation")):
        found["attn_implementation"] = None
    kwargs = options.get("model_init_kwargs") or {}
    left = {
        name: value
        for name, value in kwargs.items()
        if name not in ("use_kernels", "kernel_config")
        and not (name == "attn_implementation" and _from_elsewhere(value))
    }
    return found if left == kwargs else {**found, "model_init_kwargs": left or None}


def _from_elsewhere(attention: Any) -> bool:
    return "flash" in str(attention) or "/" in str(attention)


def _checkpointing(options: Mapping[str, Any]) -> dict[str, Any]:
    """Set keywords of checkpointing aside that have rules of their own."""
    kwargs = options.get("gradient_checkpointing_kwargs") or {}
    left = {k: v for k, v in kwargs.items() if k not in OF_TRANSFORMERS}
    return {} if left == kwargs else {"gradient_checkpointing_kwargs": left or None}


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
    built.create_scheduler(num_training_steps=10_000, optimizer=optimizer)


def _first_line(error: Exception) -> str:
    if isinstance(error, NameError):
        return "the installed version has no code for it."
    text = first_line(error)
    return text if text.endswith(".") else f"{text}."
