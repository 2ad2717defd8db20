"""Knobs of the model that is trained: weights, adapters, attention, kernels, loss."""

from __future__ import annotations

from typing import Any

from autotune.core.candidate import Value
from autotune.core.job import Trainer
from autotune.knobs.adapters import adapter_options, target_options
from autotune.knobs.facts import Facts
from autotune.knobs.knob import OFFLINE, Knob, Options, Read, Write, option, plain
from autotune.knobs.needs import LAYER_KERNELS

FLASH_PACKAGE = "flash_attention_2"
FLASH_KERNEL = "kernels-community/flash-attn2"
#: The oldest GPUs FlashAttention 2 is written for.
AMPERE = "compute capability 8.0"
_COMPILES = ("torch_compile_backend", "torch_compile_mode")


def _init_kwargs(facts: Facts) -> dict[str, Any]:
    return dict(facts.option("model_init_kwargs") or {})


def _write_loading(name: str) -> Write:
    """Write an option of ``ModelConfig``; it leaves ``model_init_kwargs``, which win."""

    def write(choice: Value, facts: Facts) -> Options:
        kwargs = _init_kwargs(facts)
        if name not in kwargs:
            return {name: choice}
        del kwargs[name]
        return {name: choice, "model_init_kwargs": kwargs or None}

    return write


def _read_loading(name: str, default: Value) -> Read:
    def read(facts: Facts) -> Value:
        value = _init_kwargs(facts).get(name, facts.option(name))
        return default if value is None else str(value).removeprefix("torch.")

    return read


def _write_quantization(choice: Value, _: Facts) -> Options:
    return {"load_in_4bit": choice == "4bit", "load_in_8bit": choice == "8bit"}


def _read_quantization(facts: Facts) -> Value:
    if facts.option("load_in_4bit"):
        return "4bit"
    return "8bit" if facts.option("load_in_8bit") else "none"


def _write_peft(choice: Value, facts: Facts) -> Options:
    return adapter_options(str(choice), facts.job.trainer)


def _read_peft(facts: Facts) -> Value:
    if not facts.option("use_peft"):
        return "none"
    if facts.option("use_dora"):
        return "dora"
    return "rslora" if facts.option("use_rslora") else "lora"


def _write_targets(choice: Value, _: Facts) -> Options:
    return target_options(choice)


def _read_targets(facts: Facts) -> Value:
    value = facts.option("lora_target_modules")
    return ",".join(value) if isinstance(value, list | tuple) else value


def _write_kernels(choice: Value, facts: Facts) -> Options:
    kwargs = _init_kwargs(facts)
    kwargs.pop("use_kernels", None)
    if choice:
        kwargs["use_kernels"] = True
    return {"model_init_kwargs": kwargs or None}


def _read_kernels(facts: Facts) -> Value:
    return bool(_init_kwargs(facts).get("use_kernels", False))


def _write_compile(choice: Value, facts: Facts) -> Options:
    # transformers compiles as soon as one of the two is named (``TrainingArguments``)
    own = facts.job.options
    without = {} if choice else {name: None for name in _COMPILES if own.get(name) is not None}
    return {"torch_compile": choice, **without}


def _read_compile(facts: Facts) -> Value:
    return any(facts.option(name) for name in ("torch_compile", *_COMPILES))


ROWS_OF_MODEL: tuple[Knob, ...] = (
    Knob(
        name="attn_implementation",
        place="model",
        choices=(None, "eager", "sdpa", "flex_attention", FLASH_PACKAGE, FLASH_KERNEL),
        trainers=OFFLINE,
        help="attention code; null is the model's own choice (sdpa where it has it)",
        write=_write_loading("attn_implementation"),
        read=_read_loading("attn_implementation", None),
        needs={
            "flex_attention": ("accelerator", "compiler"),
            FLASH_PACKAGE: ("accelerator", AMPERE, "flash-attn"),
            FLASH_KERNEL: ("accelerator", AMPERE, "kernels", FLASH_KERNEL),
        },
    ),
    Knob(
        name="dtype",
        place="model",
        choices=("float32", "bfloat16", "float16"),
        trainers=OFFLINE,
        help="precision of the loaded weights (--allow dtype)",
        write=_write_loading("dtype"),
        read=_read_loading("dtype", "float32"),
        needs={"bfloat16": ("bf16",)},
    ),
    Knob(
        name="quantization",
        place="model",
        choices=("none", "4bit", "8bit"),
        trainers=OFFLINE,
        help="load_in_4bit or load_in_8bit: frozen base weights under adapters "
        "(--allow quantization)",
        write=_write_quantization,
        read=_read_quantization,
        fixed_by=("load_in_4bit", "load_in_8bit"),
        needs={"4bit": ("bitsandbytes",), "8bit": ("bitsandbytes",)},
    ),
    Knob(
        name="peft",
        place="peft",
        choices=("none", "lora", "dora", "rslora"),
        trainers=OFFLINE,
        help="use_peft: train adapters instead of all weights (--allow peft)",
        write=_write_peft,
        read=_read_peft,
        fixed_by=("use_peft", "use_dora", "use_rslora"),
    ),
    Knob(
        name="lora_r",
        place="peft",
        choices=(4, 8, 16, 32, 64, 128),
        trainers=OFFLINE,
        help="rank of the adapters (--allow peft)",
        write=plain("lora_r"),
        read=option("lora_r", 16),
    ),
    Knob(
        name="lora_target_modules",
        place="peft",
        choices=(None, "all-linear"),
        trainers=OFFLINE,
        help="layers with adapters; null is PEFT's list for the model, the attention projections "
        "of most (--allow peft)",
        write=_write_targets,
        read=_read_targets,
    ),
    Knob(
        name="use_kernels",
        place="model",
        choices=(False, True),
        trainers=OFFLINE,
        help="replace layers by kernels from the hub (model_init_kwargs)",
        write=_write_kernels,
        read=_read_kernels,
        needs={True: ("accelerator", "kernels", LAYER_KERNELS)},
    ),
    Knob(
        name="use_liger_kernel",
        place="training",
        choices=(False, True),
        trainers=OFFLINE,
        help="replace layers by Liger's kernels; TRL deprecates it since 1.15 except for Reward",
        write=plain("use_liger_kernel"),
        read=option("use_liger_kernel", False),
        needs={True: ("accelerator", "liger-kernel")},
    ),
    Knob(
        name="loss_type",
        place="training",
        choices=("nll", "chunked_nll", "dft"),
        trainers=(Trainer.SFT,),
        help="chunked_nll is nll without full logits, which nll itself is since TRL 1.15; dft is "
        "another loss (--allow loss)",
        write=plain("loss_type"),
        read=option("loss_type", "nll"),
    ),
    Knob(
        name="torch_compile",
        place="training",
        choices=(False, True),
        trainers=OFFLINE,
        help="compile the model; in no shipped space, since compiling every shape takes minutes",
        write=_write_compile,
        read=_read_compile,
        needs={True: ("compiler",)},
    ),
)
