"""Measures without hardware: a machine made of numbers, for tests and for trying a search out.

`FakeProber` forms the micro-batches the measuring child would form from the same request and the
same lengths, asks a `FakeMachine` what they cost, and answers with a complete report. A cap that is
exceeded becomes the exception a device would raise, and every ending is decided by the real
`classify`. Nothing here sleeps, starts a process or measures anything.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autotune.core.equivalence import Compared, Update
from autotune.core.lengths import Lengths
from autotune.core.measurement import Measurement, ProbeReport, Step
from autotune.core.memory import Peaks
from autotune.core.outcome import Ending, Outcome, Phase
from autotune.core.packing import pack
from autotune.probe.child.batches import BatchFacts, RowFacts, timed_batches, worst_batches
from autotune.probe.classify import Observed, classify
from autotune.probe.equivalence import judge
from autotune.probe.fake_machine import FakeMachine, Shape, checkpointing_of
from autotune.probe.fake_script import (
    Dies,
    Differs,
    Diverges,
    Grows,
    GuardScript,
    Hangs,
    Happening,
    Interrupts,
    Pollutes,
    Raises,
    Script,
    Spills,
    out_of_memory,
)
from autotune.probe.protocol import Failure, GuardSide, GuardSpec, ProbeSpec
from autotune.probe.runner import Tick

_UPDATES = 2
_ACCUMULATION = 2
#: TRL's default (trl 1.16).
_MAX_LENGTH = 1024
_CUDA_ONLY = "a CUDA number; this machine is a CPU"


class FakeProber:
    """Answer requests from a machine made of numbers; keeps what it was asked."""

    def __init__(
        self,
        machine: FakeMachine,
        lengths: Lengths,
        script: Script | None = None,
        *,
        started: int = 0,
        guards: GuardScript | None = None,
    ) -> None:
        """Take the machine, the rows' lengths and what befalls which probe.

        Args:
            machine: what micro-batches cost.
            lengths: the prepared rows, uncut.
            script: what befalls which probe; None is a quiet machine.
            started: probes counted before the first one, for a resumed search.
            guards: what befalls which comparison; None has every two candidates train the same.
        """
        self._machine = machine
        self._lengths = lengths
        self._script = script or (lambda _, __: None)
        self._started = started
        self._guards = guards or (lambda _, __: None)
        self.asked: list[ProbeSpec] = []
        self.compared: list[GuardSpec] = []

    def probe(
        self, spec: ProbeSpec, *, name: str, deadline_s: float, tick: Tick | None = None
    ) -> ProbeReport:
        """Answer one request.

        Args:
            spec: what to measure.
            name: name of the log the report points to.
            deadline_s: seconds the made-up times may add up to.
            tick: called once, with no time passed.

        Raises:
            KeyboardInterrupt: the script says that the user interrupts.
        """
        happening = self._script(self._started + len(self.asked), spec)
        self.asked.append(spec)
        if tick is not None:
            tick(0.0)
        if isinstance(happening, Interrupts):
            raise KeyboardInterrupt
        seen, wall = _Session(self._machine, self._lengths, spec, happening, name).observe()
        if wall > deadline_s:
            seen = replace(seen, failure=None, measurement=None, timed_out=True)
        seen = replace(seen, deadline_s=deadline_s)
        ending, needed = classify(seen)
        return ProbeReport(
            ending=ending,
            measurement=seen.measurement,
            wall_seconds=min(wall, deadline_s),
            peak_rss_bytes=seen.peak_rss_bytes,
            log_file=f"logs/{name}.txt",
            needed_bytes=needed,
        )

    def compare(
        self, spec: GuardSpec, *, name: str, deadline_s: float, tick: Tick | None = None
    ) -> ProbeReport:
        """Answer one comparison: equal numbers, unless the script says otherwise.

        Args:
            spec: the two candidates and their rows.
            name: name of the log the report points to.
            deadline_s: seconds after which a comparison that hangs is ended.
            tick: called once, with no time passed.

        Raises:
            KeyboardInterrupt: the script says that the user interrupts.
        """
        happening = self._guards(len(self.compared), spec)
        self.compared.append(spec)
        if tick is not None:
            tick(0.0)
        if isinstance(happening, Interrupts):
            raise KeyboardInterrupt
        log_file = f"logs/{name}.txt"
        if isinstance(happening, Hangs):
            reason = f"it took longer than {deadline_s:.0f} s"
            ending = Ending(outcome=Outcome.TIMEOUT, phase=Phase.STEADY, reason=reason)
            return ProbeReport(ending=ending, wall_seconds=deadline_s, log_file=log_file)
        more = happening.loss_ratio if isinstance(happening, Differs) else 0.0
        compared = Compared(
            reference=self._update(spec, spec.reference, 0.0),
            candidate=self._update(spec, spec.candidate, more),
            weights=spec.weights,
        )
        return ProbeReport(
            ending=judge(compared),
            compared=compared,
            wall_seconds=2 * self._machine.load_s,
            log_file=log_file,
        )

    def _update(self, spec: GuardSpec, side: GuardSide, more_ratio: float) -> Update:
        batch = int(side.options.get("per_device_train_batch_size", 8))
        packed = bool(side.options.get("packing", False))
        return Update(
            micro_steps=1 if packed else -(-len(spec.rows) // batch),
            label_tokens=int(self._lengths.labels[list(spec.rows)].sum()),
            loss=7.5 * (1.0 + more_ratio),
            grad_norm=0.5,
            precision="fp32",
        )


class _OutOfMemory(Exception):
    def __init__(self, phase: Phase, step: int, wanted_bytes: int) -> None:
        super().__init__()
        self.phase, self.step, self.wanted_bytes = phase, step, wanted_bytes


class _Session:
    """One made-up probe."""

    def __init__(
        self,
        machine: FakeMachine,
        lengths: Lengths,
        spec: ProbeSpec,
        happening: Happening | None,
        name: str,
    ) -> None:
        self.machine, self.lengths, self.spec, self.happening = machine, lengths, spec, happening
        # The noise of a probe depends on its name and its request, not on what ran before it.
        text = f"{machine.seed}/{name}/{spec.model_dump_json()}"
        self.rng = np.random.default_rng(zlib.crc32(text.encode()))
        self.batch = int(spec.options.get("per_device_train_batch_size", 8))
        steps = int(spec.options.get("gradient_accumulation_steps", 1))
        self.accumulation = min(steps, _ACCUMULATION)

    def observe(self) -> tuple[Observed, float]:
        """Return what the parent would see, and the seconds it took."""
        refused = _refused(self.spec)
        surplus = None
        if isinstance(self.happening, Pollutes):
            surplus = self.happening.surplus_bytes
        nothing = Observed(
            failure=None,
            measurement=None,
            code=0,
            timed_out=False,
            deadline_s=float("inf"),
            peak_rss_bytes=self.machine.weights_bytes,
            host_total_bytes=self.machine.total_bytes,
            cap_bytes=self.spec.cap_bytes,
            device=self.spec.device,
            device_total_bytes=self.machine.total_bytes,
            surplus_bytes=surplus,
        )
        if refused is not None:
            return self._failed(nothing, refused, None), self.machine.load_s
        match self.happening:
            case Hangs():
                return replace(nothing, timed_out=True), float("inf")
            case Dies(code=code, log_tail=tail):
                return replace(nothing, code=code, log_tail=tail), self.machine.load_s
            case Raises(phase=phase) if phase in (Phase.LOAD, Phase.FIRST_STEP):
                return self._failed(nothing, self.happening, None), self.machine.load_s
        try:
            measurement = self._measure()
        except _OutOfMemory as full:
            words = out_of_memory(self.spec.device, full.phase, full.step, full.wanted_bytes)
            return self._failed(nothing, words, None), self.machine.load_s
        if isinstance(self.happening, Raises):
            whole = measurement if self.happening.step >= len(measurement.memory_steps) else None
            return self._failed(nothing, self.happening, whole), self.machine.load_s
        return replace(nothing, measurement=measurement), _wall(measurement)

    def _failed(self, seen: Observed, why: Raises, measured: Measurement | None) -> Observed:
        failure = Failure(
            type_name=why.type_name,
            message=why.message,
            traceback=why.traceback or f"Traceback (made up)\n{why.type_name}: {why.message}",
            phase=why.phase,
            step=why.step,
        )
        return replace(seen, failure=failure, measurement=measured, code=1)

    def _measure(self) -> Measurement:
        spec, machine = self.spec, self.machine
        packing = bool(spec.options.get("packing", False))
        facts = self._rows(packing)
        worst = worst_batches(facts, self.batch)
        load_bytes = machine.charged_bytes(machine.weights_bytes, spec.device)
        self._hold(load_bytes, Phase.LOAD, 0)
        memory, allocated = self._memory_steps(worst)
        timed: list[BatchFacts] = []
        repeated = False
        if not spec.memory_only and spec.verification is None:
            wanted = None if packing else list(spec.plan.paired)
            timed, repeated = timed_batches(
                facts, wanted, self.batch, spec.timed_steps, spec.timed_rows, self.accumulation
            )
        steps = [self._step(b, i) for i, b in enumerate(timed)]
        updates = (len(memory) + len(timed) + (self.accumulation if timed else 0)) // (
            self.accumulation
        )
        finite = all(s.loss is not None for s in steps)
        norms: list[float | None] = [float(0.5 + 0.1 * self.rng.random()) for _ in range(updates)]
        return Measurement(
            peaks=self._peaks(allocated),
            load_peaks=self._peaks(machine.weights_bytes),
            memory_steps=tuple(memory),
            warmup_steps=tuple(steps[: self.accumulation]),
            timed_steps=tuple(steps),
            optimizer_seconds=tuple(
                machine.optimizer_s * self._noise() for _ in range(len(timed) // self.accumulation)
            ),
            grad_norms=tuple(norms if finite else [*norms[:-1], None]),
            worst_rows=tuple(int(facts.source[i]) for i in worst[0].rows if facts.source[i] >= 0),
            worst_tokens=tuple(int(facts.tokens[i]) for i in worst[0].rows),
            effective=self._effective(),
            parameters={"total": 0, "trainable": 0, "bytes": machine.weights_bytes},
            load_seconds=machine.load_s,
            cap_bytes=spec.cap_bytes,
            speed_rows_repeated=repeated,
            **self._verified(memory),
        )

    def _verified(self, memory: Sequence[Step]) -> dict[str, Any]:
        """Return what only a verification measures."""
        wanted = self.spec.verification
        if wanted is None:
            return {}
        peaks = [step.peak_bytes or 0 for step in memory]
        starts = range(0, len(peaks), self.accumulation)
        return {
            "update_peaks_bytes": tuple(max(peaks[i : i + self.accumulation]) for i in starts),
            "saved": wanted.save,
            "evaluated": bool(wanted.eval_rows),
        }

    def _rows(self, packing: bool) -> RowFacts:
        """Return what TRL would make of the request's rows."""
        options, plan, lengths = self.spec.options, self.spec.plan, self.lengths
        length = options.get("max_length", _MAX_LENGTH)
        if packing:
            block = np.asarray(plan.block, dtype=np.int64)
            strategy = str(options.get("packing_strategy", "bfd"))
            packed = pack(lengths.tokens[block], int(length or 1), strategy)
            share = lengths.labels.sum() / max(1, int(lengths.tokens.sum()))
            return RowFacts(
                tokens=packed.totals,
                labels=np.maximum((packed.totals * share).astype(np.int64) - packed.sequences, 0),
                sequences=packed.sequences,
                longest=np.minimum(packed.totals, lengths.longest),
                source=np.full(len(packed), -1, dtype=np.int64),
            )
        cut = self.spec.pretruncate_tokens or (None if length is None else int(length))
        kept = lengths.kept_rows(cut)
        wanted = sorted({*plan.paired, *(row for rows in plan.worst for row in rows)})
        rows = np.asarray([row for row in wanted if kept[row]], dtype=np.int64)
        tokens = lengths.cut(cut)[rows]
        first_has_label = np.zeros_like(tokens)
        if lengths.first_labels is None:
            first_has_label = np.ones_like(tokens)
        return RowFacts(
            tokens=tokens,
            labels=np.maximum(lengths.labels_within(cut)[rows] - first_has_label, 0),
            sequences=np.ones_like(tokens),
            longest=tokens,
            source=rows,
        )

    def _shape(self, batch: BatchFacts) -> Shape:
        multiple = int(self.spec.options.get("pad_to_multiple_of") or 1)
        flat = _flattens(self.spec)
        rows, width = (1, batch.useful_tokens) if flat else (len(batch.rows), batch.longest)
        if self.spec.options.get("packing") and not flat:
            width = int(self.spec.options.get("max_length", _MAX_LENGTH))
        return Shape(rows, -(-width // multiple) * multiple)

    def _memory_steps(self, worst: Sequence[BatchFacts]) -> tuple[list[Step], int]:
        """Run two updates per worst batch (a verification: as many as it asks for) under the cap.

        Returns:
            The steps, and the allocated peak.
        """
        machine, device = self.machine, self.spec.device
        steps: list[Step] = []
        highest = 0
        wanted = self.spec.verification
        updates = _UPDATES * len(worst) if wanted is None else wanted.updates
        order = [worst[u * len(worst) // updates] for u in range(updates)]
        for batch in (b for b in order for _ in range(self.accumulation)):
            done = len(steps)
            update = done // self.accumulation
            allocated = machine.step_bytes(self._shape(batch), self.spec, update)
            if isinstance(self.happening, Grows):
                allocated += self.happening.bytes_per_step * done
            charged = machine.charged_bytes(allocated, device)
            self._hold(charged, Phase.STEADY if done else Phase.FIRST_STEP, done)
            step = self._step(batch, None)
            steps.append(step.model_copy(update={"peak_bytes": charged}))
            highest = max(highest, allocated)
            if len(steps) % self.accumulation == 0:
                highest = max(highest, machine.static_bytes(1))
                self._hold(
                    machine.charged_bytes(machine.static_bytes(1), device),
                    Phase.OPTIMIZER_STEP,
                    len(steps),
                )
        return steps, highest

    def _hold(self, charged_bytes: int, phase: Phase, step: int) -> None:
        """Fail as the device would when more is charged than may be held."""
        if isinstance(self.happening, Spills):
            return
        limits = [self.machine.total_bytes - self.machine.others_bytes]
        if isinstance(self.happening, Pollutes):
            limits = [limits[0] - self.happening.surplus_bytes]
        if self.spec.cap_bytes is not None:
            limits.append(self.spec.cap_bytes)
        if charged_bytes > min(limits):
            raise _OutOfMemory(phase, step, charged_bytes - min(limits))

    def _noise(self) -> float:
        return max(0.1, 1.0 + self.machine.noise_ratio * float(self.rng.standard_normal()))

    def _step(self, batch: BatchFacts, timed: int | None) -> Step:
        shape = self._shape(batch)
        seconds = self.machine.step_seconds(shape, self.spec) * self._noise()
        if isinstance(self.happening, Spills):
            seconds *= self.happening.slowdown
        loss: float | None = 2.0 + 0.1 * float(self.rng.random())
        if isinstance(self.happening, Diverges) and timed is not None:
            loss = None if timed >= self.happening.step else loss
        return Step(
            seconds=seconds,
            fetch_seconds=0.0,
            rows=shape.rows,
            width=shape.width,
            sequences=batch.sequences,
            useful_tokens=batch.useful_tokens,
            label_tokens=batch.label_tokens,
            longest=batch.longest,
            loss=loss,
        )

    def _peaks(self, allocated_bytes: int) -> Peaks:
        if self.spec.device == "cpu":
            return Peaks(
                allocated_bytes=allocated_bytes,
                process_bytes=allocated_bytes,
                absent={"reserved": _CUDA_ONLY, "device_used": _CUDA_ONLY},
            )
        machine = self.machine
        reserved = int(allocated_bytes * machine.reserved_ratio)
        if isinstance(self.happening, Spills) and self.happening.peak_bytes is not None:
            reserved = self.happening.peak_bytes
        process = reserved + machine.context_bytes
        return Peaks(
            allocated_bytes=allocated_bytes,
            reserved_bytes=reserved,
            process_bytes=process,
            device_used_bytes=min(process + machine.others_bytes, machine.total_bytes),
            allocation_retries=0,
        )

    def _effective(self) -> dict[str, object]:
        options = self.spec.options
        return {
            "padding_free": _flattens(self.spec),
            "max_length": options.get("max_length", _MAX_LENGTH),
            "per_device_train_batch_size": self.batch,
            "gradient_checkpointing": checkpointing_of(self.spec) != "none",
            "attn_implementation": "sdpa",
        }


def _flattens(spec: ProbeSpec) -> bool:
    """Whether TRL's collator makes one row of a batch: asked for, or forced by bfd."""
    packed = bool(spec.options.get("packing", False))
    strategy = spec.options.get("packing_strategy", "bfd")
    return bool(spec.options.get("padding_free", False)) or (
        packed and strategy in ("bfd", "bfd_split")
    )


def _refused(spec: ProbeSpec) -> Raises | None:
    """Return TRL's refusal of the request, in its words (trl 1.16, ``SFTTrainer.__init__``)."""
    options = spec.options
    packing = bool(options.get("packing", False))
    length = options.get("max_length", _MAX_LENGTH)
    kwargs = options.get("gradient_checkpointing_kwargs") or {}
    if packing and length is None:
        words = "When packing is enabled, `max_length` can't be `None`."
    elif options.get("padding_free") and not packing and length is not None:
        words = (
            "When `padding_free=True` without packing, `max_length` is not enforced. Either enable "
            "packing (e.g., `packing=True, packing_strategy='bfd'`), provide already truncated "
            "inputs, or set `max_length=None`."
        )
    elif kwargs.get("selective") and not options.get("gradient_checkpointing", True):
        words = (
            "`gradient_checkpointing_kwargs={'selective': True}` requires "
            "`gradient_checkpointing=True`."
        )
    else:
        return None
    return Raises("builtins.ValueError", words, Phase.LOAD)


def _wall(measurement: Measurement) -> float:
    steps = (
        *measurement.memory_steps,
        *measurement.warmup_steps,
        *measurement.timed_steps,
    )
    seconds = sum(step.seconds for step in steps) + sum(measurement.optimizer_seconds)
    return measurement.load_seconds + seconds
