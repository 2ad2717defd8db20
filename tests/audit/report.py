"""Writes what the audit found as reports/rule-audit.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version

from autotune.core.candidate import Candidate
from autotune.core.job import Trainer
from tests.audit.verdict import Tried

CLAIMS = ("accepted", "rejected", "merged", "policy")


def rendered(found: Mapping[Trainer, Sequence[Tried]], left_out: Mapping[str, str]) -> str:
    """Return the audit as Markdown.

    Args:
        found: everything tried, by trainer.
        left_out: knobs that were not varied, and why.
    """
    versions = ", ".join(
        f"{name} {version(name)}" for name in ("trl", "transformers", "torch", "peft")
    )
    lines = [
        "# Every rule against TRL itself",
        "",
        "Made by `make audit`. Every pair of choices of any two knobs occurs in one of the "
        "combinations below; each was constructed by TRL's own trainer and trained for two "
        "updates on the CPU, in a process of its own.",
        "",
        f"Versions: {versions}.",
        "",
        "| trainer | tried | accepted | rejected | merged | policy | agreed | disagreed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for trainer, tried in found.items():
        claims = Counter(t.claim for t in tried)
        against = sum(not t.agrees for t in tried)
        cells = [trainer.value, len(tried), *(claims[c] for c in CLAIMS)]
        cells += [len(tried) - against, against]
        lines.append("| " + " | ".join(str(c) for c in cells) + " |")
    lines += [
        "",
        "*accepted* must train; *rejected* must raise in TRL, warn that it is ignored or change "
        "nothing (same batches, same allocated peak); *merged* is searched as another candidate "
        "and must do the same; *policy* is autotune's own (the effective batch, what may change) "
        "and says nothing of TRL.",
        "",
    ]
    if left_out:
        lines += ["Not varied:", "", *(f"- `{n}`: {why}" for n, why in left_out.items()), ""]
    for trainer, tried in found.items():
        lines += [f"## {trainer.value}", "", *_rules(tried), *_disagreements(tried), ""]
    return "\n".join(lines).rstrip() + "\n"


def _rules(tried: Sequence[Tried]) -> list[str]:
    counts = Counter((t.claim, t.rule) for t in tried if t.rule)
    example = {(t.claim, t.rule): t.found for t in reversed(tried)}
    head = ["| rule | rejected | what TRL did (first) |", "|---|---|---|"]
    rows = [
        f"| {rule.replace('_', ' ')} ({claim}) | {n} | {_cell(example[claim, rule])} |"
        for (claim, rule), n in sorted(counts.items())
    ]
    return [*head, *rows, ""] if rows else []


def _disagreements(tried: Sequence[Tried]) -> list[str]:
    against = [t for t in tried if not t.agrees]
    if not against:
        return ["No disagreement."]
    return [
        f"- {t.claim} {t.rule.replace('_', ' ')}: {_words(t.candidate)}: {_cell(t.found)}"
        for t in against
    ]


def _words(candidate: Candidate) -> str:
    return ", ".join(f"{k}={v}" for k, v in candidate.knobs.items())


def _cell(text: str) -> str:
    return " ".join(text.split())[:240].replace("|", "\\|")
