"""What a check found, written to its file as it goes: a crash leaves what was found before it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Found:
    """Evidence and complaints of one check.

    Args:
        file: where they are written; None writes nothing.
        evidence: numbers, by what they are of.
        wrong: one sentence for everything that is not as it should be.
    """

    file: Path | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def keep(self, name: str, value: Any) -> None:
        """Keep a piece of evidence."""
        self.evidence[name] = value
        self.write()

    def expect(self, true: bool, sentence: str) -> None:
        """Keep a sentence when something is not so."""
        if not true:
            self.wrong.append(sentence)
            self.write()

    def write(self) -> None:
        """Write what there is."""
        if self.file is not None:
            document = {"wrong": self.wrong, "evidence": self.evidence}
            self.file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
