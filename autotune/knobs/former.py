"""Options that TRL and transformers used to have, and what takes their place.

A literal table, so that an old config is answered with the new name and not with the one that
happens to be spelled alike. Options that still exist under two names are in versions.py.
"""

from __future__ import annotations

from collections.abc import Mapping

_BOTH = "max_length, which bounds prompt and completion together,"
_BLOCK = "datasets, a list of entries with path, name, split, columns and fraction,"
_ITSELF = ""

#: Option -> what takes its place; empty where nothing needs to.
FORMER: Mapping[str, str] = {
    # TRL before 1.0
    "max_seq_length": "max_length",
    "max_prompt_length": _BOTH,
    "max_completion_length": _BOTH,
    "max_target_length": _BOTH,
    "torch_dtype": "dtype",
    "use_liger": "use_liger_kernel",
    "use_flash_attention_2": "attn_implementation: flash_attention_2",
    "dataset_train_name": "dataset_name",
    # recipes of alignment-handbook and open-r1, whose scripts had options of their own
    "dataset_mixer": _BLOCK,
    "dataset_mixture": _BLOCK,
    "dataset_splits": "datasets, whose entries each have a split,",
    "dataset_configs": "datasets, whose entries each have a name,",
    "preprocessing_num_workers": "dataset_num_proc",
    "chat_template": "chat_template_path",
    "wandb_project": "project",
    "model_dtype": "dtype",
    "rpo_alpha": "loss_type: [sigmoid, sft] with loss_weights",
    "padding_value": _ITSELF,
    "label_pad_token_id": _ITSELF,
    "is_encoder_decoder": _ITSELF,
    "use_logits_to_keep": _ITSELF,
    "force_use_ref_model": _ITSELF,
    "generate_during_eval": _ITSELF,
    "num_of_sequences": _ITSELF,
    "chars_per_token": _ITSELF,
    "dataset_batch_size": _ITSELF,
    # transformers before 5
    "evaluation_strategy": "eval_strategy",
    "group_by_length": "train_sampling_strategy: group_by_length",
    "warmup_ratio": "warmup_steps, a share of the run when it is below 1,",
    "no_cuda": "use_cpu",
    "adafactor": "optim: adafactor",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "push_to_hub_token": "hub_token",
    "push_to_hub_model_id": "hub_model_id",
    "push_to_hub_organization": "hub_model_id",
    "torchdynamo": "torch_compile_backend",
    "include_inputs_for_metrics": "include_for_metrics",
    "include_tokens_per_second": "include_num_input_tokens_seen",
    "dispatch_batches": "accelerator_config",
    "split_batches": "accelerator_config",
    "logging_dir": "the variable TENSORBOARD_LOGGING_DIR, in the env block,",
    "fp16_backend": _ITSELF,
    "half_precision_backend": _ITSELF,
    "fp16_opt_level": _ITSELF,
    "use_mps_device": _ITSELF,
    "use_ipex": _ITSELF,
    "jit_mode_eval": _ITSELF,
    "save_safetensors": _ITSELF,
    "overwrite_output_dir": _ITSELF,
    "past_index": _ITSELF,
    "ray_scope": _ITSELF,
    "tpu_num_cores": _ITSELF,
    "tpu_metrics_debug": _ITSELF,
}

#: Values of options that have another name now, by option.
FORMER_VALUES: Mapping[str, Mapping[str, str]] = {
    "packing_strategy": {"ffd": "bfd"},
}
#: Keys that mixtures of other tools have in the entries of a ``datasets:`` block -> TRL's.
FORMER_ENTRY_KEYS: Mapping[str, str] = {
    "weight": "fraction",
    "weights": "fraction",
    "ratio": "fraction",
    "proportion": "fraction",
    "id": "path",
    "dataset": "path",
    "config": "name",
    "subset": "name",
    "splits": "split",
    "column": "columns",
    "files": "data_files",
    "ds_type": "path",
}


def what_replaces(option: str) -> str | None:
    """Return what takes the place of an option that was removed, as the end of a sentence.

    Args:
        option: the option.

    Returns:
        None where the option never was one.
    """
    if option not in FORMER:
        return None
    return f"{FORMER[option]} takes its place" if FORMER[option] else "nothing takes its place"
