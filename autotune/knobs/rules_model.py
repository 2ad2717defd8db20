"""Validity rules about the model and how it is trained: weights, adapters, checkpointing, kernels.

Each returns None when it has nothing against a candidate, else a reason a person reads.
"""

from __future__ import annotations

from collections.abc import Mapping

from autotune.core.candidate import Candidate, Value
from autotune.core.job import Trainer
from autotune.knobs.adapters import adapters_key
from autotune.knobs.catalog import BY_NAME
from autotune.knobs.facts import Facts
from autotune.knobs.needs import EVALUATED_4BIT, lacks
from autotune.knobs.table_model import FLASH_KERNEL, FLASH_PACKAGE
from autotune.knobs.versions import unavailable

_HALF = ("bfloat16", "float16")
#: Attention code -> the trait of models that have no such code.
_NEEDED_OF_MODELS: Mapping[Value, str] = {
    "sdpa": "no-sdpa",
    "flex_attention": "no-flex",
    FLASH_PACKAGE: "no-flash",
    FLASH_KERNEL: "no-flash",
}


def machine_has_it(candidate: Candidate, facts: Facts) -> str | None:
    """A choice that asks for a device or a package fails where that is not."""
    for name, choice in candidate.knobs.items():
        reason = lacks(BY_NAME[name], choice, facts) if name in BY_NAME else ""
        if reason:
            return f"{name} {_shown(choice)}: {reason}"
    return None


def versions_want_it(candidate: Candidate, facts: Facts) -> str | None:
    """What the installed versions deprecate or cannot do is not proposed."""
    for name, choice in candidate.knobs.items():
        reason = unavailable(name, choice, facts.job.trainer, facts.versions)
        if reason:
            return f"{name} {_shown(choice)}: {reason}"
    return None


def selective_is_for_sft(candidate: Candidate, facts: Facts) -> str | None:
    """Only SFT turns ``selective`` into a policy; the others hand the word on to torch."""
    selective = candidate.get("gradient_checkpointing") == "selective"
    if selective and facts.job.trainer is not Trainer.SFT:
        return f"selective checkpointing is for sft, and this job is {facts.job.trainer.value}"
    return None


def selective_leaves_adapters_out(candidate: Candidate, facts: Facts) -> str | None:
    """TRL 1.16 patches the PEFT wrapper, transformers 5.24 switches on the model inside it."""
    selective = candidate.get("gradient_checkpointing") == "selective"
    if selective and candidate.get("peft", "none") != "none":
        return "selective checkpointing does not reach a model inside adapters"
    return None


def quantized_weights_need_adapters(candidate: Candidate, facts: Facts) -> str | None:
    """transformers: "You cannot perform fine-tuning on purely quantized models"."""
    bits = candidate.get("quantization", "none")
    if bits != "none" and candidate.get("peft", "none") == "none":
        return f"{bits} weights are frozen: without adapters (peft) there is nothing to train"
    return None


def evaluated_weights_train(candidate: Candidate, facts: Facts) -> str | None:
    """TRL runs the policy over all rows as the reference before it trains it."""
    reason = facts.lacking.get(EVALUATED_4BIT)
    precomputes = candidate.get("precompute_ref_log_probs")
    if reason and precomputes and candidate.get("quantization") == "4bit":
        return f"precompute_ref_log_probs evaluates the weights first: {reason}"
    return None


def eight_bits_have_no_dora(candidate: Candidate, facts: Facts) -> str | None:
    """bitsandbytes 0.50 loses the scales of an 8-bit layer that PEFT 0.21 dequantizes for DoRA."""
    if candidate.get("quantization") == "8bit" and candidate.get("peft") == "dora":
        return "dora over 8bit weights fails in bitsandbytes; lora, or 4bit, works"
    return None


def reward_head_meets_its_input(candidate: Candidate, facts: Facts) -> str | None:
    """TRL makes what is trained over quantized weights bf16, the score head of Reward included.

    Its input then has to be bf16 too: by the weights, or by autocast, which cannot mix with fp16.
    """
    bits, dtype = candidate.get("quantization", "none"), candidate.get("dtype", "float32")
    if facts.job.trainer is not Trainer.REWARD or bits == "none" or dtype == "bfloat16":
        return None
    if facts.option("bf16") and (bits == "8bit" or dtype == "float32"):
        return None
    return f"the reward head over {bits} weights is bf16 and its input {dtype}: set dtype bfloat16"


def fp16_trains_float32(candidate: Candidate, facts: Facts) -> str | None:
    """The gradient scaler of fp16 refuses gradients in half precision at the first update."""
    if not facts.option("fp16"):
        return None
    if candidate.get("quantization", "none") != "none":
        return (
            "fp16 mixed precision needs trained parameters in float32, and TRL makes adapters over "
            "quantized weights bfloat16"
        )
    trained = trained_dtype(candidate, facts)
    if trained in _HALF:
        return f"fp16 mixed precision needs trained parameters in float32, and dtype is {trained}"
    return None


