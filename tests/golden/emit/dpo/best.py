"""Train the configuration autotune chose; best.yaml says the same to trl.

--- written by autotune 0.1.0, 2026-03-02T10:15:00Z
measured on AMD EPYC 7R13 (cpu), for dpo with a budget of 1.00 GiB
measured on a CPU: not a recommendation for a GPU
chosen because: it has the shortest pass of the 5 that fit: 2.47 times as fast as your own config
      (95 % interval 2.41 to 2.53, measured in turns 12 times)
peak memory 774.1 MiB
905 useful tokens/s, keeps 100.0 % of the label tokens of the whole documents
2.92 times as fast as the reference (95 % interval 2.80 to 3.05)
needs /work/runs/tiny/dataset/train.parquet, which lies in the run's folder: keep it
changes against TRL's defaults (class of the winner: data):
  model_name_or_path: (not set) -> acme/tiny   [given]
  datasets: (not set) -> [{path: parquet, data_files: /work/runs/tiny/dataset/train.parquet, split:
      train}]   [rows converted: chosen and rejected to prompt, chosen and rejected messages]
  learning_rate: (not set) -> 2.0e-05   [given]
  optim: (not set) -> adamw_torch   [given]
  per_device_train_batch_size: (not set) -> 2   [tuned]
  gradient_accumulation_steps: (not set) -> 4   [as before, written out]
  max_length: (not set) -> 512   [tuned]
  activation_checkpointing: (not set) -> false   [tuned]
  bf16: (not set) -> true   [TRL's default, written out]
--- end of autotune's remarks
"""

import argparse
from typing import Any

from trl import DatasetMixtureConfig, DPOConfig, DPOTrainer, get_dataset

MODEL = "acme/tiny"

# Explicit options of DPOConfig; what is not here is TRL's default.
OPTIONS: dict[str, Any] = {
    "learning_rate": 2e-05,
    "optim": "adamw_torch",
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "max_length": 512,
    "activation_checkpointing": False,
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
    return get_dataset(
        DatasetMixtureConfig(
            datasets=[
                {
                    "path": "parquet",
                    "data_files": "/work/runs/tiny/dataset/train.parquet",
                    "split": "train",
                },
            ],
        )
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
    config = DPOConfig(**options)
    rows = load_rows()
    trainer = DPOTrainer(
        model=MODEL,
        args=config,
        train_dataset=rows["train"],
        eval_dataset=rows["test"] if config.eval_strategy != "no" else None,
    )
    trainer.train(resume_from_checkpoint=config.resume_from_checkpoint)
    trainer.save_model(config.output_dir)
    trainer.end()


if __name__ == "__main__":
    main()
