"""The use cases, wired: what the command line and Python call. Holds no policy of its own."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from autotune.core.candidate import Candidate
from autotune.core.errors import BadInput, Interrupted, ToolFailure
from autotune.core.job import Budget, Job
from autotune.core.lengths import Lengths
from autotune.core.profile import IMPLICIT_CUT
from autotune.core.result import Result, TrialRecord
from autotune.core.units import parse_bytes, parse_duration, parse_ratio, show_duration
from autotune.emit import (
    build_config,
    cpu_overrides,
    trainer_kwargs,
    write_emitted,
    write_whole,
)
from autotune.emit.dataset_file import write_dataset
from autotune.intake.folder import discard_folder, drop_replaced, open_folder
from autotune.intake.job import Origin, build_job, cache_dir
from autotune.intake.objects import as_paths
from autotune.intake.request import (
    Request,
    moved_inputs,
    resumed_request,
    save_request,
    with_absolute_paths,
)
from autotune.knobs.facts import Facts
from autotune.knobs.versions import canonical_options
from autotune.probe.documents import write_document
from autotune.probe.launch import open_launcher
from autotune.probe.prepared import Prepared
from autotune.probe.progress import and_progress
from autotune.probe.protocol import PrepareSpec
from autotune.probe.runner import Runner
from autotune.report import REPORTERS
from autotune.spaces.enumerate import Enumerated, enumerate_space, require_own
from autotune.spaces.load import space_for, space_hash
from autotune.spaces.schema import Space
from autotune.study.assemble import Run, assemble, require_fit
from autotune.study.budget import budget_of, budget_remark
from autotune.study.foresight import Foresight, rates_here, trace_candidates
from autotune.study.plan import EvalRows
from autotune.study.search import Search
from autotune.study.session import VERIFICATION_TIMES, Limits
from autotune.study.single import Single, alone
from autotune.study.storage import Store
from autotune.study.uninterrupted import uninterrupted

#: Reports every run leaves in its folder.
WRITTEN_REPORTS = ("csv", "html")
#: Preparation may tokenise a large data set; this bounds a hang, not the work.
PREPARE_DEADLINE_S = 6 * 3600.0


class Watcher:
    """Whoever watches a run: the live table, a notebook, a test. Silent by default."""

    def stage(self, text: str) -> None:
        """A station of the pipeline begins, in words."""

    def planned(self, plan: Plan) -> None:
        """Everything before the first probe is known."""

    def started(self, candidate: Candidate, role: str) -> None:
        """A probe starts."""

    def tick(self, seconds: float) -> None:
        """What runs now has been running this long."""

    def progress(self, what: str, done: int, total: int) -> None:
        """Preparation has done this many rows of a total (0: not known)."""

    def finished(self, record: TrialRecord) -> None:
        """A probe ended and is on disk."""


@dataclass(frozen=True)
class Plan:
    """Everything known before the first probe.

    Args:
        facts: job, rows and machine.
        prepared: the resolved job as the measuring process answered it.
        budget: memory the job may use.
        space: the candidates, and what was left out and why.
        limits: when the search stops.
        notices: remarks on what was filled in.
    """

    facts: Facts
    prepared: Prepared
    budget: Budget
    space: Enumerated
    limits: Limits
    notices: tuple[str, ...]


def plan_run(request: Request, watcher: Watcher | None = None) -> Plan:
    """Prepare everything up to the first probe and keep nothing (``--dry-run``).

    Raises:
        BadInput: something asked for cannot be used.
        EnvironmentUnable: this machine cannot do it.
    """
    if request.resume and request.out is not None:
        request = resumed_request(request, Path(request.out).expanduser())
    # A folder of its own: a plan neither needs, replaces nor removes the user's.
    with tempfile.TemporaryDirectory(prefix="autotune-plan-") as folder:
        out = str(Path(folder) / "plan")
        elsewhere = dataclasses.replace(request, out=out, resume=False, force=False)
        return _Run(elsewhere, watcher or Watcher()).plan()


def run(request: Request, watcher: Watcher | None = None) -> Result:
    """Run the search a request asks for and write its folder.

    Raises:
        BadInput: something asked for cannot be used; nothing is left behind.
        NothingFits: no candidate fits; the result is in the folder.
        EnvironmentUnable: this machine cannot do it.
        Interrupted: it was asked to stop; what was finished is in the folder.
    """
    return _Run(request, watcher or Watcher()).run()


def probe(request: Request, *, repeats: int = 3, watcher: Watcher | None = None) -> Result:
    """Measure exactly one config, the user's own, and return its document; writes no folder.

    Args:
        request: the job; what it says of a search is not looked at.
        repeats: how often the config is measured; from 2 on in turns with its reference, so that
            speed is also known as a ratio.
        watcher: told of every event.

    Raises:
        BadInput: something asked for cannot be used.
        EnvironmentUnable: this machine cannot do it.
        Interrupted: it was asked to stop; nothing is left.
    """
    if repeats < 1:
        raise BadInput(f"--repeats is {repeats}, expected at least 1.")
    with tempfile.TemporaryDirectory(prefix="autotune-probe-") as folder:
        out = str(Path(folder) / "probe")
        elsewhere = dataclasses.replace(request, out=out, resume=False, force=False, storage=None)
        try:
            return _Run(elsewhere, watcher or Watcher(), repeats=repeats).run()
        except Interrupted as error:
            text = "stopped; a config is measured as a whole, so nothing was written."
            raise Interrupted(text) from error.__cause__


class _Run:
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
        self._limits = _limits(request)
        self._memory = None if request.memory is None else parse_bytes(request.memory, "--memory")
        self._headroom = headroom_of(request)
        self._space = space_for(self._job.trainer, request.space)
        self._out_dir = open_folder(request, self._job)
        self._request = moved_inputs(request, self._out_dir)
        if request.inputs is not None:
            self._job, self._origin = build_job(self._request)
        self._search: Search | Single | None = None
        self._described: Run | None = None

    def plan(self) -> Plan:
        with self._runner() as runner:
            return self._plan(runner)

    def run(self) -> Result:
        keep = False
        try:
            with self._runner() as runner:
                plan = self._plan(runner)
                self._prepare_search(plan, runner)
                return self._go()
        except KeyboardInterrupt as error:
            raise self._interrupted() from error
        except ToolFailure:
            keep = True  # its log is what explains it
            raise
        finally:
            if keep or any((self._out_dir / "trials").glob("*.json")):
                drop_replaced(self._out_dir)
            else:
                discard_folder(self._out_dir)

    def _runner(self) -> Runner:
        logs = self._out_dir / "logs"
        logs.mkdir(exist_ok=True)
        self._watch.stage("starting the measuring process (imports torch, transformers and trl)")
        env = {**self._job.env, **self._origin.secret_env}
        self._launcher, self._why_cold = open_launcher(logs, env, self._watch.tick)
        return Runner(self._launcher, self._out_dir)

    def _plan(self, runner: Runner) -> Plan:
        self._watch.stage("preparing your rows with TRL's own preparation")
        spec = PrepareSpec(
            job=self._job,
            device=self._request.device,
            out_dir=str(self._out_dir.resolve() / "prepared"),
            cache_dir=str(cache_dir()),
            demo_model=self._origin.demo_model,
        )
        deadline = PREPARE_DEADLINE_S
        tick = and_progress(Path(spec.out_dir), self._watch.tick, self._watch.progress)
        prepared = runner.prepare(spec, deadline_s=deadline, tick=tick)
        self._launcher.preload(prepared.model.model_type)
        facts = facts_of(self._job, prepared, self._out_dir / "prepared")
        fixed = canonical_options(self._request.set_options)
        pinned = {k: facts.job.options[k] for k in fixed if k in facts.job.options}
        memory = self._memory or self._origin.memory_bytes
        budget = budget_of(memory, self._headroom, prepared.device)
        remark = budget_remark(budget, prepared.device)
        space = enumerate_space(self._space, facts, pinned)
        if not space.candidates or self._repeats is not None:
            require_own(facts)
        plan = Plan(
            facts=facts,
            prepared=prepared,
            budget=budget,
            space=space,
            limits=self._limits,
            notices=(
                *((remark,) if remark else ()),
                *_timeout_notice(self._limits),
                *_notices(self._origin, prepared, self._why_cold),
                *space.notices,
            ),
        )
        self._watch.planned(plan)
        return plan

    def _prepare_search(self, plan: Plan, runner: Runner) -> None:
        save_request(self._request, self._out_dir)
        store = Store(self._out_dir, self._request.storage, _frozen(plan, self._space, self._job))
        self._earlier_s = sum(t.report.wall_seconds for t in store.records())
        written = canonical_options(self._job.options)
        resolved = {k: v for k, v in plan.prepared.options.items() if k not in written}
        self._described = Run(
            job=self._job.model_copy(update={"options": {**self._job.options, **resolved}}),
            facts=plan.facts,
            prepared=plan.prepared,
            budget=plan.budget,
            space={
                "name": self._space.name,
                "hash": space_hash(self._space),
                "candidates": len(plan.space.candidates),
                "merged": plan.space.merged,
            },
            skipped=plan.space.skipped,
            out_dir=str(self._out_dir.resolve()),
            notices=plan.notices,
        )
        make = (
            partial(Search, look_ahead=partial(self._look_ahead, plan, runner))
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
            eval_rows=_eval_rows(plan.prepared),
            has_weights=plan.prepared.model.has_weights,
        )

    def _look_ahead(
        self, plan: Plan, runner: Runner, candidates: Sequence[Candidate], seconds: float
    ) -> Foresight | None:
        """Have candidates traced; a tracer that fails costs the predictions and not the run."""
        self._watch.stage(f"predicting {len(candidates)} candidates (steps on fake tensors)")
        versions = plan.prepared.environment.versions
        try:
            rates = rates_here(plan.prepared.device, versions["torch"], cache_dir(), runner)
            foreseen, _ = trace_candidates(
                candidates,
                plan.facts,
                plan.prepared.model.model_dir,
                runner,
                seconds=seconds,
                tick=self._watch.tick,
                tell=self._watch.progress,
            )
        except ToolFailure as error:
            self._watch.stage(f"no predictions: {error.message}")
            return None
        return Foresight(plan.facts, rates, foreseen) if foreseen else None

    def _go(self) -> Result:
        assert self._search is not None
        try:
            self._search.run()
        finally:
            with uninterrupted():
                self._search.store.close()
                if self._search.trials:
                    self._write(interrupted=True)
        result = self._write(interrupted=False)
        if self._repeats is None:
            require_fit(result)
        return result

    def _write(self, *, interrupted: bool) -> Result:
        assert self._search is not None and self._described is not None
        result = assemble(
            self._described,
            tuple(self._search.trials),
            speedup=self._search.speedup,
            seconds=self._earlier_s + time.monotonic() - self._start,
            interrupted=interrupted,
            predictions=self._search.predictions(),
            gated=self._search.gated(),
            unchecked=self._search.unchecked,
        )
        if self._repeats is not None:
            return alone(result, self._search.speedup)
        write_run(result, self._out_dir)
        return result

    def _interrupted(self) -> Interrupted:
        done = len(self._search.trials) if self._search is not None else 0
        if not done:
            return Interrupted("stopped before the first probe; nothing was kept.")
        best = self._out_dir / "best.yaml"
        so_far = f" The best so far is {best}." if best.exists() else ""
        return Interrupted(
            f"stopped after {done} probes; what is finished is in {self._out_dir}.{so_far}",
            f"Go on with: autotune run --resume --out {self._out_dir}",
        )

    def started(self, candidate: Candidate, role: str) -> None:
        self._watch.started(candidate, role)

    def tick(self, seconds: float) -> None:
        self._watch.tick(seconds)

    def finished(self, record: TrialRecord) -> None:
        self._write(interrupted=True)
        self._watch.finished(record)


def write_run(result: Result, out_dir: Path) -> None:
    """Write everything a run's folder shows: the result, its page and table, the files to train."""
    write_document(out_dir / "result.json", result)
    for name in WRITTEN_REPORTS:
        write_whole(out_dir / REPORTERS[name].file_name, REPORTERS[name].render(result))
    if result.best is not None:
        write_dataset(result, out_dir)
        write_emitted(result, out_dir)


