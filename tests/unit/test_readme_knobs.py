"""The table of knobs in the README is made from the catalogue."""

from __future__ import annotations

import os
from pathlib import Path

from autotune.knobs.catalog import KNOBS, Knob

README = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- knobs: begin", "<!-- knobs: end -->"


def table() -> str:
    lines = [
        "| knob | choices | trainers | needs | what it does |",
        "| --- | --- | --- | --- | --- |",
    ]
    for knob in KNOBS:
        trainers = ", ".join(trainer.value for trainer in knob.trainers)
        cells = (f"`{knob.name}`", choices(knob), trainers, needs(knob), knob.help)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def needs(knob: Knob) -> str:
    by_need: dict[str, list[str]] = {}
    for choice, names in knob.needs.items():
        by_need.setdefault(" and ".join(names), []).append(f"`{str(choice).lower()}`")
    # A switch has one choice that can need anything.
    if len(knob.choices or ()) == 2:
        return "; ".join(by_need)
    return "; ".join(f"{', '.join(words)}: {need}" for need, words in by_need.items())


def choices(knob: Knob) -> str:
    if knob.choices is None:
        return "any whole number"
    words = ("null" if c is None else str(c).lower() for c in knob.choices)
    return ", ".join(f"`{word}`" for word in words)


def test_the_knob_table_of_the_readme_is_current() -> None:
    text = README.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    mark, _, rest = rest.partition("\n")
    old, _, tail = rest.partition(END)
    if os.environ.get("AUTOTUNE_GOLDEN") == "write":
        old = f"{table()}\n"
        README.write_text(f"{head}{BEGIN}{mark}\n{old}{END}{tail}", encoding="utf-8")
    assert f"{table()}\n" == old
