"""What a candidate changes against the user's config: by trainer, loss, model and data.

Never by the knob's name alone (DESIGN.md 5.5): the batch split is neutral on a dense model and not
on one whose auxiliary loss is computed per micro-batch. Every change beyond neutral and data has
the word of ``--allow`` that accepts it.
"""

from __future__ import annotations

from typing import Literal

from autotune.core.candidate import Candidate, Value
from autotune.core.job import Trainer
from autotune.knobs.catalog import BY_NAME, user_candidate
from autotune.knobs.facts import Facts
from autotune.knobs.retention import SPLIT, splits_needlessly
from autotune.knobs.translate import canonical

Change = Literal["neutral", "data", "split", "mixing", "model"]

#: By knob, groups of choices that learn the same: optimizers that compute the same update in the
#: same precision, spellings of one loss (trl/trainer/sft_config.py).
_ALIKE: dict[str, tuple[tuple[str, ...], ...]] = {
    "optim": (("adamw_torch", "adamw_torch_fused"), ("adamw_8bit", "paged_adamw_8bit")),
    "loss_type": (("nll", "chunked_nll"),),
}
#: DPO losses that look at a micro-batch as a whole: sorted rows, or a mean over its tokens
#: (trl/trainer/dpo_trainer.py, ``_compute_loss``).
_BATCH_LOSSES = frozenset({"aot", "aot_unpaired", "sft"})
#: Optimizers that step after every micro-batch, however many are accumulated (transformers'
#: ``training_step`` hands them the rate, accelerate's ``backward`` steps).
_STEPS_AT_ONCE = ("lomo", "adalomo")
#: What decides which rows share a micro-batch, and how wide it is padded.
_SPLIT = ("per_device_train_batch_size",)
_SHAPES = (*_SPLIT, "padding_free", "pad_to_multiple_of", "packing")
#: Knobs whose every other choice changes the model, and the word that accepts it.
_WORDS = {
    "peft": "peft",
    "lora_r": "peft",
    "lora_target_modules": "peft",
    "quantization": "quantization",
    "dtype": "dtype",
    "optim": "optimizer",
    "loss_type": "loss",
}


def change_class(candidate: Candidate, facts: Facts) -> Change:
    """Return the strongest change a candidate makes.

    Args:
        candidate: a canonical candidate.
        facts: job, rows and machine; the reference rows are cut at ``facts.reference_length``.
    """
    words = words_for(candidate, facts)
    if set(words) - {"mixing", SPLIT}:
        return "model"
    if words:
        return "mixing" if "mixing" in words else "split"
    changes_rows = (
        _packs_differently(candidate, facts)
        or _cuts_differently(candidate, facts)
        or _orders_differently(candidate, facts)
    )
    return "data" if changes_rows else "neutral"


def words_for(candidate: Candidate, facts: Facts) -> tuple[str, ...]:
    """Return the words of ``--allow`` a candidate needs, each once; empty for neutral and data.

    Args: as `change_class`.
    """
    words = [word_for(name, choice, facts) for name, choice in candidate.knobs.items()]
    if splits_needlessly(candidate, facts):
        words.append(SPLIT)
    if any(_differs(name, candidate, facts) for name in _counted(facts)):
        words.append("batch-split")
    if _reference_drops_out(candidate, facts):
        words.append("loss")
    return tuple(dict.fromkeys(word for word in words if word))


def word_for(name: str, choice: Value, facts: Facts) -> str:
    """Return the word of ``--allow`` that one choice of a knob needs; empty when none.

    Args:
        name: a knob.
        choice: one of its choices.
        facts: job, rows and machine.
    """
    own = _own(name, facts)
    if choice == own:
        return ""  # the user's own choice is not a change
    if name == "packing":
        return "mixing" if choice == "wrapped" else ""
    if name == "attn_implementation":
        # Only some implementations have these, and the loss differs where one has not.
        return "attention" if facts.traits & {"softcap", "dropout"} else ""
    if any(choice in alike and own in alike for alike in _ALIKE.get(name, ())):
        return ""
    return _WORDS.get(name, "")


def _own(name: str, facts: Facts) -> Value:
    row = BY_NAME.get(name)
    return None if row is None else row.read(facts)


def _reference_drops_out(candidate: Candidate, facts: Facts) -> bool:
    """Whether the reference is made with dropout while training and without beforehand, or so.

    Under adapters it is the policy itself, which trains; ``disable_dropout`` leaves the dropout of
    the attention as it is (trl/trainer/utils.py).
    """
    adapted = candidate.get("peft", "none") != "none" and "dropout" in facts.traits
    return adapted and _differs("precompute_ref_log_probs", candidate, facts)


def _counted(facts: Facts) -> tuple[str, ...]:
    """Return the knobs through which the gradient depends on how micro-batches are made."""
    if facts.option("neftune_noise_alpha"):
        # transformers scales the noise by the width of the padded micro-batch (neftune.py)
        return _SHAPES
    return _SPLIT if _split_counts(facts) else ()


def _split_counts(facts: Facts) -> bool:
    """Whether the gradient depends on how an update is split into micro-batches."""
    trainer, loss = facts.job.trainer, facts.option("loss_type")
    if str(facts.option("optim")).startswith(_STEPS_AT_ONCE) or _balances_experts(facts):
        return True
    if trainer is Trainer.KTO:
        return bool(loss != "apo_zero_unpaired")
    if trainer is Trainer.DPO:
        return bool(_BATCH_LOSSES & set([loss] if isinstance(loss, str) else loss or ()))
    return False


def _balances_experts(facts: Facts) -> bool:
    """Whether TRL adds a loss that balances experts over a micro-batch."""
    if not facts.moe or facts.job.trainer is Trainer.REWARD:
        return False
    if facts.job.trainer is Trainer.SFT and facts.option("label_smoothing_factor"):
        # its loss is made from the logits alone (trl/trainer/sft_trainer.py, ``compute_loss``)
        return bool(facts.option("loss_type") == "dft")
    own = facts.option("router_aux_loss_coef")
    return "no-aux-loss" not in facts.traits if own is None else bool(own)


def _differs(name: str, candidate: Candidate, facts: Facts) -> bool:
    own = _own(name, facts)
    return bool(candidate.get(name, own) != own)


def _packs_differently(candidate: Candidate, facts: Facts) -> bool:
    """Whether rows are put together otherwise than in the user's config."""
    own = canonical(user_candidate(facts), facts).get("packing", "none")
    mine = candidate.get("packing", "none")
    return mine != own or (
        mine != "none" and candidate.get("max_length") != facts.option("max_length")
    )


def _cuts_differently(candidate: Candidate, facts: Facts) -> bool:
    """Whether other tokens are trained than the user's config trains."""
    longest = facts.lengths.longest
    mine, theirs = candidate.get("max_length"), facts.option("max_length")
    mine_cut = longest if mine is None else min(int(mine), longest)
    theirs_cut = longest if theirs is None else min(int(theirs), longest)
    return mine_cut != theirs_cut


def _orders_differently(candidate: Candidate, facts: Facts) -> bool:
    own = facts.option("train_sampling_strategy")
    return bool(candidate.get("train_sampling_strategy", own) != own)
