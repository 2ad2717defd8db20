"""Runs the installed trainer's own training loop on fake tensors, for one candidate.

The trainer is built by ``autotune.training`` exactly as in a measuring child; ``train()`` is TRL's
and transformers' own, on batches of the asked lengths. What it allocates is followed by
`autotune.predict.follow`. Reads no weights, no tokenizer and no data set, and needs no accelerator.
Decides nothing about devices.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback

from autotune.core.job import Trainer
from autotune.core.traced_step import StepPhase
from autotune.predict.attention import FLASH
from autotune.predict.batch import columns
from autotune.predict.depth import layers_of
from autotune.predict.follow import Follow
from autotune.predict.followed import Followed
from autotune.predict.ledger import Ledger, Segment, as_asked, by_512
from autotune.predict.observed import Updates, followed_class
from autotune.predict.operations import WorkSums
from autotune.predict.quantised import constants, cpu_kernels, left_out, quantised_weights
from autotune.predict.request import Documents, Judged, Pair, Row, TraceRequest
from autotune.predict.stand_in import tokenizer
from autotune.predict.surroundings import modules_move_in_place, quiet, weights_without_values
from autotune.predict.target_rules import applied, is_flash, rules_for
from autotune.training.arguments import isolated
from autotune.training.prepared import in_order, trainer_class
from autotune.training.trainer import build_trainer

#: One short row per trainer: constructors want a data set, and prepare it.
_FIRST_ROW: dict[Trainer, Row] = {
    Trainer.SFT: Documents(tokens=(8,)),
    Trainer.DPO: Pair(prompt=4, chosen=4, rejected=4),
    Trainer.REWARD: Pair(prompt=0, chosen=8, rejected=8),
    Trainer.KTO: Judged(prompt=4, completion=4),
}


_OF_A_BATCH: tuple[StepPhase, ...] = ("precompute", "forward", "backward")


def follow_batches(
    request: TraceRequest, model_dir: Path, batches: Sequence[Sequence[Row]]
) -> list[Followed]:
    """Run a candidate's training loop over batches and return what was seen of each.

    Args:
        request: the candidate; its own rows and model folder are not looked at.
        model_dir: folder with a ``config.json``.
        batches: rows of each micro-batch.
    """
    with tempfile.TemporaryDirectory(prefix="autotune-trace-") as folder, quiet():
        run = _Run(request, len(batches))
        run.follow.capability = request.capability
        if request.target == "cpu":
            run.follow.inside = cpu_kernels()
        with (
            modules_move_in_place(),
            quantised_weights(),
            weights_without_values(),
            applied(rules_for(request.target, request.options), run.follow),
        ):
            trainer = run.build(model_dir, Path(folder))
            if request.precompute:
                run.precompute(trainer, batches)
            else:
                run.train(trainer, batches)
        return run.followed()


class _Run:
    """One training loop in progress."""

    def __init__(self, request: TraceRequest, batches: int) -> None:
        self.request = request
        self.ledger = Ledger()
        self.follow = Follow(self.ledger)
        self.micro = [WorkSums() for _ in range(batches)]
        self.optimizer = WorkSums()
        self.batch = -1
        self.forwards = 0
        self.held = 0
        self.remarks: list[str] = []
        self.forward_phase: StepPhase = "precompute" if request.precompute else "forward"

    def build(self, model_dir: Path, folder: Path) -> Any:
        """Build the trainer on fake tensors."""
        import datasets

        request = self.request
        options = isolated(request.trainer, request.options, folder)
        options |= {"use_cpu": True, "dataset_kwargs": {"skip_prepare_dataset": True}}
        if request.trainer is not Trainer.SFT:
            del options["dataset_kwargs"]
        flash = is_flash(options)
        if flash:
            # built with what every machine has; the kernels are put in its place below
            options["attn_implementation"] = "sdpa"
        first = columns([_FIRST_ROW[request.trainer]], packed=False)
        with self.follow:
            trainer = build_trainer(
                request.trainer,
                options=options,
                model_dir=model_dir,
                weights="random",
                rows=datasets.Dataset.from_list(first),
                device="cpu",
                cls=followed_class(trainer_class(request.trainer), self),
                tokenizer=tokenizer(),
            )
        if flash:
            for model in (trainer.model, getattr(trainer, "ref_model", None)):
                if model is not None:
                    model.config._attn_implementation = FLASH
        return trainer

    def train(self, trainer: Any, batches: Sequence[Sequence[Row]]) -> None:
        """Run the trainer's loop over the batches."""
        trainer.traced_batches = self._watched(trainer, batches)
        together = self.request.accumulates
        trainer.args.gradient_accumulation_steps = len(batches) if together else 1
        trainer.args.max_steps = 1 if together else len(batches)
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(Updates(self, trainer))
        gc.freeze()
        try:
            with self.follow:
                trainer.train()
        finally:
            gc.unfreeze()

    def precompute(self, trainer: Any, batches: Sequence[Sequence[Row]]) -> None:
        """Run the one-off pass over the reference on the batches, as before any training."""
        model = getattr(trainer, "ref_model", None) or trainer.model
        collated = self._watched(trainer, batches)
        with self.follow:
            for batch in collated:
                trainer.compute_ref_log_probs(model, self.begin_step(batch))
        self.end_update()

    def _watched(self, trainer: Any, batches: Sequence[Sequence[Row]]) -> list[Any]:
        """Return the batches as the trainer collates them; what it holds is told from here on."""
        self._own_weights(trainer)
        self._watch_layers(trainer)
        packed = bool(self.request.options.get("packing"))
        return [_collated(trainer, self.request, b, packed) for b in batches]

    def _own_weights(self, trainer: Any) -> None:
        scales = (t for p in trainer.model.parameters() for t in constants(p))
        for tensor in (*trainer.model.parameters(), *trainer.model.buffers(), *scales):
            self.follow.storages.own(tensor, "weights")
        self.remarks += left_out(trainer.model)
        self.remarks.append(f"Weights are held as {_dtypes(trainer.model)}.")
        reference = getattr(trainer, "ref_model", None)
        if reference is not None:
            self.remarks.append(f"The reference is held as {_dtypes(reference)}.")
            for tensor in (*reference.parameters(), *reference.buffers()):
                self.follow.storages.own(tensor, "reference")

    def _watch_layers(self, trainer: Any) -> None:
        for model in (trainer.model, getattr(trainer, "ref_model", None)):
            layers = [] if model is None else layers_of(model)
            for number, layer in enumerate(layers):
                layer.register_forward_pre_hook(self._entered(number))
                layer.register_forward_hook(self._left(number, number == len(layers) - 1))

    def _entered(self, number: int) -> Any:
        def hook(*_: Any) -> None:
            self.forwards += number == 0
            self._mark(self.forward_phase, number)

        return hook

    def _left(self, number: int, last: bool) -> Any:
        def hook(_: Any, __: Any, output: Any) -> None:
            tensor = output[0] if isinstance(output, tuple) else output
            if tensor.requires_grad:
                tensor.register_hook(lambda _: self._mark("backward", number))
            if last:
                self._mark(self.forward_phase, "head")

        return hook

    def _mark(self, phase: Any, part: str | int) -> None:
        self.ledger.mark(Segment(phase, part, self.batch, self.forwards))

    # -- called while the trainer trains --------------------------------------------------------

    def begin_train(self, trainer: Any) -> None:
        """Let the optimizer make its states."""
        self._zero_gradients(trainer)
        trainer.optimizer.optimizer.step()
        self.own_states(trainer)
        trainer.model.zero_grad()

    def begin_update(self, trainer: Any) -> None:
        """Give every weight a gradient where an update has more than one micro-step."""
        if self.request.accumulates:
            self._zero_gradients(trainer)

    def _zero_gradients(self, trainer: Any) -> None:
        for parameter in trainer.model.parameters():
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
                self.follow.storages.own(parameter.grad, "gradients")

    def own_states(self, trainer: Any) -> None:
        """Say which storages are the optimizer's."""
        for state in trainer.optimizer.state.values():
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    self.follow.storages.own(value, "optimizer")

    def begin_step(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Begin a micro-step; returns its inputs as they arrive on the device."""
        self.batch += 1
        self.forwards = 0
        self._mark(self.forward_phase, "outside")
        arrived = {}
        for name, value in inputs.items():
            arrived[name] = value
            if isinstance(value, torch.Tensor):
                arrived[name] = value.clone()
                self.follow.storages.own(arrived[name], "inputs")
        self.follow.work = self.micro[self.batch]
        return arrived

    def begin_backward(self) -> None:
        """Call what the forward pass has kept activations."""
        self.ledger.tag_unknown("activations")
        self._mark("backward", "head")

    def end_step(self, trainer: Any) -> None:
        """End a micro-step."""
        for parameter in trainer.model.parameters():
            if parameter.grad is not None:
                self.follow.storages.own(parameter.grad, "gradients")
        self._mark("optimizer_step", "outside")
        self.follow.work = self.optimizer

    def end_update(self) -> None:
        """End an update."""
        self.follow.work = None
        self.held = self.ledger.held_bytes(as_asked)

    def followed(self) -> list[Followed]:
        """Return what was seen, batch by batch."""
        heights = self.ledger.heights(as_asked if self.request.target == "cpu" else by_512)
        hosted = self.ledger.host_heights()
        shared = [h for h in heights if h.segment.phase in ("load", "optimizer_step")]
        return [
            Followed(
                heights=(
                    *shared,
                    *(
                        replace(h, segment=replace(h.segment, batch=0))
                        for h in heights
                        if h.segment.batch == at and h.segment.phase in _OF_A_BATCH
                    ),
                ),
                held_bytes=self.held,
                offloaded_bytes=hosted.get(at, 0),
                micro_step=self.micro[at].work(),
                optimizer_step=self.optimizer.work(),
                remarks=tuple(self.remarks),
            )
            for at in range(len(self.micro))
        ]


def _collated(trainer: Any, request: TraceRequest, rows: Sequence[Row], packed: bool) -> Any:
    """Return one batch as the trainer's own collator makes it."""
    import datasets

    found = columns(rows, packed=packed)
    if request.trainer is Trainer.KTO:
        trainer.args.per_device_train_batch_size = len(rows)
        found = in_order(request.trainer, trainer, datasets.Dataset.from_list(found)).to_list()
    return trainer.data_collator(found)


def _dtypes(model: Any) -> str:
    """Return the dtypes of a model's weights, most elements first."""
    sizes: dict[str, int] = {}
    for parameter in model.parameters():
        packed = str(getattr(parameter, "quant_type", "")) or str(parameter.dtype)
        name = packed.removeprefix("torch.")
        sizes[name] = sizes.get(name, 0) + parameter.numel()
    return " and ".join(sorted(sizes, key=lambda name: -sizes[name]))
