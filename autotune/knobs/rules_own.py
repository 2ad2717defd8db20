"""Validity rules about options of the user's that are no knobs, under a candidate's choices.

Each returns None when it has nothing against a candidate, else a reason a person reads. What no
candidate could be measured with is refused before there are any (`autotune.knobs.unmeasured`).
"""

from __future__ import annotations

from autotune.core.candidate import Candidate
from autotune.core.job import Trainer
from autotune.knobs.facts import Facts
from autotune.knobs.translate import settings

#: Keys of ``gradient_checkpointing_kwargs`` that transformers takes out before the others reach
#: ``torch.utils.checkpoint`` (transformers/trainer.py, ``train``).
OF_TRANSFORMERS = ("every_n_layers", "offload")
#: Trainers whose model TRL 1.16 gives a fused LM head.
_FUSED_HEAD = (Trainer.SFT, Trainer.DPO, Trainer.KTO)


def checkpointing_outlives_the_reference(candidate: Candidate, facts: Facts) -> str | None:
    """TRL 1.16 switches checkpointing off for the reference, and on again by torch's keys only.

    Source: ``disable_gradient_checkpointing`` in trl/models/utils.py. The second micro-step fails:
    "Unexpected keyword arguments: every_n_layers".
    """
    if facts.job.trainer not in (Trainer.DPO, Trainer.KTO) or not _recomputes(candidate):
        return None
    kwargs = facts.option("gradient_checkpointing_kwargs") or {}
    lost = next((name for name in OF_TRANSFORMERS if name in kwargs), None)
    if lost is None or candidate.get("precompute_ref_log_probs"):
        return None
    return (
        f"gradient_checkpointing_kwargs.{lost} does not outlive a pass over the reference: TRL "
        "switches checkpointing on again without it (precompute_ref_log_probs needs no such pass)"
    )


def checkpoints_are_offloaded_from_a_device(candidate: Candidate, facts: Facts) -> str | None:
    """torch: "pin_memory=True requires a CUDA or other accelerator backend"."""
    kwargs = facts.option("gradient_checkpointing_kwargs") or {}
    if kwargs.get("offload") and _recomputes(candidate) and facts.device.kind == "cpu":
        return (
            "gradient_checkpointing_kwargs.offload needs an accelerator; this job runs on the CPU"
        )
    return None


def liger_leaves_the_head(candidate: Candidate, facts: Facts) -> str | None:
    """TRL 1.16: "it replaces the model's forward, which this trainer patches"."""
    fused = (facts.option("liger_kernel_config") or {}).get("fused_linear_cross_entropy")
    if candidate.get("use_liger_kernel") and fused and facts.job.trainer in _FUSED_HEAD:
        return (
            "liger_kernel_config.fused_linear_cross_entropy and TRL's fused LM head replace the "
            "same forward"
        )
    return None


def layerwise_optimizers_do_not_accumulate(candidate: Candidate, facts: Facts) -> str | None:
    """transformers: "Layerwise ... does not support gradient accumulation!"."""
    optim = str(candidate.get("optim", ""))
    if optim.endswith("layerwise") and settings(candidate, facts).accumulation > 1:
        return f"optim {optim} steps after every micro-batch and does not accumulate gradients"
    return None


def _recomputes(candidate: Candidate) -> bool:
    return candidate.get("gradient_checkpointing") != "none"


OWN_RULES = (
    checkpointing_outlives_the_reference,
    checkpoints_are_offloaded_from_a_device,
    liger_leaves_the_head,
    layerwise_optimizers_do_not_accumulate,
)
