"""What a probe replaces in the user's options so that it touches nothing outside its folder.

Every replacement is listed in the result and restored in what is emitted (DESIGN.md 5.10). The
table is data; the measuring child applies it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Override:
    """Replace one option in the measuring child.

    Args:
        option: TRL option.
        value: what probes use instead.
        why: one phrase for the report.
        only: values of the user's it replaces; empty for any.
    """

    option: str
    value: Any
    why: str
    only: tuple[str, ...] = ()

    def concerns(self, options: Mapping[str, Any]) -> bool:
        """Whether a probe of these options needs the replacement."""
        if self.only:
            return options.get(self.option) in self.only
        return self.option in options or self.value is not None


_TRACKERS = "no tracker is told about probes"
_HUB = "no hub is reached from a probe"
_DISK = "a probe writes nothing but its own folder"
_ROWS = "rows reach the probe already prepared"

#: ``output_dir`` and ``max_steps`` are set per probe beside these.
OVERRIDES: tuple[Override, ...] = (
    Override("report_to", "none", _TRACKERS),
    Override("run_name", None, _TRACKERS),
    Override("push_to_hub", False, _HUB),
    Override("hub_model_id", None, _HUB),
    Override("hub_token", None, _HUB),
    Override("hub_revision", None, _HUB),
    Override("hub_always_push", False, _HUB),
    Override("trackio_space_id", None, _TRACKERS),
    Override("trackio_bucket_id", None, _TRACKERS),
    Override("trackio_static_space_id", None, _TRACKERS),
    Override("resume_from_checkpoint", None, "a probe starts from nothing"),
    Override("load_best_model_at_end", False, _DISK),
    Override("save_strategy", "no", _DISK),
    Override("eval_strategy", "no", "evaluation is not part of a probe"),
    Override("eval_on_start", False, "evaluation is not part of a probe"),
    Override(
        "lr_scheduler_type",
        "constant",
        "these schedules follow evaluations, which are not part of a probe",
        only=("reduce_lr_on_plateau", "greedy"),
    ),
    Override("logging_strategy", "no", "logging is not timed"),
    Override("disable_tqdm", True, "a probe draws no progress bar"),
    Override("auto_find_batch_size", False, "the batch is the candidate's"),
    Override("train_sampling_strategy", "sequential", "a probe chooses its rows"),
    Override("shuffle_dataset", False, "a probe chooses its rows"),
    Override("dataset_num_proc", None, _ROWS),
    Override("assistant_only_loss", False, _ROWS + ", labels included"),
    Override("completion_only_loss", None, _ROWS + ", labels included"),
    Override("include_num_input_tokens_seen", "no", "tokens are counted outside the step"),
    Override("skip_memory_metrics", True, "memory is measured outside the trainer"),
)

#: Environment variables of a distributed launcher (torchrun, accelerate, DeepSpeed); no measuring
#: process inherits them: it would wait for others, compile, or divide the model.
LAUNCHER_ENV = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "ACCELERATE_DYNAMO_BACKEND",
    "ACCELERATE_MIXED_PRECISION",
    "ACCELERATE_USE_CPU",
    "ACCELERATE_USE_DEEPSPEED",
    "ACCELERATE_USE_FSDP",
    "ACCELERATE_USE_MEGATRON_LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG",
)

#: Keys of a TRL YAML that TRL's command line hands to ``accelerate launch``; no probe uses them.
LAUNCH_FIELDS = (
    "accelerate_config",
    "config_file",
    "num_processes",
    "num_machines",
    "machine_rank",
    "main_process_ip",
    "main_process_port",
    "mixed_precision",
    "multi_gpu",
    "gpu_ids",
    "dynamo_backend",
    "num_cpu_threads_per_process",
    "use_deepspeed",
    "use_fsdp",
    "zero_stage",
)

#: Of them, those that ask for the model in parts: a process then needs less than is measured.
_DIVIDING = ("use_deepspeed", "use_fsdp", "zero_stage")
_DIVIDING_CONFIGS = ("zero1", "zero2", "zero3", "fsdp1", "fsdp2")

#: Credentials and tracker addresses; preparation may need the hub's, probes are given none.
SECRET_ENV = (
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "WANDB_API_KEY",
    "COMET_API_KEY",
    "NEPTUNE_API_TOKEN",
    "MLFLOW_TRACKING_URI",
    "CLEARML_API_SECRET_KEY",
)

#: Variables that change speed or memory, kept in a result; nothing else of the environment is.
RECORDED_ENV = (
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "GOMP_SPINCOUNT",
    "KMP_BLOCKTIME",
    "MKL_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "MALLOC_ARENA_MAX",
    "LD_PRELOAD",
)

#: How waiting threads of the processor wait, unless the user says so by one of these variables:
#: they spin for a moment and then sleep. By default they spin on for milliseconds, and where other
#: work wants the core, the thread that has work waits for one that spins: beside a load of 8 on two
#: cores steps of three demo candidates took 5 to 20 times as long as with threads that sleep.
#: Sleeping at once (OMP_WAIT_POLICY=passive) costs steps of small kernels where the machine is
#: quieter: in 8 interleaved pairs at loads of 1 to 5 the three took 0.61, 1.39 and 1.03 times the
#: default's time with it, and 0.61, 0.92 and 0.76 times with this count, which GCC's OpenMP itself
#: takes where its threads outnumber the cores. KMP_BLOCKTIME is the word of Intel's and LLVM's.
WAITING_ENV = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "0"}
WAITING_NAMES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")

#: Variables every measuring process is given.
CHILD_ENV: dict[str, str] = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "WANDB_DISABLED": "true",
    "WANDB_MODE": "disabled",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "TRANSFORMERS_VERBOSITY": "warning",
    "TQDM_DISABLE": "1",
}


def launch_notices(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what the launcher a config asks for means for numbers of one process on one device.

    Args:
        options: the user's options, those for ``accelerate launch`` included.
    """
    found = []
    named = options.get("accelerate_config") or options.get("config_file")
    asked = [f"{name} {options[name]}" for name in _DIVIDING if options.get(name)]
    if named is not None:
        asked.append(f"accelerate_config {named}")
    count = options.get("num_processes")
    if count not in (None, 1, "1"):
        asked.append(f"num_processes {count}")
    if asked:
        found.append(
            f"{', '.join(asked)}: numbers are those of one process on one device, and every "
            "process sees a batch of its own."
        )
    if any(options.get(name) for name in _DIVIDING) or named in _DIVIDING_CONFIGS:
        found.append(
            "Dividing the model over processes (ZeRO, FSDP) is not measured: a process then needs "
            "less memory than is said here, and more time."
        )
    return tuple(found)


def overridden(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's own values that probes replace, for the report and for what is emitted.

    Args:
        options: TRL options the user set.
    """
    table = {o.option: o for o in OVERRIDES if o.concerns(options)}
    kept = {k: v for k, v in options.items() if k in table and v != table[k].value}
    kept.update({k: options[k] for k in ("output_dir", "max_steps", "logging_dir") if k in options})
    return kept
