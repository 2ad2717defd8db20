"""Holds every claim of the rules about one job against what TRL does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from autotune.core.candidate import Candidate
from tests.audit.bench import Bench
from tests.audit.cover import Choices
from tests.audit.plan import Trials
from tests.audit.single import Fault, Merge
from tests.audit.verdict import Tried, alike, ended, stopped, trained, warning_about

#: Rules that are autotune's own and claim nothing about TRL, and why it has them.
POLICIES: Mapping[str, str] = {
    "length_within_training": "a model of rotary positions goes on beyond those it was made for, "
    "and learns nothing of use there",
    "evaluated_weights_train": "training goes on with gradients that do not pass the 4bit layers; "
    "where only the attention has adapters none arrives, which is tried",
    "float16_is_scaled": "training goes on, and gradients that are too small for float16 vanish",
    "no_longer_than_the_reference": "the user's own limit",
    "documents_stay_whole": "what the user agreed to (--allow split)",
    "packed_rows_are_filled": "TRL trains the one short row, and calls it a packed one",
    "enough_is_kept": "the user's own limit (--min-retention)",
    "effective_batch_held": "the user's own batch",
    "change_is_allowed": "what the user agreed to (--allow)",
}
#: The rule whose claim is a warning of TRL's, whatever else happens.
DEPRECATES = "versions_want_it"
#: Knobs dropped although TRL does something with them, by knob: what for, and why it is dropped.
DROPPED: Mapping[str, str] = {
    "pad_to_multiple_of": "TRL's collator appends the pads of a flattened row to its end, and "
    "attention takes each for a document of one token",
}

#: Rules about TRL that a CPU cannot judge where it trains, and why.
ON_A_GPU: Mapping[str, str] = {
    "fp16_trains_float32": "the gradient scaler refuses gradients in float16 everywhere; those in "
    "bfloat16 a CPU's takes, and a GPU's has no kernel for",
}

_WORKERS = "dataloader_num_workers"

Check = Callable[[], Tried]


def checks(bench: Bench, trials: Trials, breaks: Sequence[str] = ()) -> Iterator[tuple[str, Check]]:
    """Yield a label and a function that tries it for everything that is tried of a job.

    Args:
        bench: tries combinations.
        trials: what is tried.
        breaks: policies that in this job are claims about TRL.
    """
    for candidate in trials.accepted:
        yield f"accepted {candidate.key}", lambda c=candidate: _accepted(bench, c)
    for fault in trials.rejected:
        yield f"rejected {fault.choices}", lambda f=fault: _rejected(bench, f, trials, breaks)
    for merge in trials.merged:
        yield f"merged {merge.choices}", lambda m=merge: _merged(bench, m)


def _accepted(bench: Bench, candidate: Candidate) -> Tried:
    agrees, found = trained(bench.translated(candidate))
    return Tried("accepted", "", tuple(candidate.knobs.items()), agrees, found)


def _rejected(bench: Bench, fault: Fault, trials: Trials, breaks: Sequence[str]) -> Tried:
    rule = ", ".join(fault.rules)
    done = bench.as_written(_quiet(fault.candidate, fault.choices))
    if set(fault.rules) <= POLICIES.keys() - set(breaks):
        return Tried("policy", rule, fault.choices, True, ended(done))
    others = (*(_quiet(o, fault.choices) for o in fault.without), *trials.accepted)
    without = (bench.translated(other) for other in others)
    knobs = [name for name, _ in fault.choices]
    agrees, found = stopped(done, knobs, without, _dtype(fault.candidate))
    if not agrees and set(fault.rules) <= ON_A_GPU.keys():
        return Tried("unjudged", rule, fault.choices, True, found)
    if DEPRECATES in fault.rules:
        warned = warning_about(knobs, (w for w in done.warnings if "deprecated" in w))
        agrees, found = agrees and bool(warned), f"{found}; warned before: {warned or 'nothing'}"
    return Tried("rejected", rule, fault.choices, agrees, found)


def _merged(bench: Bench, merge: Merge) -> Tried:
    knob = merge.choices[0][0]
    rule = f"{knob} is {'dropped' if merge.drops else f'searched as {merge.turns_into}'}"
    candidate, stands = (_quiet(c, merge.choices) for c in (merge.candidate, merge.into))
    done, into = bench.as_written(candidate), bench.translated(stands)
    straightened = None if done.ending == "trains" else bench.translated(candidate)
    agrees, found = alike(done, into, _dtype(merge.candidate), straightened)
    if merge.drops and knob in DROPPED and done.ending == "trains":
        return Tried("policy", rule, merge.choices, True, found)
    return Tried("merged", rule, merge.choices, agrees, found)


def _quiet(candidate: Candidate, choices: Choices) -> Candidate:
    """Return a candidate without loading processes, unless it is about them.

    They hand batches over at moments of their own, which shows in the peak of live bytes.
    """
    if _WORKERS not in candidate.knobs or _WORKERS in dict(choices):
        return candidate
    return candidate.with_knobs(**{_WORKERS: 0})


def _dtype(candidate: Candidate) -> str:
    return str(candidate.get("dtype", "float32"))
