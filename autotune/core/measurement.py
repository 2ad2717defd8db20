"""What one probe measured: raw times and realised shapes, never their averages.

Readers compute medians and spread; nothing here is rounded or smoothed.
"""

from __future__ import annotations

from typing import Any, Literal

from autotune.core.device_state import DeviceState
from autotune.core.equivalence import Compared
from autotune.core.job import Frozen
from autotune.core.memory import Peaks
from autotune.core.outcome import Ending
from autotune.core.stages import IN_WORDS

#: What the name of an adapted module ends in, among modules that are trained.
ADAPTER = ".lora"


class Step(Frozen):
    """One micro-step as it really ran.

    Args:
        seconds: wall time from the end of the step before to the end of this one: data fetch,
            forward, backward and device synchronisation. The optimizer's time is not in it.
        fetch_seconds: the part of it spent waiting for the batch.
        rows: rows of the input tensor.
        width: columns of the input tensor.
        sequences: documents in the batch.
        useful_tokens: tokens that are not padding.
        label_tokens: tokens that are trained on.
        longest: tokens of the longest document.
        loss: the loss of the step; None when it was not finite.
        peak_bytes: peak of the step and of the update it completes, above the start: of the
            process on a CPU, live bytes of torch's allocator on a GPU; None where time was taken.
        emptied: whether the allocator's cache was given back in it (``torch_empty_cache_steps``).
        first_use: whether its shape was met for the first time where that costs something once
            (a plan, a compilation): its time says nothing of later ones.
    """

    seconds: float
    fetch_seconds: float
    rows: int
    width: int
    sequences: int
    useful_tokens: int
    label_tokens: int
    longest: int
    loss: float | None
    peak_bytes: int | None = None
    emptied: bool = False
    first_use: bool = False

    @property
    def padded_tokens(self) -> int:
        """Positions that were computed, padding included."""
        return self.rows * self.width


class Precompute(Frozen):
    """The one-off pass over the reference before training (``precompute_ref_log_probs``).

    Args:
        seconds: wall time of the pass over the probe's rows.
        rows: rows it covered.
        tokens: their tokens that are not padding; the whole data set costs in proportion.
        peaks: its own peak memory.
    """

    seconds: float
    rows: int
    tokens: int
    peaks: Peaks


