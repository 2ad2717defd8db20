"""Whether a model is one a trainer trains at all, from its config alone; builds nothing.

SFT, DPO and KTO train causal language models: every token is predicted from those before it. Reward
trains whatever transformers can put one score on. Says nothing of whether its weights are there.
"""

from __future__ import annotations

from typing import Any

from autotune.core.errors import BadInput
from autotune.core.job import Trainer


def check_architecture(trainer: Trainer, config: Any, name: str) -> None:
    """Stop at a model the trainer cannot train.

    Args:
        trainer: which ``trl`` command.
        config: transformers' config of the model.
        name: how the user named the model.

    Raises:
        BadInput: names the architecture, what it is and what the trainer takes.
    """
    auto, known = _takes(trainer)
    if auto in (getattr(config, "auto_map", None) or {}):
        return  # code of its own, which says itself what it is
    what = _scoreless(config, known) if trainer is Trainer.REWARD else _not_causal(config, known)
    if not what:
        return
    kind = "models with a score" if trainer is Trainer.REWARD else "causal language models"
    _, scored = _takes(Trainer.REWARD)
    reward = " trl reward takes this one." if type(config) in scored else ""
    raise BadInput(
        f"the model {name} ({architecture_of(config)}) {what}, and trl {trainer.value} trains "
        f"{kind} only.",
        f"Give one that transformers' {auto} has, such as Llama, Qwen or GPT-2."
        f"{reward if trainer is not Trainer.REWARD else ''}",
    )


def architecture_of(config: Any) -> str:
    """Return the name of a model's class, as its config has it, else that of the config's."""
    named = getattr(config, "architectures", None) or [type(config).__name__]
    return str(named[0])


def _takes(trainer: Trainer) -> tuple[str, Any]:
    """Return the auto class a trainer loads models with, and the models that has by config."""
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    auto = AutoModelForSequenceClassification if trainer is Trainer.REWARD else AutoModelForCausalLM
    return auto.__name__, auto._model_mapping


def _scoreless(config: Any, known: Any) -> str:
    text = config.get_text_config()
    return "" if type(config) in known or type(text) in known else "has no form with a score"


def _not_causal(config: Any, known: Any) -> str:
    """Return why a model is no causal language model; empty where it is one."""
    from transformers import AutoModelForMaskedLM

    if getattr(config, "is_encoder_decoder", False):
        return "is an encoder-decoder"
    text = config.get_text_config()
    if type(config) not in known:
        # a causal language model inside a model of images or sound is refused for that
        inside = text is not config and type(text) in known
        return "" if inside else "has no causal language model"
    decodes = getattr(config, "is_decoder", False) or getattr(config, "causal", False)
    if type(config) in AutoModelForMaskedLM._model_mapping and not decodes:
        return "is an encoder (its tokens see those after them)"
    return _headless(config)


def _headless(config: Any) -> str:
    """Return what is wrong with the class a config names: TRL builds that one (trl 1.16)."""
    import transformers

    named = getattr(config, "architectures", None) or [""]
    built = getattr(transformers, str(named[0]), None) if named[0] else None
    if built is None or built.can_generate():
        return ""
    return "has no language model's head"
