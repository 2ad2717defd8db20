"""Train the configuration autotune chose; best.yaml says the same to trl.

--- written by autotune 0.1.0, 2026-03-02T10:15:00Z
measured on NVIDIA A10G (cuda:0), for sft with a budget of 22.00 GiB
chosen because: it has the shortest pass of the 5 that fit: 2.47 times as fast as your own config
      (95 % interval 2.41 to 2.53, measured in turns 12 times)
peak memory 20.54 GiB
7,405 useful tokens/s, keeps 100.0 % of the label tokens within your max_length of 1024
2.47 times as fast as the reference (95 % interval 2.41 to 2.53)
note: order of the rows differs from the baseline's
note: resume_from_checkpoint counts steps of the config it was saved with, and steps are others
      here: start anew, or keep your own packing and max_length
as you had them, though probes ran without: output_dir, report_to, push_to_hub, hub_model_id,
      resume_from_checkpoint
changes against your config (class of the winner: data):
  per_device_train_batch_size: 8 -> 4   [tuned]
  gradient_accumulation_steps: 4 -> 1   [about 32 sequences per update]
  max_length: 1024 -> 2048   [tuned]
  gradient_checkpointing, now activation_checkpointing: true -> true   [as the installed versions
      want it written]
  warmup_steps: 20 -> 19   [the same number of samples as before]
  eval_strategy: false -> no   [YAML reads a bare no as false, which TRL refuses]
  packing: (not set) -> true   [tuned]
  padding_free: (not set) -> false   [as before, written out]
  pad_to_multiple_of: (not set) -> null   [as before, written out]
  activation_offloading: (not set) -> false   [as before, written out]
  packing_strategy: (not set) -> bfd   [tuned]
  activation_checkpointing_kwargs: (not set) -> {selective: true}   [tuned]
  bf16: (not set) -> true   [TRL's default, written out]
  env.PYTORCH_CUDA_ALLOC_CONF: max_split_size_mb:128 ->
      max_split_size_mb:128,expandable_segments:True   [tuned]
--- end of autotune's remarks
"""

import argparse
import os
from typing import Any

# Read when the libraries load, so set before they are imported.
os.environ["WANDB_PROJECT"] = "support"
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:128,expandable_segments:True"

from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

MODEL = "acme/base-7b"

# Explicit options of SFTConfig; what is not here is TRL's default.
OPTIONS: dict[str, Any] = {
    "learning_rate": 2e-05,
    "num_train_epochs": 2,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 1,
    "max_length": 2048,
    "activation_checkpointing": True,
    "warmup_steps": 19,
    "eval_strategy": "no",
    "output_dir": "runs/support-7b",
    "report_to": "wandb",
    "push_to_hub": True,
    "hub_model_id": "acme/support-7b",
    "resume_from_checkpoint": "runs/support-7b/checkpoint-400",
    "packing": True,
    "padding_free": False,
    "pad_to_multiple_of": None,
    "activation_offloading": False,
    "packing_strategy": "bfd",
    "activation_checkpointing_kwargs": {"selective": True},
    "bf16": True,
    "model_init_kwargs": {
        "revision": "main",
        "trust_remote_code": False,
        "attn_implementation": None,
        "dtype": "float32",
    },
}


def load_rows() -> Any:
    """Return the rows by split."""
    return load_dataset(
        "acme/support-chats",
    )


def main() -> None:
    """Train and save."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_steps", type=int, help="stop after this many updates")
    parser.add_argument("--output_dir", help="write here instead")
    parser.add_argument("--use_cpu", action="store_true", help="train on the CPU")
    given = parser.parse_args()
    options = dict(OPTIONS)
    if given.max_steps is not None:
        options["max_steps"] = given.max_steps
    if given.output_dir is not None:
        options["output_dir"] = given.output_dir
    if given.use_cpu:
        options |= {"use_cpu": True, "bf16": False, "fp16": False}
    config = SFTConfig(**options)
    rows = load_rows()
    trainer = SFTTrainer(
        model=MODEL,
        args=config,
        train_dataset=rows["train_sft"],
        eval_dataset=rows["test"] if config.eval_strategy != "no" else None,
    )
    trainer.train(resume_from_checkpoint=config.resume_from_checkpoint)
    trainer.save_model(config.output_dir)
    trainer.push_to_hub(dataset_name="acme/support-chats")
    trainer.end()


if __name__ == "__main__":
    main()
