"""The trials as JUnit XML, one test case each, for CI systems that show test results.

A candidate that does not fit is what a search looks for and no failure: it is skipped. Failures are
the user's own config not fitting, errors are probes that broke. Follows the strict form of the
schema (Ant's), which the looser ones accept.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from autotune.core.outcome import Outcome
from autotune.core.result import Result, TrialRecord
from autotune.report.privacy import public
from autotune.report.summary import headline, knob_text, sentences

_BROKEN = (Outcome.CRASHED, Outcome.NON_FINITE, Outcome.TIMEOUT, Outcome.POLLUTED)
#: What XML 1.0 cannot hold.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(result: Result) -> str:
    """Write a ``testsuites`` document."""
    shown = public(result)
    kinds = [_kind(trial) for trial in shown.trials]
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        {
            "name": f"autotune {shown.job.trainer.value}",
            "package": "autotune",
            "id": "0",
            # The schema knows no time zone.
            "timestamp": shown.created[:19],
            "hostname": "localhost",
            "tests": str(len(kinds)),
            "failures": str(kinds.count("failure")),
            "errors": str(kinds.count("error")),
            "skipped": str(kinds.count("skipped")),
            "time": f"{shown.search_seconds:.3f}",
        },
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(shown).items():
        ElementTree.SubElement(properties, "property", {"name": name, "value": _xml(value)})
    for trial, kind in zip(shown.trials, kinds, strict=True):
        _case(suite, shown, trial, kind)
    out = ElementTree.SubElement(suite, "system-out")
    out.text = _xml("\n".join([headline(shown), *sentences(shown)]))
    ElementTree.SubElement(suite, "system-err").text = _xml("\n".join(shown.notices))
    ElementTree.indent(root)
    body = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _kind(trial: TrialRecord) -> str:
    outcome = trial.report.ending.outcome
    if outcome is Outcome.FITS:
        return "passed"
    if outcome in _BROKEN:
        return "error"
    return "failure" if trial.role == "baseline" else "skipped"


def _case(suite: ElementTree.Element, result: Result, trial: TrialRecord, kind: str) -> None:
    ending = trial.report.ending
    name = f"{trial.number:03d} {trial.role}: {knob_text(trial, result)}"
    case = ElementTree.SubElement(
        suite,
        "testcase",
        {
            "name": _xml(" ".join(name.split())),
            "classname": f"autotune.{result.job.trainer.value}",
            "time": f"{trial.report.wall_seconds:.3f}",
        },
    )
    if kind == "passed":
        return
    message = f"{ending.outcome.value} in {ending.phase.value}: {ending.reason}"
    about = {"message": _xml(message)}
    if kind != "skipped":
        about["type"] = ending.outcome.value
    ElementTree.SubElement(case, kind, about).text = _xml(ending.detail) or None


def _properties(result: Result) -> dict[str, str]:
    found = {
        "autotune": result.autotune_version,
        "device": result.device.name,
        "budget_bytes": str(result.budget.total_bytes),
        "model": result.job.model,
        "best": result.best or "none",
    }
    return found | {f"version.{k}": v for k, v in result.environment.versions.items()}


def _xml(text: str) -> str:
    return _NOT_XML.sub("?", text)
