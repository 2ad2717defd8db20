"""A machine made of numbers: what micro-batches of any shape would cost on hardware nobody has.

Every number is made up and every function is pure; the fake prober turns them into reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.core.job import Trainer
from autotune.knobs.table_memory import checkpointing_of
from autotune.probe.protocol import ProbeSpec

_MIB = 2**20


@dataclass(frozen=True)
class Factors:
    """What a saver multiplies: the activations' bytes and the micro-step's seconds."""

    memory: float = 1.0
    time: float = 1.0


#: Plausible for a transformer: full recomputation costs about a third more time.
_CHECKPOINTING = {
    "none": Factors(),
    "selective": Factors(0.5, 1.2),
    "full": Factors(0.25, 1.33),
    "reentrant": Factors(0.25, 1.33),
}


@dataclass(frozen=True)
class TrainerCost:
    """What a trainer does beside the policy's own forward and backward pass.

    Args:
        extra_forwards: forward passes without gradient over the same positions: DPO asks the
            reference; KTO asks it too, and both models once more for its mismatched completions.
        reference: whether a frozen copy of the weights is held for it.
    """

    extra_forwards: int = 0
    reference: bool = False


_TRAINERS = {
    Trainer.DPO: TrainerCost(extra_forwards=1, reference=True),
    Trainer.KTO: TrainerCost(extra_forwards=3, reference=True),
}
#: A training step is one forward and a backward of about twice its work.
_STEP_FORWARDS = 3


def cost_of(spec: ProbeSpec) -> TrainerCost:
    """Return what the request's trainer costs beside the policy's own step.

    Adapters switched off are the reference, so that PEFT holds no copy; log-probabilities computed
    beforehand leave neither copy nor pass.
    """
    cost = _TRAINERS.get(spec.trainer, TrainerCost())
    if spec.options.get("precompute_ref_log_probs"):
        return TrainerCost(extra_forwards=max(0, cost.extra_forwards - 1))
    if spec.options.get("use_peft"):
        return TrainerCost(extra_forwards=cost.extra_forwards)
    return cost


@dataclass(frozen=True)
class Shape:
    """A micro-batch as the model sees it: tensor rows and columns."""

    rows: int
    width: int

    @property
    def tokens(self) -> int:
        """Computed positions, padding included."""
        return self.rows * self.width


@dataclass(frozen=True)
class FakeMachine:
    """Say what micro-batches cost; every number is made up and every function is pure.

    Args:
        total_bytes: memory of the device.
        others_bytes: what other processes hold of it.
        context_bytes: what a process holds before it computes (CUDA).
        weights_bytes: the model.
        gradient_bytes: its gradients, from the first backward pass on.
        optimizer_bytes: optimizer states, from the first update on.
        token_bytes: activations per computed position.
        token_width_bytes: activations per computed position and column (attention scores).
        step_s: seconds of a micro-step whatever its size.
        token_s: seconds per computed position.
        token_width_s: seconds per computed position and column.
        optimizer_s: seconds of one update.
        load_s: seconds before the first step.
        emptying_s: what a micro-step takes longer in which the allocator's cache is emptied.
        checkpointing: factors of ``none``, ``selective`` and ``full`` gradient checkpointing.
        offloading: factors of activation offloading.
        reserved_ratio: what the caching allocator reserves per allocated byte (CUDA), at least 1.
        mixed_ratio: what mixed lengths add to what it reserves, a factor of at least 1.
        evaluation_bytes: what an evaluation allocates beside what is held between updates.
        saving_bytes: what saving a checkpoint allocates beside that.
        first_use_s: seconds more the first time a process meets a shape, where that costs anything
            (`autotune.probe.child.first_uses`).
        skipped_updates: first updates of a process that a gradient scaler skips (fp16).
        noise_ratio: standard deviation of step times, relative.
        instead: values in effect whatever is asked for, by the names they are read back under.
        seed: seed of the noise.
    """

    total_bytes: int = 16 * 1024 * _MIB
    others_bytes: int = 0
    context_bytes: int = 512 * _MIB
    weights_bytes: int = 256 * _MIB
    gradient_bytes: int = 256 * _MIB
    optimizer_bytes: int = 512 * _MIB
    token_bytes: float = 256 * 1024
    token_width_bytes: float = 0.0
    step_s: float = 0.01
    token_s: float = 2e-5
    token_width_s: float = 0.0
    optimizer_s: float = 0.01
    load_s: float = 0.2
    emptying_s: float = 0.0
    checkpointing: Mapping[str, Factors] = field(default_factory=lambda: dict(_CHECKPOINTING))
    offloading: Factors = Factors(0.6, 1.25)
    reserved_ratio: float = 1.05
    mixed_ratio: float = 1.0
    evaluation_bytes: int = 0
    saving_bytes: int = 0
    first_use_s: float = 0.0
    skipped_updates: int = 0
    noise_ratio: float = 0.0
    instead: Mapping[str, object] = field(default_factory=dict)
    seed: int = 0

    def factors(self, spec: ProbeSpec) -> Factors:
        """Return what the request's savers multiply."""
        mine = self.checkpointing[checkpointing_of(spec.options)]
        if not spec.options.get("activation_offloading", False):
            return mine
        return Factors(mine.memory * self.offloading.memory, mine.time * self.offloading.time)

    def loaded_bytes(self, spec: ProbeSpec) -> int:
        """Return what is allocated before the first step: the model, and its reference if any."""
        return self.weights_bytes * (2 if cost_of(spec).reference else 1)

    def static_bytes(self, spec: ProbeSpec, update: int) -> int:
        """Return what is allocated between micro-steps.

        Args:
            spec: the request.
            update: updates that took place before; the optimizer has states after the first.
        """
        states = 0 if self.paged_bytes(spec) else self.optimizer_bytes
        return self.loaded_bytes(spec) + self.gradient_bytes + states * (update > 0)

    def paged_bytes(self, spec: ProbeSpec) -> int | None:
        """Return what a paged optimizer keeps in managed memory; None where it pages nothing."""
        paged = spec.device != "cpu" and str(spec.options.get("optim", "")).startswith("paged")
        return self.optimizer_bytes if paged else None

    def step_bytes(self, shape: Shape, spec: ProbeSpec, update: int) -> int:
        """Return the allocated peak of one micro-step."""
        per_token = self.token_bytes + self.token_width_bytes * shape.width
        activations = per_token * shape.tokens * self.factors(spec).memory
        return self.static_bytes(spec, update) + int(activations)

    def step_seconds(self, shape: Shape, spec: ProbeSpec) -> float:
        """Return the time of one micro-step, without noise."""
        per_token = self.token_s + self.token_width_s * shape.width
        forwards = 1.0 + cost_of(spec).extra_forwards / _STEP_FORWARDS
        return self.step_s + per_token * shape.tokens * self.factors(spec).time * forwards

    def forward_seconds(self, shape: Shape) -> float:
        """Return the time of one forward pass without gradient, without noise."""
        return self.step_s + self.token_s * shape.tokens / _STEP_FORWARDS

    def charged_bytes(self, allocated_bytes: int, device: str) -> int:
        """Return what the device charges a process for allocated bytes."""
        if device == "cpu":
            return allocated_bytes
        return int(allocated_bytes * self.reserved_ratio) + self.context_bytes
