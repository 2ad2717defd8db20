"""Measures exactly one config, for a comparison with a stored baseline; searches nothing.

On a machine whose speed varies (a shared CI runner) only ratios can be compared, so a reference
form of the same config is measured in turns with it: same rows, same minute, same neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.candidate import Candidate
from autotune.core.errors import EnvironmentUnable, NothingFits
from autotune.core.job import Trainer
from autotune.core.outcome import Outcome
from autotune.core.result import Ratio, Result, TrialRecord
from autotune.core.units import show_bytes, show_ratio
from autotune.knobs.catalog import knobs_of, user_candidate
from autotune.knobs.facts import Facts
from autotune.knobs.rules import judge
from autotune.knobs.translate import canonical
from autotune.study.choose import may_recover, paired_ratio
from autotune.study.session import Session

#: What ``Result.space`` calls a measurement that searched nothing.
SPACE = {"name": "one config", "candidates": 1, "merged": 0}
#: The reference turns every neutral lever to the side that needs least memory, whatever the
#: config says, so that a knob flipped in the config does not flip it here too.
_REFERENCE = {
    "per_device_train_batch_size": 1,
    "packing": "none",
    "padding_free": False,
    "pad_to_multiple_of": None,
    "train_sampling_strategy": "random",
    "dataloader_num_workers": 0,
    "gradient_checkpointing": "full",
    "activation_offloading": False,
    "torch_empty_cache_steps": None,
    "allocator": "default",
    "precompute_ref_log_probs": False,
    "attn_implementation": None,
    "use_kernels": False,
    "use_liger_kernel": False,
    "torch_compile": False,
}
#: KTO compares the rows of a micro-batch in their order.
_KTO = {"per_device_train_batch_size": 2, "train_sampling_strategy": "sequential"}


@dataclass
class Single(Session):
    """Measure the user's own config, and its reference in turns with it.

    Args:
        repeats: how often it is measured, at least once; from 2 on its reference is too.
    """

    repeats: int = 1

    def run(self) -> None:
        """Measure until every repeat is done or the config fails; fills ``trials``.

        Raises:
            EnvironmentUnable: the first probes all died of one cause that is not memory.
        """
        own = canonical(user_candidate(self.facts), self.facts)
        # One pair makes no ratio, so one measurement needs no reference.
        other = reference_form(own, self.facts) if self.repeats > 1 else None
        pairs: list[tuple[float, float]] = []
        for turn in range(self.repeats):
            mine = self._undisturbed(own, "confirmation" if turn else "baseline")
            if mine.estimate is None:
                return
            if other is None:
                continue
            theirs = self._undisturbed(other, "confirmation")
            if theirs.estimate is None:
                other = None
                continue
            pairs.append((theirs.estimate.score_seconds, mine.estimate.score_seconds))
        if other is not None and len(pairs) > 1:
            self.speedup = paired_ratio([p[0] for p in pairs], [p[1] for p in pairs], other.key)

    def _undisturbed(self, candidate: Candidate, role: str) -> TrialRecord:
        """Measure a candidate, once more when the first ended for a reason outside it."""
        record = self.probe(candidate, role)
        return self.probe(candidate, role) if may_recover(record) else record


def reference_form(own: Candidate, facts: Facts) -> Candidate | None:
    """Return what a config is timed against, None when it is that form itself.

    Args:
        own: the config.
        facts: job, rows and machine.
    """
    names = {knob.name for knob in knobs_of(facts.job.trainer)}
    known = {name: value for name, value in _REFERENCE.items() if name in names}
    if facts.job.trainer is Trainer.KTO:
        known |= _KTO
    form = canonical(own.with_knobs(**known), facts)  # type: ignore[arg-type]
    return None if form.key == own.key or not judge(form, facts, own=True).valid else form


def alone(result: Result, speedup: Ratio | None) -> Result:
    """Return the document of one measured config, from the one a search would leave.

    Args:
        result: as `assemble` makes it from the trials.
        speedup: the config against its reference.
    """
    own = next((t for t in result.trials if t.role == "baseline"), None)
    mine = [t for t in result.trials if own and t.candidate.key == own.candidate.key]
    steady = [t for t in mine if not may_recover(t)]
    fits = bool(steady) and all(t.report.ending.outcome is Outcome.FITS for t in steady)
    # Its logs were in a folder that is gone.
    trials = tuple(
        t.model_copy(update={"report": t.report.model_copy(update={"log_file": None})})
        for t in result.trials
    )
    return result.model_copy(
        update={
            "trials": trials,
            "best": own.candidate.key if own and fits else None,
            "reference": speedup.reference if speedup else None,
            "chosen_because": _because(steady, fits=fits),
            "verification": "",
            "equivalence": "",
            "speedup": speedup,
            "pays_back_seconds": None,
            "skipped": (),
            "space": dict(SPACE),
        }
    )


def require_runs(result: Result) -> None:
    """Check that the measured config runs within its budget.

    Raises:
        NothingFits: it needs more memory than that.
        EnvironmentUnable: it could not be measured for another reason.
    """
    if result.best is not None:
        return
    report = next((t.report for t in result.trials if t.estimate is None), None)
    if report is None:
        raise EnvironmentUnable("nothing was measured.")
    ending = report.ending
    if not ending.outcome.is_memory:
        tail = " / ".join(ending.detail.strip().splitlines()[-2:])
        raise EnvironmentUnable(f"the config could not be measured: {ending.reason}.", tail or None)
    raise NothingFits(
        f"the config does not fit {show_bytes(result.budget.usable_bytes)} "
        f"({show_bytes(result.budget.total_bytes)} less "
        f"{show_ratio(result.budget.headroom_ratio)} headroom): {ending.reason}, in phase "
        f"{ending.phase.value}.",
        "`autotune run` with the same options looks for one that does.",
    )


def _because(measured: Sequence[TrialRecord], *, fits: bool) -> str:
    if fits:
        return "it is the one config that was measured"
    reasons = [t.report.ending.reason for t in measured if t.estimate is None]
    return f"the config does not run: {reasons[0]}" if reasons else "nothing was measured"
