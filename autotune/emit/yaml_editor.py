"""Change single values of a YAML text and leave every other character as it was.

Works on the block mapping at the root, by the positions PyYAML reports. Whoever edits checks the
outcome by reading it back: a text that is too unusual to edit is then written anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml import events


@dataclass
class _Node:
    """A node of the text: where it starts, where its last character ends, and what is in it."""

    start: int
    end: int
    column: int
    text: str | None = None
    flow: bool = False
    items: list[_Node] = field(default_factory=list)

    @property
    def pairs(self) -> list[tuple[_Node, _Node]]:
        return list(zip(self.items[::2], self.items[1::2], strict=True))


class YamlEditor:
    """Collect edits of a YAML text, then apply them together.

    Args:
        text: a document whose root is a block mapping.

    Raises:
        ValueError: the root is no block mapping.
        yaml.YAMLError: the text is not YAML.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._edits: list[tuple[int, int, str]] = []
        self._appended: list[str] = []
        stream = (e for e in yaml.parse(text, Loader=yaml.SafeLoader) if _is_content(e))
        first = next(stream, None)
        if not isinstance(first, events.MappingStartEvent) or first.flow_style:
            raise ValueError("the root is no block mapping")
        self._root = _read(first, stream, text)

    def set(self, name: str, value: list[str]) -> None:
        """Give a key of the root another value, or append the key when it is not there.

        Args:
            name: the key.
            value: the whole ``name: value``, as lines indented from column 0.
        """
        pairs = self._pairs(self._root, name)
        if not pairs:
            self._appended += [" " * self._root_column + line for line in value]
            return
        for key, node in pairs:
            lines = [value[0].partition(":")[2], *value[1:]]
            body = ("\n" + " " * self._root_column).join(lines)
            self._replace(key, node, body)

    def set_within(self, outer: str, name: str, text: str) -> None:
        """Give a key of a block mapping below the root a value on one line, or add it there.

        Args:
            outer: a key of the root whose value is a block mapping.
            name: the key in it.
            text: the value as YAML text.

        Raises:
            ValueError: there is no block mapping under ``outer``.
        """
        mapping = next((node for _, node in self._pairs(self._root, outer)), None)
        if mapping is None or mapping.flow or not mapping.items:
            raise ValueError(f"{outer} is no block mapping")
        pairs = self._pairs(mapping, name)
        for key, node in pairs:
            self._replace(key, node, f" {text}")
        if not pairs:
            at = self._end_of_line(_content_end(mapping))
            pad = " " * mapping.items[0].column
            self._edits.append((at, at, f"\n{pad}{name}: {text}"))

    def rename(self, name: str, to: str) -> None:
        """Give a key of the root another name, where it stands.

        Args:
            name: the key.
            to: its new name, plain text to YAML.
        """
        self._edits += [(key.start, key.end, to) for key, _ in self._pairs(self._root, name)]

    def remove(self, name: str) -> None:
        """Take a key of the root out, with the rest of its lines."""
        for key, node in self._pairs(self._root, name):
            start = self._text.rfind("\n", 0, key.start) + 1
            end = self._end_of_line(max(_content_end(node), key.end))
            self._edits.append((start, min(end + 1, len(self._text)), ""))

    def render(self, remark: str) -> str:
        """Return the edited text.

        Args:
            remark: comment line put before the appended keys.
        """
        text = self._text
        for start, end, new in sorted(self._edits, reverse=True):
            text = text[:start] + new + text[end:]
        if self._appended:
            body = text.rstrip()
            pad = " " * self._root_column
            text = "\n".join([body, "", f"{pad}# {remark}", *self._appended]) + "\n"
        return text if text.endswith("\n") else text + "\n"

    @property
    def _root_column(self) -> int:
        return self._root.items[0].column if self._root.items else 0

    def _pairs(self, mapping: _Node, name: str) -> list[tuple[_Node, _Node]]:
        return [(key, node) for key, node in mapping.pairs if key.text == name]

    def _replace(self, key: _Node, node: _Node, body: str) -> None:
        colon = self._text.index(":", key.end)
        self._edits.append((colon + 1, max(_content_end(node), colon + 1), body))

    def _end_of_line(self, index: int) -> int:
        found = re.compile(r"[^\n]*").match(self._text, index)
        return found.end() if found else len(self._text)


def _is_content(event: events.Event) -> bool:
    return isinstance(event, events.NodeEvent | events.CollectionEndEvent)


def _at(mark: Any) -> int:
    return int(mark.index) if mark is not None else 0


def _read(event: events.Event, stream: Iterator[events.Event], text: str) -> _Node:
    start, column = _at(event.start_mark), event.start_mark.column if event.start_mark else 0
    node = _Node(start, _at(event.end_mark), column)
    if isinstance(event, events.ScalarEvent):
        node.text = event.value
        if event.style in ("|", ">"):
            # The mark of a block scalar is already at what follows it.
            node.end = start + len(text[start : node.end].rstrip())
    elif isinstance(event, events.CollectionStartEvent):
        node.flow = bool(event.flow_style)
        for inner in stream:
            if isinstance(inner, events.CollectionEndEvent):
                node.end = _at(inner.end_mark)
                break
            node.items.append(_read(inner, stream, text))
    return node


def _content_end(node: _Node) -> int:
    """Where the last character of a node is; a block ends with its last item, not with comments."""
    if node.items and not node.flow:
        return _content_end(node.items[-1])
    return node.end
