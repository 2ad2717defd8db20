"""Runs one whole optimizer update under two candidates: same rows, same weights, dropout off.

DESIGN.md 5.7. Only observes, through TRL's own ``training_step``; whether the two numbers agree is
decided in equivalence.py. Works with every trainer `build_trainer` builds.
"""

from __future__ import annotations

import gc
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.core.equivalence import Compared, Precision, Update
from autotune.core.outcome import Phase
from autotune.knobs.versions import at_least
from autotune.probe.child.progress import Progress
from autotune.probe.child.rows import take_rows
from autotune.probe.child.scaling import SkipWatch, begin_with
from autotune.probe.protocol import GuardSide, GuardSpec

#: A limit no gradient reaches; zero would leave fp16 gradients scaled.
_NEVER_CLIPS = 1e9
#: The scale an fp16 comparison begins with: a real run's (2**16) is meant to overflow at first and
#: to be halved; a scaler halves this one as well, as often as it takes, down to 2**-8.
_SCALE = 2.0**12
_MOST_SKIPPED = 20


def compare(spec: GuardSpec, work_dir: Path, progress: Progress) -> Compared:
    """Run the reference's update, then the candidate's; never both in memory.

    Args:
        spec: the two candidates and the rows.
        work_dir: the only folder it writes to.
        progress: told what is being done; micro-steps are those of both.
    """
    return Compared(
        reference=run_update(spec, spec.reference, work_dir, progress),
        candidate=run_update(spec, spec.candidate, work_dir, progress),
        weights=spec.weights,
    )


def run_update(
    spec: GuardSpec,
    side: GuardSide,
    work_dir: Path,
    progress: Progress,
    *,
    base: Any | None = None,
) -> Update:
    """Build one candidate's trainer and run one update over all rows.

    Args:
        spec: model and rows.
        side: the candidate.
        work_dir: the only folder it writes to.
        progress: told what is being done.
        base: a subclass of TRL's trainer to run instead of it.
    """
    import torch

    from autotune.training.prepared import precomputed, trainer_class
    from autotune.training.trainer import build_trainer

    torch.manual_seed(spec.seed)
    progress.phase = Phase.LOAD
    seen = _Seen(progress)
    trainer = build_trainer(
        spec.trainer,
        options=guard_options(spec, side, work_dir),
        model_dir=Path(spec.model_dir),
        weights=spec.weights,
        rows=take_rows(spec.trainer, spec.rows_dir, list(spec.rows), side.pretruncate_tokens),
        device=spec.device,
        cls=_watched(base or trainer_class(spec.trainer), seen),
    )
    _without_dropout(trainer.model)
    if side.options.get("precompute_ref_log_probs"):
        trainer.train_dataset = precomputed(
            trainer, trainer.train_dataset, "train", trainer._train_batch_size
        )
    batch = int(trainer.args.per_device_train_batch_size)
    # Packing decides how many rows there are, so the accumulation that makes them one update is
    # only known now; accelerate is not told of it (transformers' Trainer divides by itself).
    trainer.args.gradient_accumulation_steps = math.ceil(len(trainer.train_dataset) / batch)
    if begin_with(trainer, _SCALE):
        trainer.args.max_steps = 1 + _MOST_SKIPPED
    trainer.add_callback(_norm_reader(seen, SkipWatch(trainer)))
    trainer.train()
    update = seen.update(_precision(trainer))
    del trainer
    gc.collect()
    if spec.device != "cpu":
        torch.cuda.empty_cache()
    return update


