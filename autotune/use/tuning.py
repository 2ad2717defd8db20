"""One run: from the request through preparation and search to the written folder."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from autotune.core.candidate import Candidate, Value
from autotune.core.errors import EnvironmentUnable, Interrupted, ToolFailure
from autotune.core.result import Result, TrialRecord
from autotune.core.traced_step import TracedPeak
from autotune.core.units import parse_bytes
from autotune.emit.write import remove_emitted
from autotune.intake.cache import cache_dir
from autotune.intake.folder import discard_folder, drop_replaced, open_folder
from autotune.intake.job import build_job
from autotune.intake.request import (
    Request,
    moved_inputs,
    resumed_request,
    save_request,
    with_absolute_paths,
)
from autotune.knobs.own_config import require_own
from autotune.knobs.versions import canonical_options
from autotune.probe.processor import measure_share
from autotune.probe.protocol import PrepareSpec
from autotune.probe.runner import Runner
from autotune.report.side_by_side import side_by_side
from autotune.spaces.enumerate import enumerate_space
from autotune.spaces.load import space_for, space_hash
from autotune.study.assemble import Run, assemble
from autotune.study.budget import budget_of, budget_remark
from autotune.study.foresight import trace_peaks
from autotune.study.no_fit import require_fit
from autotune.study.search import Search
from autotune.study.single import Single, alone
from autotune.study.storage import Store
from autotune.study.uninterrupted import uninterrupted
from autotune.use.constructed import require_constructed
from autotune.use.look_ahead import LookAhead
from autotune.use.planned import (
    Plan,
    eval_rows,
    facts_of,
    frozen,
    headroom_of,
    held_out_notice,
    limits_of,
    load_notice,
    notices_of,
    own_notices,
    pinned,
    timeout_notice,
)
from autotune.use.preparation import STARTING, open_measuring, prepare
from autotune.use.watcher import Watcher
from autotune.use.written import RunFolder

#: No trace of what a peak is made of is begun after so many seconds.
_EXPLAINING_S = 20.0


class Tuning:
    """One run: from the request to the written folder."""

    def __init__(self, request: Request, watcher: Watcher, *, repeats: int | None = None) -> None:
        request = with_absolute_paths(request)
        if request.resume and request.out is not None:
            request = resumed_request(request, Path(request.out).expanduser())
        self._watch = watcher
        self._repeats = repeats
        self._start = time.monotonic()
        self._earlier_s = 0.0  # what a resumed search had already cost
        self._job, self._origin = build_job(request)
        self._limits = limits_of(request)
        self._memory = None if request.memory is None else parse_bytes(request.memory, "--memory")
        self._headroom = headroom_of(request)
        self._space = space_for(self._job.trainer, request.space)
        self._out_dir = open_folder(request, self._job)
        self._request = moved_inputs(request, self._out_dir)
        if request.inputs is not None:
            self._job, self._origin = build_job(self._request)
        self._folder = RunFolder(self._out_dir)
        self._search: Search | Single | None = None
        self._described: Run | None = None
        self._traced: dict[str, TracedPeak] = {}

    def plan(self) -> Plan:
        with self._runner() as runner:
            return self._plan(runner)

    def run(self) -> Result:
        keep = False
        try:
            with self._runner() as runner:
                plan = self._plan(runner)
                self._prepare_search(plan, runner)
                return self._go(runner)
        except KeyboardInterrupt as error:
            raise self._interrupted(str(error)) from error
        except ToolFailure:
            keep = True  # its log is what explains it
            raise
        finally:
            if keep or any((self._out_dir / "trials").glob("*.json")):
                drop_replaced(self._out_dir)
            else:
                discard_folder(self._out_dir)

    def _runner(self) -> Runner:
        save_request(self._request, self._out_dir)
        logs = self._out_dir / "logs"
        logs.mkdir(exist_ok=True)
        self._watch.stage(STARTING)
        self._launcher, self._why_cold = open_measuring(self._job, self._origin, logs, self._watch)
        return Runner(self._launcher, self._out_dir)

    def _searched(self, name: str) -> list[Value]:
        """Return the choices of a knob that may be probed; none where the user fixed it."""
        dimension = self._space.dimensions().get(name)
        if self._repeats is not None or dimension is None or name in self._request.set_options:
            return []
        return [] if dimension.choices == "auto" else dimension.choices

    def _plan(self, runner: Runner) -> Plan:
        spec = PrepareSpec(
            job=self._job,
            device=self._request.device,
            out_dir=str(self._out_dir.resolve() / "prepared"),
            cache_dir=str(cache_dir()),
            demo_model=self._origin.demo_model,
            attention_kernels=tuple(
                choice
                for choice in self._searched("attn_implementation")
                if isinstance(choice, str) and "/" in choice
            ),
            layer_kernels=True in self._searched("use_kernels"),
        )
        prepared = prepare(spec, runner, self._watch)
        self._launcher.preload(prepared.model.model_type)
        facts = facts_of(self._job, prepared, self._out_dir / "prepared")
        require_own(facts)
        memory = self._memory or self._origin.memory_bytes
        budget = budget_of(memory, self._headroom, prepared.device)
        remark = budget_remark(budget, prepared.device)
        space = enumerate_space(self._space, facts, pinned(self._request, facts))
        share = measure_share()
        self._limits = replace(self._limits, slowdown=share.slowdown)
        plan = Plan(
            facts=facts,
            prepared=prepared,
            budget=budget,
            space=space,
            limits=self._limits,
            notices=(
                *((remark,) if remark else ()),
                *timeout_notice(self._limits),
                *load_notice(share, self._limits, prepared.device),
                *held_out_notice(facts.lengths),
                *notices_of(self._job.options, self._origin, prepared, self._why_cold),
                *own_notices(facts),
                *space.notices,
            ),
        )
        self._watch.planned(plan)
        return plan

    def _prepare_search(self, plan: Plan, runner: Runner) -> None:
        store = Store(self._out_dir, self._request.storage, frozen(plan, self._space, self._job))
        self._earlier_s = sum(t.report.wall_seconds for t in store.records())
        written = canonical_options(self._job.options)
        resolved = {k: v for k, v in plan.prepared.options.items() if k not in written}
        self._described = Run(
            job=self._job.model_copy(update={"options": {**self._job.options, **resolved}}),
            facts=plan.facts,
            prepared=plan.prepared,
            budget=plan.budget,
            space={
                "name": self._request.space or self._space.name,  # as it can be asked for again
                "hash": space_hash(self._space),
                "candidates": len(plan.space.candidates),
                "merged": plan.space.merged,
            },
            skipped=plan.space.skipped,
            out_dir=str(self._out_dir.resolve()),
            notices=plan.notices,
        )
        make = (
            partial(Search, look_ahead=LookAhead(plan, runner, self._out_dir, self._watch))
            if self._repeats is None
            else partial(Single, repeats=self._repeats)
        )
        self._search = make(
            facts=plan.facts,
            space=plan.space,
            model_dir=plan.prepared.model.model_dir,
            rows_dir=plan.prepared.profile.rows_dir,
            budget=plan.budget,
            prober=runner,
            store=store,
            limits=self._limits,
            observer=self,
            eval_rows=eval_rows(plan.prepared),
            has_weights=plan.prepared.model.has_weights,
        )

    def _go(self, runner: Runner) -> Result:
        assert self._search is not None
        try:
            self._search.run()
        except BaseException as error:
            with uninterrupted():
                self._search.store.close()
                if self._search.trials:
                    self._write(interrupted=True)
                if isinstance(error, EnvironmentUnable):  # what was found cannot be trusted
                    remove_emitted(self._out_dir)
            raise
        self._search.store.close()
        result = self._write(interrupted=False)
        if self._repeats is None:
            require_constructed(result, runner, self._out_dir)
        self._traced = self._trace(result, runner)
        if self._traced:
            result = self._write(interrupted=False)
        if self._repeats is None:
            require_fit(result)
        return result

    def _trace(self, result: Result, runner: Runner) -> dict[str, TracedPeak]:
        """Find out what the compared peaks are made of, where no prediction says it already."""
        assert self._search is not None
        known = {p.candidate.key for p in result.predictions}
        shown = {t.candidate.key: t.candidate for _, t in side_by_side(result)}
        unknown = [candidate for key, candidate in shown.items() if key not in known]
        seconds = min(_EXPLAINING_S, self._search.left_s(checks=1.0))
        if not unknown or seconds <= 0:
            return {}
        self._watch.stage("tracing what the peaks are made of (steps on fake tensors)")
        try:
            return trace_peaks(
                unknown,
                self._search.facts,
                self._search.model_dir,
                runner,
                seconds=seconds,
                tick=self._watch.tick,
                tell=self._watch.progress,
            )
        except (ToolFailure, KeyboardInterrupt):
            return {}  # the search is over and whole; the page says that nothing was traced

    def _write(self, *, interrupted: bool, over: bool = True) -> Result:
        assert self._search is not None and self._described is not None
        result = assemble(
            self._described,
            tuple(self._search.trials),
            speedup=self._search.speedup,
            seconds=self._earlier_s + time.monotonic() - self._start,
            interrupted=interrupted,
            predictions=self._search.predictions(),
            gated=self._search.gated(),
            refused=self._search.refused(),
            traced=self._traced,
            unchecked=self._search.unchecked,
        )
        if self._repeats is not None:
            return alone(result, self._search.speedup)
        self._folder.write(result, over=over)
        return result

    def _interrupted(self, signal: str) -> Interrupted:
        """Say what is kept of a run that was stopped, by the named signal or (empty) by Ctrl-C."""
        stopped = f"stopped by {signal}" if signal else "stopped"
        done = len(self._search.trials) if self._search is not None else 0
        if not done:
            return Interrupted(f"{stopped} before the first probe; nothing was kept.")
        best = self._out_dir / "best.yaml"
        so_far = f" The best so far is {best}." if best.exists() else ""
        return Interrupted(
            f"{stopped} after {done} probes; what is finished is in {self._out_dir}.{so_far}",
            f"Go on with: autotune run --resume --out {self._out_dir}",
        )

    def started(self, candidate: Candidate, role: str) -> None:
        self._watch.started(candidate, role)

    def tick(self, seconds: float) -> None:
        self._watch.tick(seconds)

    def finished(self, record: TrialRecord) -> None:
        self._write(interrupted=True, over=False)
        self._watch.finished(record)
