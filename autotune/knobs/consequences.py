"""What every rule means for the user's own config: refused with a remedy, remarked, or theirs.

A literal table by rule. What TRL, torch or the machine cannot do is refused before anything is
measured; what trains and is unwise is remarked; what only bounds a search does not concern it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Effect(Enum):
    """What a rule against the user's own config leads to."""

    REFUSED = "TRL or what it calls cannot train it"
    UNABLE = "this machine cannot train it"
    REMARKED = "it trains, and is said to be unwise"
    THEIRS = "it bounds what is searched; their own choice is theirs"


@dataclass(frozen=True)
class Consequence:
    """Say what a rule means for the user's own config.

    Args:
        effect: what it leads to.
        remedy: what to do, where it is refused.
    """

    effect: Effect
    remedy: str = ""


def _refused(remedy: str) -> Consequence:
    return Consequence(Effect.REFUSED, remedy)


_ANOTHER_MACHINE = (
    "Change that option, measure on a machine that has it, or predict for one with "
    "`autotune predict --gpu`."
)
_THEIRS = Consequence(Effect.THEIRS)
_REMARKED = Consequence(Effect.REMARKED)

#: By the name of the rule (`autotune.knobs.rules.RULES`).
CONSEQUENCES: Mapping[str, Consequence] = {
    "packing_needs_a_length": _refused("Set max_length, or packing false."),
    "length_within_positions": _refused(
        "Lower max_length (or pad_to_multiple_of) to fit, or take a model with more positions."
    ),
    "length_within_training": _REMARKED,
    "packed_rows_are_filled": _REMARKED,
    "rows_are_prepared_by_trl": _refused("Leave skip_prepare_dataset out, or packing."),
    "streams_are_not_cut_beforehand": _refused(
        "Set max_length null, or leave padding_free or dataset_streaming out."
    ),
    "streams_have_no_reference_beforehand": _refused(
        "Leave precompute_ref_log_probs out, or dataset_streaming."
    ),
    "lengths_are_known_to_the_sampler": _refused("Set train_sampling_strategy random."),
    "kto_compares_rows_of_a_batch": _refused(
        "Set per_device_train_batch_size to 2 or more, and leave train_sampling_strategy out."
    ),
    "batch_within_the_rows": _refused(
        "Leave dataloader_drop_last out, lower per_device_train_batch_size, or give more rows."
    ),
    "streams_fill_an_update": _refused(
        "Lower gradient_accumulation_steps or per_device_train_batch_size, or leave "
        "dataset_streaming out."
    ),
    "machine_has_it": Consequence(Effect.UNABLE, _ANOTHER_MACHINE),
    "selective_is_for_sft": _refused("Leave selective out of gradient_checkpointing_kwargs."),
    "selective_leaves_adapters_out": _refused(
        "Leave selective out of gradient_checkpointing_kwargs, or train without adapters."
    ),
    "quantized_weights_need_adapters": _refused("Set use_peft true, or load whole weights."),
    "evaluated_weights_train": Consequence(Effect.UNABLE, _ANOTHER_MACHINE),
    "eight_bits_have_no_dora": _refused("Set use_dora false, or load_in_4bit."),
    "reward_head_meets_its_input": _refused("Set dtype bfloat16."),
    "fp16_trains_float32": _refused("Set dtype float32, or bf16 true instead of fp16."),
    "float16_is_scaled": _refused(
        "Set fp16 true with dtype float32, set dtype bfloat16, or train adapters (use_peft)."
    ),
    "cpus_join_no_halves": _REMARKED,  # their own run may have a GPU
    "adapters_fit_the_model": _refused("Set lora_target_modules to layers PEFT takes."),
    "model_has_the_attention": _refused("Leave attn_implementation out."),
    "flash_attention_is_half": _refused("Set bf16 true, or leave attn_implementation out."),
    "layers_are_replaced_once": _REMARKED,
    "reference_stays_as_it_is": _refused(
        "Leave sync_ref_model out, or train without precompute_ref_log_probs and adapters."
    ),
    "checkpointing_outlives_the_reference": _refused(
        "Set precompute_ref_log_probs true, or leave that keyword out."
    ),
    "checkpoints_are_offloaded_from_a_device": Consequence(Effect.UNABLE, _ANOTHER_MACHINE),
    "liger_leaves_the_head": _refused(
        "Leave fused_linear_cross_entropy out of liger_kernel_config."
    ),
    "layerwise_optimizers_do_not_accumulate": _refused(
        "Set gradient_accumulation_steps 1, or choose another optim."
    ),
    "versions_want_it": _REMARKED,
    "no_longer_than_the_reference": _THEIRS,
    "documents_stay_whole": _THEIRS,
    "enough_is_kept": _THEIRS,
    "effective_batch_held": _REMARKED,
    "change_is_allowed": _THEIRS,
}