def facts_of(job: Job, prepared: Prepared, prepared_dir: Path) -> Facts:
    """Return what rules look at, from a resolved job.

    Args:
        job: what was asked.
        prepared: what the measuring process made of it.
        prepared_dir: folder with the rows' lengths.
    """
    return Facts(
        job=job.model_copy(update={"options": prepared.options}),
        defaults=prepared.defaults,
        device=prepared.device,
        lengths=Lengths.read(prepared_dir / "lengths.npz"),
        positions=prepared.model.positions,
        moe=prepared.model.moe,
        versions=prepared.environment.versions,
        lacking=prepared.lacking,
        traits=prepared.model.traits,
    )


def _eval_rows(prepared: Prepared) -> EvalRows | None:
    """Return the rows evaluation uses, where the config evaluates."""
    if prepared.eval_profile is None:
        return None
    rows_dir = Path(prepared.eval_profile.rows_dir)
    return EvalRows(str(rows_dir), Lengths.read(rows_dir.parent / "lengths.npz"))


def _limits(request: Request) -> Limits:
    if request.trials < 1:
        raise BadInput(f"--trials is {request.trials}, expected at least 1.")
    return Limits(
        trials=request.trials,
        search_s=None if request.timeout is None else parse_duration(request.timeout, "--timeout"),
        probe_s=parse_duration(request.probe_timeout, "--probe-timeout"),
    )


