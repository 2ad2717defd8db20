"""Has the candidates of a run traced, and keeps the traces in its folder for a resumed search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.core.about import __version__
from autotune.core.candidate import Candidate
from autotune.core.errors import ToolFailure
from autotune.intake.cache import cache_dir
from autotune.probe.runner import Runner
from autotune.study.foresight import Foresight, rates_here, trace_candidates
from autotune.study.traces import Traces, read_traces, write_traces
from autotune.use.planned import Plan
from autotune.use.watcher import Watcher


@dataclass(frozen=True)
class LookAhead:
    """What a search asks when it wants to know what to expect.

    Args:
        plan: everything known before the first probe.
        runner: traces and measures rates.
        out_dir: the run's folder.
        watch: told of the station and of progress.
    """

    plan: Plan
    runner: Runner
    out_dir: Path
    watch: Watcher

    def __call__(self, candidates: Sequence[Candidate], seconds: float) -> Foresight | None:
        """Return what is expected; a tracer that fails costs the predictions and not the run.

        Args:
            candidates: canonical candidates.
            seconds: no trace is begun after this long; 0 takes what was traced before.
        """
        prepared = self.plan.prepared
        libraries = prepared.environment.versions
        versions = {**libraries, "autotune": __version__}
        before = read_traces(self.out_dir, versions)
        if seconds <= 0 and before is None:
            return None
        self.watch.stage(f"predicting {len(candidates)} candidates (steps on fake tensors)")
        kept = {} if before is None else dict(before.steps)
        try:
            rates = (
                rates_here(prepared.device, libraries["torch"], cache_dir(), self.runner)
                if before is None
                else before.rates
            )
            foreseen, _ = trace_candidates(
                candidates,
                self.plan.facts,
                prepared.model.model_dir,
                self.runner,
                seconds=seconds,
                tick=self.watch.tick,
                tell=self.watch.progress,
                kept=kept,
            )
        except ToolFailure as error:
            self.watch.stage(f"no predictions: {error.message}")
            return None
        write_traces(self.out_dir, Traces(versions=versions, rates=rates, steps=kept))
        return Foresight(self.plan.facts, rates, foreseen) if foreseen else None