def float16_is_scaled(candidate: Candidate, facts: Facts) -> str | None:
    """Gradients of float16 parameters vanish or overflow unless fp16's scaler keeps them in range.

    TRL trains on, with gradients of zero or losses that are no numbers.
    """
    if trained_dtype(candidate, facts) == "float16" and not facts.option("fp16"):
        return (
            "what is trained is float16, which needs the gradient scaler of fp16, and this job "
            "does not use it"
        )
    return None


def cpus_join_no_halves(candidate: Candidate, facts: Facts) -> str | None:
    """4-bit layers give back the float16 they are given, and rotary positions join halves of it.

    A CPU's autocast refuses that ("Unexpected floating ScalarType", torch 2.13). On a GPU adapters
    on those layers make it float32 before: PEFT 0.21 asks for a GPU's autocast only.
    """
    rotary = facts.positions is not None and not facts.positions.fixed
    halves = candidate.get("quantization") == "4bit" and candidate.get("dtype") == "float16"
    if rotary and halves and facts.option("bf16") and facts.device.kind == "cpu":
        return "4bit weights with dtype float16 fail in torch's bf16 autocast of a CPU"
    return None


def trained_dtype(candidate: Candidate, facts: Facts) -> str:
    """Return the precision of what is trained, the least precise part of it.

    Adapters are float32 whatever the frozen weights are (peft 0.21, ``autocast_adapter_dtype``),
    and over quantized ones TRL 1.16 makes them bfloat16. Whole modules beside them, such as the
    score of a reward model, are copies in the dtype of the weights.
    """
    dtype = str(candidate.get("dtype", "float32"))
    if candidate.get("quantization", "none") != "none":
        return "bfloat16"
    copies = facts.option("lora_modules_to_save") or facts.job.trainer is Trainer.REWARD
    return dtype if candidate.get("peft", "none") == "none" or copies else "float32"


def adapters_fit_the_model(candidate: Candidate, facts: Facts) -> str | None:
    """What PEFT refuses to build on the model's layers; it was tried on one without weights."""
    kind = str(candidate.get("peft", "none"))
    if kind == "none":
        return None
    form = adapters_key(kind, candidate.get("lora_target_modules"))
    reason = facts.unfit_adapters.get(form)
    return None if reason is None else f"{form} cannot be built on this model: {reason}"


def model_has_the_attention(candidate: Candidate, facts: Facts) -> str | None:
    """transformers: "does not support an attention implementation through ..." """
    chosen = candidate.get("attn_implementation")
    trait = _NEEDED_OF_MODELS.get(chosen)
    if trait in facts.traits:
        return f"the model's code cannot run attn_implementation {chosen}"
    return None


def flash_attention_is_half(candidate: Candidate, facts: Facts) -> str | None:
    """Flash attention kernels take bf16 and fp16 only: by autocast or by the weights."""
    half = facts.option("bf16") or facts.option("fp16") or candidate.get("dtype") in _HALF
    if "flash" in str(candidate.get("attn_implementation")) and not half:
        return "flash attention computes in bf16 or fp16 only, and this job in float32"
    return None


def layers_are_replaced_once(candidate: Candidate, facts: Facts) -> str | None:
    """Liger and the hub's kernels replace the same layers."""
    if candidate.get("use_kernels") and candidate.get("use_liger_kernel"):
        return "use_kernels and use_liger_kernel replace the same layers"
    return None


def reference_stays_as_it_is(candidate: Candidate, facts: Facts) -> str | None:
    """TRL: "You cannot use `sync_ref_model=True` together with `precompute_ref_log_probs=True`"."""
    if not facts.option("sync_ref_model"):
        return None
    if candidate.get("precompute_ref_log_probs"):
        return (
            "sync_ref_model changes the reference, so its log-probabilities cannot be precomputed"
        )
    if candidate.get("peft", "none") != "none":
        return "sync_ref_model needs a reference model of its own, and with adapters there is none"
    return None


def _shown(choice: object) -> str:
    return "null" if choice is None else str(choice).lower()


MODEL_RULES = (
    machine_has_it,
    selective_is_for_sft,
    selective_leaves_adapters_out,
    quantized_weights_need_adapters,
    evaluated_weights_train,
    eight_bits_have_no_dora,
    reward_head_meets_its_input,
    fp16_trains_float32,
    float16_is_scaled,
    cpus_join_no_halves,
    adapters_fit_the_model,
    model_has_the_attention,
    flash_attention_is_half,
    layers_are_replaced_once,
    reference_stays_as_it_is,
)
