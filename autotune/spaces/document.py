"""A YAML file as plain values, with the line of every part of it. Knows nothing of spaces."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import ConstructorError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError

from autotune.core.errors import BadInput


@dataclass(frozen=True)
class Document:
    """A file that was read.

    Args:
        path: the file, as the user named it.
        value: what it holds, in plain Python types; merge keys and aliases are filled in.
        marks: the same as ruamel's round-trip tree, which knows where each part is written.
    """

    path: Path
    value: Any
    marks: Any

    def at(self, *where: Any) -> str:
        """Return ``file:line`` of a part, or of the deepest one around it that is written down.

        Args:
            where: keys of mappings and indices of lists, from the outside in.
        """
        line, part = 0, self.marks
        for key in where:
            written = getattr(getattr(part, "lc", None), "data", None) or {}
            if key not in written:  # nowhere, or merged in from elsewhere
                break
            line, part = written[key][0], part[key]
        return f"{self.path}:{line + 1}"


def read_document(path: Path) -> Document:
    """Read a YAML file (version 1.2: ``yes`` and ``on`` are text).

    Raises:
        BadInput: it cannot be read or is not YAML; says where.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path} is not text in UTF-8: byte {error.start} is {error.object[error.start]:#04x}.",
            "Save it as UTF-8.",
        ) from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}.") from error
    try:
        value = YAML(typ="safe", pure=True).load(text)
        return Document(path, value, YAML(typ="rt").load(text))
    except YAMLError as error:
        raise _refusal(path, text, error) from error
    except RecursionError as error:
        raise BadInput(f"{path} is nested too deeply to be read.") from error


def _refusal(path: Path, text: str, error: YAMLError) -> BadInput:
    line, problem, hint = 1, str(error), None
    if isinstance(error, ReaderError):
        line = text.count("\n", 0, error.position) + 1
        problem = f"it has the character {chr(error.character)!r}"
    elif isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        # "found duplicate key "a" with value ... (original value: ...)"
        problem = str(error.problem).partition(" with value ")[0]
        if problem.startswith("but "):
            problem = f"{error.context}, {problem}"
    if "'\\t'" in problem:
        hint = "Indent with spaces, not with tabs."
    if isinstance(error, ConstructorError) and "tag" in problem:
        problem, hint = f"it has the {problem.partition(' for the ')[2]}", "Write plain values."
    return BadInput(f"{path}:{line}: this is not YAML: {problem}.", hint)