def _timeout_notice(limits: Limits) -> tuple[str, ...]:
    """Say when a bounded search ends at the latest."""
    if limits.search_s is None or limits.checks_s is None:
        return ()
    return (
        f"No probe of the search begins after {show_duration(limits.search_s)} (--timeout); "
        f"confirming and verifying the winner may take {show_duration(limits.checks_s)} more, and "
        "what has begun is finished within --probe-timeout "
        f"({VERIFICATION_TIMES} times that for a verification).",
    )


def headroom_of(request: Request) -> float | None:
    """Return the share of the memory a request keeps free, 0..1; None where it names none.

    Raises:
        BadInput: it is not a share, or all of the memory.
    """
    if request.headroom is None:
        return None
    ratio = parse_ratio(request.headroom, "--headroom")
    if ratio >= 1.0:
        raise BadInput("--headroom is 100 %, which leaves nothing to train in.", "5% is usual.")
    return ratio


def _notices(origin: Origin, prepared: Prepared, why_cold: str) -> tuple[str, ...]:
    rows, test = prepared.profile, prepared.eval_profile
    converted = () if rows.conversion is None else (f"Rows: {rows.conversion}.",)
    # what TRL's own default would silently cut is the first thing to know
    first = tuple(n.message for n in rows.notices if n.code == IMPLICIT_CUT)
    counted = tuple(n.message for n in rows.notices if n.code != IMPLICIT_CUT)
    if test is not None and test.rows_dir != rows.rows_dir:
        remarks = (n.message for n in test.notices if n.code != IMPLICIT_CUT)
        counted += tuple(f"Evaluation rows: {remark}" for remark in remarks)
    return (
        *first,
        *origin.notices,
        *((f"{why_cold[0].upper()}{why_cold[1:]}.",) if why_cold else ()),
        *prepared.notices,
        *converted,
        *counted,
        *prepared.environment.notices,
    )


