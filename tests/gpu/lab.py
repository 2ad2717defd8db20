"""What every check works with: a device, a folder, model shapes by config, and real probes.

Nothing is downloaded: models are made from the configs below with random weights, the tokenizer is
the embedded demo's, rows are made here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from autotune.core.job import Trainer
from autotune.core.measurement import ProbeReport
from autotune.core.outcome import Outcome
from autotune.probe.launch import open_launcher
from autotune.probe.launcher import Launcher
from autotune.probe.protocol import GuardSide, GuardSpec, ProbeSpec, RowPlan
from autotune.probe.runner import Runner
from tests.support.models import tiny_model
from tests.support.rows import write_rows

MIB = 2**20
#: Rows of 64 lengths up to 1024 tokens, the longest last.
TOKENS = (*(32 + (97 * row) % 480 for row in range(60)), 700, 800, 900, 1024)

#: Published configs (Qwen2.5-0.5B and Mistral-7B-v0.1), written from their model cards.
SHAPES: dict[str, dict[str, Any]] = {
    "0.5B": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": 151_936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "max_position_embeddings": 32_768,
    },
    "7B": {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "vocab_size": 32_000,
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 32_768,
        "tie_word_embeddings": False,
        "sliding_window": None,
    },
}
PACKAGES = (
    *("torch", "transformers", "trl", "peft", "accelerate", "datasets", "optuna"),
    *("bitsandbytes", "flash-attn", "kernels", "triton", "nvidia-ml-py"),
)
LORA = {
    "use_peft": True,
    "lora_r": 16,
    "lora_target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"],
    "dtype": "bfloat16",
}


@dataclass
class Lab:
    """One check's device, folders and probes.

    Args:
        device: ``cpu`` (a dry run: every shape becomes tiny) or ``cuda:0``.
        folder: scratch.
        out: where evidence goes.
        launcher: starts measuring processes; None opens the fastest that is safe here.
    """

    device: str
    folder: Path
    out: Path
    launcher: Launcher | None = None
    _open: ExitStack = field(default_factory=ExitStack)
    _runner: Runner | None = None
    why_cold: str = ""

    @property
    def on_gpu(self) -> bool:
        """Whether this is more than a dry run."""
        return self.device != "cpu"

    @property
    def capability(self) -> str | None:
        """The device's compute capability; None on the CPU."""
        if not self.on_gpu:
            return None
        import torch

        return "{}.{}".format(*torch.cuda.get_device_capability(self.device))

    def versions(self) -> dict[str, Any]:
        """Return what is installed here, and the device's name."""
        import torch

        name = torch.cuda.get_device_name(self.device) if self.on_gpu else "the CPU"
        packages = {name: installed(name) for name in PACKAGES}
        built = {"CUDA": torch.version.cuda, "HIP": torch.version.hip}
        return {"device": name, "capability": self.capability, **packages, **built}

    @property
    def rows_dir(self) -> str:
        """Folder of the prepared rows; made when first asked for."""
        folder = self.folder / "rows"
        return str(folder if folder.exists() else write_rows(folder, self.tokens))

    @property
    def tokens(self) -> Sequence[int]:
        """Lengths of the rows: short ones in a dry run."""
        return TOKENS if self.on_gpu else tuple(2 + n // 16 for n in TOKENS)

    def model_dir(self, shape: str) -> str:
        """Return the folder of a model of this shape, a tiny one in a dry run."""
        folder = self.folder / f"model-{shape}"
        if not folder.exists():
            tiny_model(folder, **(SHAPES[shape] if self.on_gpu else {}))
        return str(folder)

    def spec(self, shape: str, *, cap_bytes: int | None = None, **options: Any) -> ProbeSpec:
        """Return the request for one candidate over all rows.

        Args:
            shape: ``0.5B`` or ``7B``.
            cap_bytes: memory it may use.
            options: TRL options beside the plain ones.
        """
        rows = tuple(range(len(self.tokens)))
        by_length = tuple(sorted(rows, key=lambda row: -self.tokens[row]))
        plain = {
            "per_device_train_batch_size": 1,
            "gradient_accumulation_steps": 4,
            "max_length": 1024,
            "bf16": self.on_gpu,
            "learning_rate": 1e-5,
        }
        wanted: dict[str, Any] = {**plain, **options}
        batch = int(wanted["per_device_train_batch_size"])
        return ProbeSpec(
            trainer=Trainer.SFT,
            model_dir=self.model_dir(shape),
            weights="random",
            options=wanted,
            device=self.device,
            rows_dir=self.rows_dir,
            plan=RowPlan(worst=(by_length[:batch],), paired=rows, block=rows),
            cap_bytes=cap_bytes,
        )

    def probe(self, spec: ProbeSpec, name: str) -> ProbeReport:
        """Measure one candidate in a process of its own."""
        return self.runner.probe(spec, name=name, deadline_s=150.0)

    def guard(self, spec: ProbeSpec, changes: Mapping[str, Any], name: str) -> ProbeReport:
        """Compare one update of a candidate with the same under changed options."""
        wanted = GuardSpec(
            trainer=spec.trainer,
            model_dir=spec.model_dir,
            weights="random",
            device=spec.device,
            rows_dir=spec.rows_dir,
            rows=spec.plan.paired[:8],
            reference=GuardSide(options=spec.options),
            candidate=GuardSide(options={**spec.options, **changes}),
        )
        return self.runner.compare(wanted, name=name, deadline_s=150.0)

    @property
    def runner(self) -> Runner:
        """The runner over the launcher."""
        if self._runner is None:
            launcher = self.launcher
            if launcher is None:
                (self.folder / "logs").mkdir(parents=True, exist_ok=True)
                launcher, self.why_cold = open_launcher(self.folder / "logs", None)
            self._runner = self.run_on(launcher)
        return self._runner

    def run_on(self, launcher: Launcher) -> Runner:
        """Return a runner over another launcher; ended with the check."""
        return self._open.enter_context(Runner(launcher, self.folder))

    def close(self) -> None:
        """End everything that was started."""
        self._open.close()


def checkpointing(choice: str) -> dict[str, Any]:
    """Return the options of ``none``, ``full`` or ``selective`` checkpointing."""
    none = {"gradient_checkpointing": False}
    full = {"gradient_checkpointing": True}
    selective = {**full, "gradient_checkpointing_kwargs": {"selective": True}}
    return {"none": none, "full": full, "selective": selective}[choice]


def installed(name: str) -> str:
    """Return the installed version of a package, in words where there is none."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def numbers(report: ProbeReport) -> dict[str, Any]:
    """Return what a probe's evidence keeps: all it measured, its steps in short."""
    document: dict[str, Any] = report.model_dump(
        mode="json", exclude={"schema_version", "log_file", "compared"}
    )
    measured = document.pop("measurement")
    if measured is None:
        return document
    for stage in ("memory_steps", "warmup_steps", "timed_steps"):
        measured[stage] = [_short(step) for step in measured[stage]]
    document |= {name: value for name, value in measured.items() if value}
    return document


def _short(step: dict[str, Any]) -> dict[str, Any]:
    kept = ("seconds", "rows", "width", "peak_bytes", "first_use")
    return {name: step[name] for name in kept if step.get(name)}


def fits(report: ProbeReport) -> bool:
    """Whether a probe ended well."""
    return report.ending.outcome is Outcome.FITS


def peak(report: ProbeReport) -> int:
    """Return the allocated peak of a probe that fits, in bytes."""
    assert report.measurement is not None, report.ending
    assert report.measurement.peaks.allocated_bytes is not None
    return report.measurement.peaks.allocated_bytes
