"""Writes what the audit found as reports/rule-audit.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from autotune.core.candidate import Value
from tests.audit.audit import DROPPED, ON_A_GPU, POLICIES
from tests.audit.clauses import Clause
from tests.audit.job import LEFT_OUT, AuditJob
from tests.audit.plan import Pairs
from tests.audit.reach import OUT_OF_REACH
from tests.audit.verdict import Tried

_CLAIMS = ("accepted", "rejected", "merged", "policy", "unjudged")
_PACKAGES = ("trl", "transformers", "torch", "peft", "bitsandbytes")
_INTRO = (
    "Made by `make audit`. Every combination below was constructed with TRL's own trainer from a "
    "user's rows and a model's folder, the way `trl sft` and its kin do it, and trained for two "
    "updates on the CPU, in a process of its own. Nothing of autotune but the options it writes is "
    "in it.",
    "*accepted*: every pair of choices of two knobs that a valid candidate can have occurs in one "
    "of these combinations; each must train, with labels, gradients and finite losses. "
    "*rejected*: a combination that differs from a valid one in nothing but the choices named; "
    "TRL must refuse it, break, warn that it ignores one of them, or do exactly what it does "
    "without. *merged*: a combination that is searched as another one; both must do the same: the "
    "same micro-batches, peak of live bytes, losses and gradient norms. *policy*: autotune's own; "
    "it says nothing of TRL, and what TRL does is told and not judged.",
)


@dataclass(frozen=True)
class Audited:
    """What came of one job.

    Args:
        job: a row of the table.
        pairs: what its accepted combinations cover.
        tried: everything tried.
    """

    job: AuditJob
    pairs: Pairs
    tried: Sequence[Tried]


def rendered(audited: Sequence[Audited], missing: Iterable[Clause]) -> str:
    """Return the audit as Markdown.

    Args:
        audited: every job.
        missing: clauses that no combination exercises.
    """
    versions = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    against = [(a.job.name, t) for a in audited for t in a.tried if not t.agrees]
    lines = ["# Every rule against TRL itself", "", _INTRO[0], "", _INTRO[1], ""]
    lines += [f"Versions: {versions}.", "", *_totals(audited)]
    lines += ["## Disagreements", ""]
    lines += [_told(name, t) for name, t in against] or ["None."]
    lines += ["", "## Not tried", "", "Knobs that are not varied:", ""]
    lines += [f"- `{name}`: {why}" for name, why in LEFT_OUT.items()]
    lines += ["", "Rules that no combination can exercise on the machine this was made on:", ""]
    lines += [f"- {_plain(name)}: {why}" for name, why in OUT_OF_REACH.items()]
    unreasoned = [c for c in missing if c.function not in OUT_OF_REACH]
    lines += [f"- {_plain(c.function)}: **no reason** for `{c.text}`" for c in unreasoned]
    lines += ["", "Rules that a CPU cannot judge in every combination (*unjudged*):", ""]
    lines += [f"- {_plain(name)}: {why}" for name, why in ON_A_GPU.items()]
    lines += ["", "Rules that are autotune's own (*policy*):", ""]
    lines += [f"- {_plain(name)}: {why}" for name, why in POLICIES.items()]
    lines += [f"- `{name}` dropped: {why}" for name, why in DROPPED.items()]
    for found in audited:
        lines += ["", f"## {found.job.name}", "", *_about(found.job), *_rows(found.tried)]
    return "\n".join(lines).rstrip() + "\n"


def _totals(audited: Sequence[Audited]) -> list[str]:
    head = ["job", "tried", *_CLAIMS, "disagreed", "pairs covered", "merged", "forbidden"]
    rows = []
    total: Counter[str] = Counter()
    for found in audited:
        counts: Counter[str] = Counter(t.claim for t in found.tried)
        counts["tried"] = len(found.tried)
        counts["disagreed"] = sum(not t.agrees for t in found.tried)
        total += counts
        pairs = found.pairs
        covered = f"{pairs.covered} of {pairs.held}"
        cells = [counts[name] for name in head[1:8]]
        rows.append([found.job.name, *cells, covered, pairs.merged, pairs.forbidden])
    rows.append(["**all**", *(total[name] for name in head[1:8]), "", "", ""])
    table = _table(head, rows)
    note = (
        "*pairs covered*: pairs of choices of two knobs that occur together in an accepted "
        "combination, of those a valid candidate can have; other pairs are *merged* (always "
        "searched as another) or *forbidden* (no candidate with them is valid)."
    )
    return [*table, "", note, ""]


def _about(job: AuditJob) -> list[str]:
    options = ", ".join(f"`{name}: {value}`" for name, value in job.options.items())
    varied = "every knob" if job.varies is None else ", ".join(f"`{n}`" for n in job.varies)
    return [
        f"{job.trainer.value}; model {job.model}; rows {job.rows}; {options}. Varied: {varied}.",
        "",
    ]


def _rows(tried: Sequence[Tried]) -> list[str]:
    told = [t for t in tried if t.claim != "accepted"]
    if not told:
        return ["Nothing is rejected or merged."]
    told.sort(key=lambda t: (_CLAIMS.index(t.claim), t.rule))
    head = ["claim", "rule", "smallest combination", "what TRL did"]
    return _table(head, [[t.claim, _plain(t.rule), _shown(t.choices), t.found] for t in told])


def _told(job: str, tried: Tried) -> str:
    rule = f" ({_plain(tried.rule)})" if tried.rule else ""
    return f"- {job}: {tried.claim}{rule}: {_shown(tried.choices)}: {tried.found}"


def _plain(rule: str) -> str:
    return rule.replace("_", " ") if " " not in rule or "," in rule else rule


def _shown(choices: Iterable[tuple[str, Value]]) -> str:
    return ", ".join(f"{name} {'null' if c is None else str(c).lower()}" for name, c in choices)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [[_cell(c) for c in cells] for cells in (head, ["---"] * len(head), *rows)]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def _cell(value: object) -> str:
    return " ".join(str(value).split())[:240].replace("|", "\\|")
