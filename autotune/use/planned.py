"""What is known before the first probe, and how a request and its rows come to it.

Pure functions of a request and of what the measuring process answered; starts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.core.environment import Device
from autotune.core.errors import BadInput
from autotune.core.job import Budget, Job
from autotune.core.lengths import Lengths
from autotune.core.profile import IMPLICIT_CUT, OWN_CUT
from autotune.core.units import parse_duration, parse_ratio, show_duration
from autotune.dataset.both_splits import held_out_rows
from autotune.intake.job import Origin
from autotune.intake.request import Request
from autotune.knobs.facts import Facts
from autotune.knobs.isolation import launch_notices
from autotune.knobs.no_effect import idle_options, idle_words
from autotune.knobs.own_config import own_remarks
from autotune.knobs.versions import canonical_options
from autotune.probe.prepared import Prepared
from autotune.probe.processor import Share
from autotune.spaces.enumerate import Enumerated
from autotune.spaces.load import space_hash
from autotune.spaces.schema import Space
from autotune.study.limits import VERIFICATION_TIMES, Limits
from autotune.study.plan import EvalRows

#: Work that takes so many times as long as on a quiet machine is worth a word.
_BUSY_SLOWDOWN = 1.5


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


def facts_of(job: Job, prepared: Prepared, prepared_dir: Path) -> Facts:
    """Return what rules look at, from a resolved job.

    Args:
        job: what was asked.
        prepared: what the measuring process made of it.
        prepared_dir: folder with the rows' lengths.
    """
    lengths = Lengths.read(prepared_dir / "lengths.npz")
    held_out = held_out_rows(job.dataset, prepared.options, prepared.profile)
    return Facts(
        job=job.model_copy(update={"options": prepared.options}),
        defaults=prepared.defaults,
        device=prepared.device,
        lengths=replace(lengths, held_out=held_out),
        positions=prepared.model.positions,
        moe=prepared.model.moe,
        versions=prepared.environment.versions,
        lacking=prepared.lacking,
        traits=prepared.model.traits,
        unfit_adapters=prepared.unfit_adapters,
        host_free_bytes=_host_free_bytes(prepared),
    )


def _host_free_bytes(prepared: Prepared) -> int | None:
    """Return the free host memory beside a GPU that is here; one predicted for has another host."""
    *gpus, host = prepared.environment.devices
    return host.free_bytes if prepared.device in gpus else None


def pinned(request: Request, facts: Facts) -> dict[str, Any]:
    """Return the options the user fixed with ``--set``, as the job resolved them."""
    fixed = canonical_options(request.set_options)
    return {k: facts.job.options[k] for k in fixed if k in facts.job.options}


def eval_rows(prepared: Prepared) -> EvalRows | None:
    """Return the rows evaluation uses, where the config evaluates."""
    if prepared.eval_profile is None:
        return None
    rows_dir = Path(prepared.eval_profile.rows_dir)
    return EvalRows(str(rows_dir), Lengths.read(rows_dir.parent / "lengths.npz"))


def limits_of(request: Request) -> Limits:
    if request.trials < 1:
        raise BadInput(f"--trials is {request.trials}, expected at least 1.")
    return Limits(
        trials=request.trials,
        search_s=None if request.timeout is None else parse_duration(request.timeout, "--timeout"),
        probe_s=(
            None
            if request.probe_timeout is None
            else parse_duration(request.probe_timeout, "--probe-timeout")
        ),
    )


def timeout_notice(limits: Limits) -> tuple[str, ...]:
    """Say when a bounded search ends at the latest."""
    if limits.search_s is None or limits.checks_s is None:
        return ()
    return (
        f"No probe of the search begins after {show_duration(limits.search_s)} (--timeout); "
        f"confirming and verifying the winner may take {show_duration(limits.checks_s)} more, and "
        f"{_within(limits)}.",
    )


def _within(limits: Limits) -> str:
    """Say what becomes of a probe that runs when the time is over."""
    if limits.probe_s is None:
        return "a check that has begun is finished"
    return (
        "what has begun is finished within --probe-timeout "
        f"({VERIFICATION_TIMES} times that for a verification)"
    )


def load_notice(share: Share, limits: Limits, device: Device) -> tuple[str, ...]:
    """Say that other work slows this run down, and what to do about it.

    Args:
        share: what this process gets of the processor.
        limits: of the run.
        device: where probes run.
    """
    if share.slowdown < _BUSY_SLOWDOWN:
        return ()
    what = f"This machine is busy: {share.got:.1f} of {share.cores} cores are free for this run"
    times = f"{share.slowdown:.0f}" if share.slowdown >= 3 else f"{share.slowdown:.1f}"
    if device.kind != "cpu":
        return (
            f"{what} (other work, or a limit of the container). Steps that wait for the processor "
            "are slower than on a quiet machine.",
        )
    bound = "" if limits.search_s is not None else ", or bound it (--timeout 10m)"
    return (
        f"{what} (other work, or a limit of the container). Probes take about {times} times as "
        f"long, and speeds vary; peaks of memory do not. End the other work{bound}; Ctrl-C keeps "
        "the best so far.",
    )


def own_notices(facts: Facts) -> tuple[str, ...]:
    """Say what is unwise in the user's own config, and what of it does nothing."""
    return (*own_remarks(facts), *idle_words("your config", idle_options(facts)))


def held_out_notice(lengths: Lengths) -> tuple[str, ...]:
    """Say which rows a pass is counted over where some are held out."""
    if not lengths.held_out:
        return ()
    return (
        f"{lengths.held_out:,} of the {len(lengths):,} rows are held out for evaluation "
        "(test_split_size): a pass is counted over the others. TRL draws them anew each time, so "
        "memory is measured on the longest of all.",
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


def cut_notices(prepared: Prepared) -> tuple[str, ...]:
    """Say what the config's own length silently takes from the rows: the first thing to know."""
    codes = (IMPLICIT_CUT, OWN_CUT)
    return tuple(n.message for n in prepared.profile.notices if n.code in codes)


def notices_of(
    asked: Mapping[str, Any], origin: Origin, prepared: Prepared, why_cold: str
) -> tuple[str, ...]:
    rows, test = prepared.profile, prepared.eval_profile
    converted = () if rows.conversion is None else (f"Rows: {rows.conversion}.",)
    first = cut_notices(prepared)
    counted = tuple(n.message for n in rows.notices if n.code not in (IMPLICIT_CUT, OWN_CUT))
    if test is not None and test.rows_dir != rows.rows_dir:
        remarks = (n.message for n in test.notices if n.code != IMPLICIT_CUT)
        counted += tuple(f"Evaluation rows: {remark}" for remark in remarks)
    return (
        *first,
        *origin.notices,
        *((f"{why_cold[0].upper()}{why_cold[1:]}.",) if why_cold else ()),
        *launch_notices(asked),
        *prepared.notices,
        *converted,
        *counted,
        *prepared.environment.notices,
    )


def frozen(plan: Plan, space: Space, job: Job) -> dict[str, Any]:
    """Return what must not change between a run and its resumption."""
    return {
        "space": space_hash(space),
        "rows": plan.prepared.profile.fingerprint,
        "job": job.model_dump(mode="json", exclude={"config_text"}),
        "memory_bytes": plan.budget.total_bytes if plan.budget.explicit else None,
        "headroom_ratio": plan.budget.headroom_ratio,
        "device": plan.prepared.device.name,
    }