@dataclass
class _Seen:
    """What an update left behind, and how far it has come."""

    progress: Progress
    micro_steps: int = 0
    label_tokens: int = 0
    loss: float = 0.0
    grad_norm: float = 0.0

    def again(self) -> None:
        """Forget an update that was skipped: the next one is over the same rows and weights."""
        self.micro_steps = self.label_tokens = 0
        self.loss = self.grad_norm = 0.0

    def update(self, precision: Precision) -> Update:
        return Update(
            micro_steps=self.micro_steps,
            label_tokens=self.label_tokens,
            loss=_finite(self.loss),
            grad_norm=_finite(self.grad_norm),
            precision=precision,
        )


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _watched(trainer_class: Any, seen: _Seen) -> Any:
    class Watched(trainer_class):  # type: ignore[misc]
        """TRL's trainer, listened to."""

        def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            seen.progress.phase = Phase.STEADY if seen.micro_steps else Phase.FIRST_STEP
            seen.label_tokens += _label_tokens(inputs)
            loss = super().training_step(model, inputs, *args, **kwargs)
            seen.micro_steps += 1
            seen.progress.step += 1
            seen.loss += float(loss)
            return loss

    return Watched


def _norm_reader(seen: _Seen, watch: SkipWatch) -> Any:
    """Return a callback that reads the gradient norm just before the optimizer's one real step."""
    import torch
    from transformers import TrainerCallback

    class NormReader(TrainerCallback):  # type: ignore[misc]
        """Look at gradients that are unscaled, and not clipped since nothing reaches the limit."""

        def on_pre_optimizer_step(self, *_: Any, model: Any, **__: Any) -> None:
            seen.progress.phase = Phase.OPTIMIZER_STEP
            gradients = [p.grad for p in model.parameters() if p.grad is not None]
            seen.grad_norm = float(torch.nn.utils.get_total_norm(gradients))

        def on_step_end(self, _: Any, state: Any, control: Any, **__: Any) -> None:
            if not watch.skipped():
                control.should_training_stop = True
            elif state.global_step < state.max_steps:
                seen.again()

    return NormReader()


def guard_options(spec: GuardSpec, side: GuardSide, work_dir: Path) -> dict[str, Any]:
    """Return one candidate's options, isolated, for a run of one update.

    Args:
        spec: device and seed.
        side: the candidate.
        work_dir: the only folder the trainer writes to.
    """
    from autotune.training.arguments import isolated

    options = isolated(spec.trainer, side.options, work_dir)
    options["seed"] = spec.seed
    options["max_grad_norm"] = _NEVER_CLIPS
    if options.get("neftune_noise_alpha") is not None:
        options["neftune_noise_alpha"] = None
    if spec.device == "cpu":
        options["use_cpu"] = True
    return options


def _without_dropout(model: Any) -> None:
    """Set every dropout probability to zero; checkpointing needs training mode, so not eval()."""
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = 0.0
        for name, value in vars(module).items():
            # Attention keeps its probability as a number (transformers: `attention_dropout`, ...).
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, 0.0)


def _label_tokens(inputs: Any) -> int:
    """Count the tokens a micro-batch trains on; the first of a row predicts nothing."""
    labels = inputs.get("labels")
    if labels is not None and labels.dim() == 2:
        return int((labels[:, 1:] != -100).sum())
    mask = inputs.get("completion_mask", inputs.get("attention_mask"))
    return int(mask.sum())


def _precision(trainer: Any) -> Precision:
    """Return the lowest precision a step computes in."""
    if trainer.args.bf16 or trainer.args.fp16:
        return "bf16" if trainer.args.bf16 else "fp16"
    kinds = {str(p.dtype) for p in trainer.model.parameters() if p.is_floating_point()}
    if "torch.bfloat16" in kinds:
        return "bf16"
    if "torch.float16" in kinds:
        return "fp16"
    return "tf32" if _shortens_products(trainer.args.device.type) else "fp32"


def _shortens_products(device: str) -> bool:
    """Return whether products of fp32 matrices may be taken with fewer bits on a kind of device.

    It is read back rather than asked for: ``torch_compile`` turns tf32 on by itself.
    """
    import torch

    if not at_least({"torch": torch.__version__}, "torch", "2.9"):  # which has no such attribute
        return torch.get_float32_matmul_precision() != "highest"
    backend = torch.backends.mkldnn if device == "cpu" else torch.backends.cuda
    return backend.matmul.fp32_precision not in ("none", "ieee")
