"""Finds the clauses of rules and merges in their source, and which of them a call went through.

A clause of a rule is a return of a reason, one of a merge a statement that changes a knob. So a
clause that is added without an audit row is noticed.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass(frozen=True, order=True)
class Clause:
    """One clause.

    Args:
        function: name of the rule or of the merge.
        text: its statement, on one line.
        lines: first and last line of the statement in its file.
    """

    function: str
    text: str
    lines: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.function}: {self.text}"


def clauses_of(function: Callable[..., Any]) -> tuple[Clause, ...]:
    """Return the clauses of a rule or of a merge, in order."""
    lines, first = inspect.getsourcelines(function)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    found = (
        Clause(
            function.__name__,
            ast.unparse(node),
            (first + node.lineno - 1, first + (node.end_lineno or node.lineno) - 1),
        )
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and _counts(node)
    )
    return tuple(sorted(found, key=lambda clause: clause.lines))


#: Calls by which a merge changes a knob, each only where there is something to change.
_CHANGES = ("knobs.without(", "knobs.become(")


def _counts(node: ast.stmt) -> bool:
    if isinstance(node, ast.Return):
        return node.value is not None and ast.unparse(node.value) != "None"
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        return isinstance(target, ast.Subscript) and ast.unparse(target.value) == "knobs"
    return isinstance(node, ast.Expr) and ast.unparse(node).startswith(_CHANGES)


def gone_through(
    functions: Iterable[Callable[..., Any]], call: Callable[[], object]
) -> frozenset[Clause]:
    """Return the clauses a call goes through; of a merge, those that change a knob.

    Args:
        functions: rules or merges.
        call: runs some of them.
    """
    wanted = {function.__code__: clauses_of(function) for function in functions}
    found: set[Clause] = set()
    begun: dict[FrameType, tuple[Clause, dict[str, Any]]] = {}

    def end(frame: FrameType) -> None:
        if frame in begun:
            clause, knobs = begun.pop(frame)
            found.update([clause] if knobs != frame.f_locals["knobs"] else ())

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code not in wanted:
            return None
        end(frame)
        for clause in wanted[frame.f_code]:
            if event == "line" and clause.lines[0] <= frame.f_lineno <= clause.lines[1]:
                if "knobs" in frame.f_locals:
                    begun[frame] = (clause, dict(frame.f_locals["knobs"]))
                else:
                    found.add(clause)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return frozenset(found)
