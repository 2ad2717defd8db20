"""The use case of ``autotune predict``: what fits a device and how fast it is, without probing.

Prepares the rows and traces the candidates in a measuring process, as a run does, for a device that
need not be here; keeps nothing.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.core.candidate import Candidate
from autotune.core.environment import Device
from autotune.core.errors import BadInput, EnvironmentUnable, NothingFits
from autotune.core.job import Budget, Job, Trainer
from autotune.core.prediction import Fit, Forecast
from autotune.core.rates import Rates
from autotune.core.units import parse_bytes, parse_duration, show_bytes, show_ratio
from autotune.intake.cache import cache_dir
from autotune.intake.job import Origin, build_job
from autotune.intake.objects import as_paths
from autotune.intake.request import Request, with_absolute_paths
from autotune.intake.stand_in import stand_in_folder
from autotune.knobs.catalog import user_candidate
from autotune.knobs.facts import Facts
from autotune.knobs.own_config import require_own
from autotune.knobs.rules import judge
from autotune.knobs.translate import canonical
from autotune.predict.devices.catalogue import CATALOGUE, Spec
from autotune.predict.devices.efficiencies import expected_rates
from autotune.predict.devices.lookup import find_device
from autotune.predict.levers import levers
from autotune.probe.prepared import Prepared
from autotune.probe.protocol import PrepareSpec
from autotune.probe.runner import Runner
from autotune.report.forecast_words import differences, dominance, peak_words
from autotune.spaces.enumerate import enumerate_space
from autotune.spaces.load import space_for
from autotune.spaces.schema import Space
from autotune.study.budget import budget_of
from autotune.study.foresight import Foresight, rates_here, trace_candidates
from autotune.study.host_memory import host_remark
from autotune.use.planned import (
    cut_notices,
    facts_of,
    headroom_of,
    held_out_notice,
    own_notices,
    pinned,
)
from autotune.use.preparation import open_measuring, prepare
from autotune.use.watcher import Watcher

PREDICTED_TRAINERS = (Trainer.SFT, Trainer.DPO, Trainer.REWARD, Trainer.KTO)
#: Longest time spent on traces unless the request says otherwise.
_TRACE_S = 600.0


def forecast(
    request: Request, *, gpu: str | None = None, watcher: Watcher | None = None
) -> Forecast:
    """Predict what fits a device and how fast it is.

    A config without a space is predicted alone, beside the changes that would help it most.

    Args:
        request: the job; ``memory``, ``headroom``, ``space`` and ``timeout`` as for a run.
        gpu: name of a device of the catalogue; None predicts for the device of this machine.
        watcher: told of stations and of progress.

    Raises:
        BadInput: something asked for cannot be used.
        EnvironmentUnable: a library that is needed is missing.
        ToolFailure: the measuring process failed.
    """
    spec = None if gpu is None else find_device(gpu)
    request = with_absolute_paths(request)
    headroom = headroom_of(request)
    memory = None if request.memory is None else parse_bytes(request.memory, "--memory")
    seconds = _TRACE_S if request.timeout is None else parse_duration(request.timeout, "--timeout")
    with tempfile.TemporaryDirectory(prefix="autotune-predict-") as folder:
        home = Path(folder)
        request, assumed = stand_in_folder(request, home / "model")
        job, origin = build_job(request, PREDICTED_TRAINERS)
        use = _Use(request, job, origin, _space(request, job), spec, home, watcher or Watcher())
        launcher, _ = open_measuring(job, origin, home, use.watch)
        with Runner(launcher, home) as runner:
            prepared = use.prepare(runner)
            launcher.preload(prepared.model.model_type)
            rates = use.rates(prepared, runner)
            budget = budget_of(memory, headroom, prepared.device)
            facts = facts_of(job, prepared, home / "prepared")
            require_own(facts)
            return use.predict(facts, prepared, rates, budget, seconds, assumed, runner)


def predict_objects(
    model: Any, dataset: Any, *, gpu: str | None, tokenizer: Any = None, **options: Any
) -> Forecast:
    """Predict for Python objects; arguments as in `autotune.predict`."""
    with as_paths(model, dataset, tokenizer) as (model_path, dataset_path, _):
        return forecast(Request(model=model_path, dataset=dataset_path, **options), gpu=gpu)


def require_fit(found: Forecast) -> None:
    """Check that something is expected to fit.

    Args:
        found: the forecast.

    Raises:
        NothingFits: nothing is; names the nearest miss, what takes its memory, and what would help.
        EnvironmentUnable: nothing could be traced.
    """
    budget, miss = found.budget, found.nearest_miss
    if miss is None:
        reason = found.not_traced[0].reason if found.not_traced else "there is no candidate"
        raise EnvironmentUnable(f"nothing could be predicted: {reason}.")
    own = found.own_prediction if found.alone else None
    fits = [p for p in found.predictions if p.fit(budget) is not Fit.HOPELESS]
    if own in fits or (own is None and fits):
        return
    least = own or miss
    what = "the config does not fit" if own is not None else "nothing fits"
    larger = smallest_fitting(least.high_bytes, budget.headroom_ratio)
    device = "" if larger is None else f" It would fit {larger.name}."
    change = ""
    if own is not None and fits:
        change = " One change may make it fit: see the table."
    raise NothingFits(
        f"{what} {show_bytes(budget.usable_bytes)} ({show_bytes(budget.total_bytes)} less "
        f"{show_ratio(budget.headroom_ratio)} headroom): {differences(least.candidate, found)} "
        f"needs {peak_words(least)}.",
        f"{dominance(least)}{change}{device}",
    )


def smallest_fitting(needed_bytes: int, headroom_ratio: float) -> Spec | None:
    """Return the smallest device of the catalogue that holds so much; None when none does.

    Args:
        needed_bytes: what the process will be charged with, context included.
        headroom_ratio: share that is kept free.
    """
    room = [s for s in CATALOGUE if s.total_bytes * (1 - headroom_ratio) >= needed_bytes]
    return min(room, key=lambda s: s.total_bytes, default=None)


@dataclass(frozen=True)
class _Use:
    """One prediction, from the request to the document."""

    request: Request
    job: Job
    origin: Origin
    space: Space | None
    spec: Spec | None
    home: Path
    watch: Watcher

    def prepare(self, runner: Runner) -> Prepared:
        spec = PrepareSpec(
            job=self.job,
            device=self.request.device,
            target=None if self.spec is None else self.spec.device,
            out_dir=str(self.home / "prepared"),
            cache_dir=str(cache_dir()),
            demo_model=self.origin.demo_model,
            train_only=True,
        )
        return prepare(spec, runner, self.watch)

    def rates(self, prepared: Prepared, runner: Runner) -> Rates:
        """Return measured rates where the device is here, else the catalogue's."""
        here = next((d for d in prepared.environment.devices if self._is(d, prepared)), None)
        if here is None:
            assert self.spec is not None
            return expected_rates(self.spec)
        self.watch.stage(f"measuring how fast {here.name} is, once")
        return rates_here(here, prepared.environment.versions["torch"], cache_dir(), runner)

    def _is(self, device: Device, prepared: Prepared) -> bool:
        if self.spec is None:
            return device.label == prepared.device.label
        try:
            return device.kind == "cuda" and find_device(device.name) is self.spec
        except BadInput:
            return False

    def predict(
        self,
        facts: Facts,
        prepared: Prepared,
        rates: Rates,
        budget: Budget,
        seconds: float,
        assumed: tuple[str, ...],
        runner: Runner,
    ) -> Forecast:
        own = canonical(user_candidate(facts), facts)
        candidates, remarks = self._candidates(own, facts)
        self.watch.stage(f"tracing {len(candidates)} candidates on fake tensors")
        foreseen, not_traced = trace_candidates(
            candidates,
            facts,
            prepared.model.model_dir,
            runner,
            seconds=seconds,
            tick=self.watch.tick,
            tell=self.watch.progress,
        )
        foresight = Foresight(facts, rates, foreseen)
        host = host_remark(foresight.of(own), facts.host_free_bytes)
        return Forecast(
            trainer=self.job.trainer.value,
            model=self.request.model or self.job.model,
            device=facts.device.name,
            rates_source=rates.source,
            budget=budget,
            predictions=tuple(foresight.all()),
            not_traced=tuple(not_traced),
            own=own.key,
            alone=self.space is None,
            notices=(
                *self._notices(facts),
                *cut_notices(prepared),
                *((host,) if host else ()),
                *assumed,
                *held_out_notice(facts.lengths),
                *self.origin.notices,
                *prepared.notices,
                *own_notices(facts),
                *remarks,
            ),
        )

    def _candidates(self, own: Candidate, facts: Facts) -> tuple[list[Candidate], tuple[str, ...]]:
        """Return what is predicted, the user's own config first, and remarks on it."""
        if self.space is None:
            found = {c.key: c for c in levers(own, facts) if judge(c, facts).valid}
            return list(({own.key: own} | found).values()), ()
        space = enumerate_space(self.space, facts, pinned(self.request, facts))
        return list(({own.key: own} | {c.key: c for c in space.candidates}).values()), space.notices

    def _notices(self, facts: Facts) -> tuple[str, ...]:
        if self.spec is not None:
            return ()
        what = "CPU" if facts.device.kind == "cpu" else "GPU"
        return (f"For the {what} of this machine; --gpu NAME predicts for another device.",)


def _space(request: Request, job: Job) -> Space | None:
    """Return the space that is predicted; None when one config is, and what would change it."""
    alone = request.config is not None and request.space is None
    return None if alone else space_for(job.trainer, request.space)