class Measurement(Frozen):
    """Everything one probe found out.

    Args:
        peaks: peak memory over everything that was run; four numbers.
        load_peaks: peak memory of loading alone.
        stage_peaks: peak memory of each stage by its name (`autotune.core.stages`), in the order
            they were run; empty in documents that did not keep it.
        memory_steps: micro-steps of the memory phase, in order.
        warmup_steps: micro-steps thrown away before timing.
        timed_steps: micro-steps of the speed phase, in order.
        optimizer_seconds: raw times of the optimizer updates of the speed phase that took place.
        grad_norms: gradient norm of each update that took place; None where it was not finite.
        updates: optimizer updates that took place; None when nobody counted.
        skipped_updates: updates the gradient scaler skipped while its scale settled (fp16).
        worst_rows: rows of the data set that made the memory batch (index in the split); empty
            when rows are packed.
        worst_tokens: tokens of each row of the memory batch, after truncation and packing.
        effective: values TRL really used, read back from the trainer.
        warnings: warnings TRL, transformers or torch raised, each once.
        parameters: numbers, bytes and dtypes of the weights, the policy's apart from the
            reference's (`autotune.training.parameters.count_parameters`).
        load_seconds: from the start of the child to the first step.
        steps_seconds: wall time of all micro-steps and optimizer updates, of every phase.
        cap_bytes: the enforced cap; None when the probe ran without.
        update_peaks_bytes: peak of every update of a verification, in order; empty otherwise.
        update_reserved_bytes: what the caching allocator held after each of them; empty where there
            is none.
        weights: the weights it ran with, ``random`` (built from the config) or ``real``.
        saved: whether a verification saved a checkpoint.
        evaluated: whether a verification ran an evaluation.
        documents_mix: whether documents flattened into one row see each other; None where rows
            are not flattened.
        device_state: clocks and temperature of the device while steps were timed (a verification:
            while it ran); None on a CPU.
        precompute: the one-off pass over the reference; None when there was none.
        trained_modules: modules with trained parameters; None when nobody counted.
        unreached_modules: those no gradient reached in the memory phase.
        shapes_left_out: shapes of the paired rows that were not timed, others of like sizes were:
            the first use of each costs something.
        speed_rows_repeated: whether packed rows had to be used more than once to fill the timing.
    """

    peaks: Peaks
    load_peaks: Peaks | None = None
    stage_peaks: dict[str, Peaks] = {}
    memory_steps: tuple[Step, ...]
    warmup_steps: tuple[Step, ...] = ()
    timed_steps: tuple[Step, ...] = ()
    optimizer_seconds: tuple[float, ...] = ()
    grad_norms: tuple[float | None, ...] = ()
    updates: int | None = None
    skipped_updates: int = 0
    worst_rows: tuple[int, ...] = ()
    worst_tokens: tuple[int, ...] = ()
    effective: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()
    parameters: dict[str, Any] = {}
    load_seconds: float = 0.0
    steps_seconds: float = 0.0
    cap_bytes: int | None = None
    speed_rows_repeated: bool = False
    shapes_left_out: int = 0
    update_peaks_bytes: tuple[int, ...] = ()
    update_reserved_bytes: tuple[int, ...] = ()
    weights: Literal["random", "real"] = "random"
    saved: bool = False
    evaluated: bool = False
    documents_mix: bool | None = None
    device_state: DeviceState | None = None
    precompute: Precompute | None = None
    trained_modules: int | None = None
    unreached_modules: tuple[str, ...] = ()

    @property
    def steady_steps(self) -> tuple[Step, ...]:
        """Timed micro-steps that say how long others of their shape take.

        First uses are left out, unless there is nothing else.
        """
        later = tuple(step for step in self.timed_steps if not step.first_use)
        return later or self.timed_steps

    @property
    def dropped_first_uses(self) -> int:
        """First uses of a shape in the speed phase, none of which is in `steady_steps`."""
        steady = sum(step.first_use for step in self.steady_steps)
        return sum(s.first_use for s in (*self.warmup_steps, *self.timed_steps)) - steady

    @property
    def peak_stage(self) -> str | None:
        """Name of the stage that needed most, the first of equal ones; None when not known."""
        held = {name: peaks.deciding_bytes or 0 for name, peaks in self.stage_peaks.items()}
        return max(held, key=lambda name: held[name]) if held else None

    @property
    def peak_where(self) -> str:
        """Where that was, as the end of a sentence about the peak; empty when not known."""
        stage = self.peak_stage
        return f" {IN_WORDS[stage]}" if stage in IN_WORDS else ""

    @property
    def idle_adapters(self) -> tuple[str, ...]:
        """Adapters no gradient reached, though whatever passes through them is trained.

        Those of experts are left out: they only see the tokens that are routed to them.
        """
        names = [name for name in self.unreached_modules if name.endswith(ADAPTER)]
        return tuple(name for name in names if "expert" not in name)


class ProbeReport(Frozen):
    """A probe as the search sees it: how it ended, what it measured, what it cost.

    Args:
        ending: outcome, phase and reason.
        measurement: the numbers; present whenever at least the memory phase finished.
        wall_seconds: from the start of the child to its end, as the parent saw it.
        peak_rss_bytes: highest resident memory of the child seen by the parent.
        log_file: the child's output.
        needed_bytes: least memory the candidate is known to need, when it did not fit.
        compared: one update beside the reference's; None unless the process was asked for that.
    """

    schema_version: Literal[1] = 1
    ending: Ending
    measurement: Measurement | None = None
    wall_seconds: float = 0.0
    peak_rss_bytes: int | None = None
    log_file: str | None = None
    needed_bytes: int | None = None
    compared: Compared | None = None
