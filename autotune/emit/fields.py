"""Which part of TRL's command line owns an option: literal tables, checked against TRL by a test.

Holds names only. What an option does, and whether it is valid, is the business of ``knobs``.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.core.errors import NotBuiltYet
from autotune.core.job import Trainer

#: ``trl.ModelConfig``: how the model is loaded.
MODEL_FIELDS = (
    "model_name_or_path",
    "model_revision",
    "dtype",
    "attn_implementation",
    "use_peft",
    "lora_r",
    "lora_alpha",
    "lora_dropout",
    "lora_target_modules",
    "lora_target_parameters",
    "lora_modules_to_save",
    "lora_task_type",
    "use_rslora",
    "use_dora",
    "load_in_8bit",
    "load_in_4bit",
    "bnb_4bit_quant_type",
    "use_bnb_nested_quant",
    "bnb_4bit_quant_storage",
)
#: ``trl.ScriptArguments``.
SCRIPT_FIELDS = (
    "dataset_name",
    "dataset_config",
    "dataset_train_split",
    "dataset_test_split",
    "dataset_streaming",
    "ignore_bias_buffers",
)
#: ``trl.DatasetMixtureConfig``.
MIXTURE_FIELDS = ("datasets", "streaming", "test_split_size")
#: Keys that say where the rows are; they are rewritten together.
LOCATION_FIELDS = (
    "dataset_name",
    "dataset_config",
    "dataset_train_split",
    "dataset_test_split",
    "datasets",
)
#: Facts of the machine that measured: given back only when the user's own file states them.
MACHINE_FACTS = ("use_cpu", "no_cuda", "use_mps_device", "local_rank", "ddp_backend")
#: What a probe replaces to stay without side effects; the user's own value always comes back.
SIDE_EFFECTS = (
    "output_dir",
    "overwrite_output_dir",
    "logging_dir",
    "run_name",
    "project",
    "report_to",
    "trackio_space_id",
    "push_to_hub",
    "hub_model_id",
    "hub_token",
    "hub_strategy",
    "hub_private_repo",
    "hub_always_push",
    "hub_revision",
    "resume_from_checkpoint",
    "load_best_model_at_end",
    "disable_tqdm",
    "log_level",
)
#: Options for which ``no`` is a word of TRL's and not a boolean.
STRATEGIES = ("eval_strategy", "save_strategy", "logging_strategy")


@dataclass(frozen=True)
class TrainerClasses:
    """Name the classes of one TRL trainer.

    Args:
        command: word after ``trl``.
        config: class of its arguments.
        trainer: class of the trainer.
        max_length: TRL's default of ``max_length`` in tokens (trl/trainer/<trainer>_config.py).
    """

    command: str
    config: str
    trainer: str
    max_length: int


TRAINERS = {
    Trainer.SFT: TrainerClasses("sft", "SFTConfig", "SFTTrainer", 1024),
    Trainer.DPO: TrainerClasses("dpo", "DPOConfig", "DPOTrainer", 1024),
    Trainer.REWARD: TrainerClasses("reward", "RewardConfig", "RewardTrainer", 1024),
    Trainer.KTO: TrainerClasses("kto", "KTOConfig", "KTOTrainer", 1024),
}


def trainer_classes(trainer: Trainer) -> TrainerClasses:
    """Return the classes of a trainer.

    Raises:
        NotBuiltYet: this version does not emit for that trainer.
    """
    if trainer not in TRAINERS:
        raise NotBuiltYet(
            f"Emitting for the {trainer.value} trainer is not built yet.",
            f"This version emits for: {', '.join(sorted(TRAINERS))}.",
        )
    return TRAINERS[trainer]