def _frozen(plan: Plan, space: Space, job: Job) -> dict[str, Any]:
    """Return what must not change between a run and its resumption."""
    return {
        "space": space_hash(space),
        "rows": plan.prepared.profile.fingerprint,
        "job": job.model_dump(mode="json", exclude={"config_text"}),
        "memory_bytes": plan.budget.total_bytes if plan.budget.explicit else None,
        "headroom_ratio": plan.budget.headroom_ratio,
        "device": plan.prepared.device.name,
    }


class Tuned:
    """A finished search as Python sees it: the result document and what can be made of it."""

    def __init__(self, result: Result) -> None:
        """Wrap a result document."""
        self.result = result

    @property
    def config(self) -> Any:
        """The chosen configuration as the trainer's ready ``SFTConfig``, ``DPOConfig``, ..."""
        return build_config(self.result, **cpu_overrides(self.result))

    @property
    def trainer_kwargs(self) -> dict[str, Any]:
        """Keywords such that TRL's trainer, ``SFTTrainer(**kwargs)``, is ready to train."""
        return trainer_kwargs(self.result, **cpu_overrides(self.result))


def tune(
    model: Any = None,
    dataset: Any = None,
    *,
    tokenizer: Any = None,
    config: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    watcher: Watcher | None = None,
    **options: Any,
) -> Tuned:
    """Find the fastest configuration that fits and return it.

    Args:
        model: hub id, folder, or a transformers config; None takes the YAML's, else the demo's.
        dataset: hub id, file, folder, ``datasets.Dataset``, data frame or list of rows; None as
            for ``model``.
        tokenizer: tokenizer object or path, needed with a config object that names none.
        config: TRL YAML file.
        out: the run's folder; None makes one below ``autotune-runs/``.
        watcher: told of every event.
        options: the other fields of `Request` (``trainer``, ``memory``, ``trials``, ...), named
            as on the command line.

    Raises:
        BadInput: something cannot be used.
        NothingFits: no candidate fits.
        EnvironmentUnable: this machine cannot do it.
    """
    with as_paths(model, dataset, tokenizer) as (model_path, dataset_path, inputs):
        request = Request(
            model=model_path,
            dataset=dataset_path,
            config=None if config is None else os.fspath(config),
            out=None if out is None else os.fspath(out),
            inputs=inputs if any(Path(inputs).iterdir()) else None,
            **options,
        )
        return Tuned(run(request, watcher))
