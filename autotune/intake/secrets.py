"""Takes tokens and passwords out of what the user gives, before any of it is written down.

Measuring needs none of them: they go to the measuring processes as variables of their environment
and nowhere else. In the user's YAML a comment takes their place. Of its ``env:`` block only
variables known to hold no secret are written down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from autotune.core.secrets import (
    hide_text,
    is_open_variable,
    is_secret_option,
    without_secrets,
)
from autotune.emit.read_config import UserConfig

#: Stands for the key of what is in a list.
_NO_KEY = yaml.ScalarNode("tag:yaml.org,2002:str", "")


@dataclass(frozen=True)
class Withheld:
    """A user's config without secrets, and what was taken out.

    Args:
        config: what is left; its text has a comment where a secret was, or is empty when it is
            too unusual to edit.
        env: variables that are secrets, for the measuring processes alone.
        names: what was taken out, as the user calls it.
    """

    config: UserConfig
    env: dict[str, str]
    names: tuple[str, ...]

    @property
    def notices(self) -> tuple[str, ...]:
        """Say what was left out, and what to do about it."""
        if not self.names:
            return ()
        return (
            f"{', '.join(self.names)}: kept out of everything that is written, best.yaml included. "
            "Set it where you train (for the hub: HF_TOKEN, or `hf auth login`).",
        )


def hub_token(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the variable by which a model is read from the hub with the options' own token.

    Args:
        options: TRL options by name, secrets included.
    """
    init = options.get("model_init_kwargs")
    token = init.get("token") if isinstance(init, Mapping) else None
    return {"HF_TOKEN": token} if isinstance(token, str) else {}


def withhold(config: UserConfig) -> Withheld:
    """Return a config without its secrets.

    Args:
        config: the user's YAML, taken apart.
    """
    options, names = without_secrets(config.options)
    token = hub_token(config.options)
    secret = {k: v for k, v in config.env.items() if not is_open_variable(k, v)}
    env = {k: v for k, v in config.env.items() if k not in secret}
    names = (*names, *(f"env {name}" for name in secret))
    text = hide_text(_commented(config.text)) if names else hide_text(config.text)
    kept = replace(config, text=text, options=options, env=env)
    return Withheld(kept, {**secret, **token}, names)


def _commented(text: str) -> str:
    """Return a YAML text with a comment for every line that holds a secret; "" when it cannot be
    told apart from its neighbours."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        return text
    lines = text.splitlines(keepends=True)
    for key, first, last in _places(root):
        if first is None:
            return ""
        indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
        lines[first] = f"{indent}# {key}: kept out by autotune\n"
        lines[first + 1 : last + 1] = [""] * (last - first)
    return "".join(lines)


def _places(
    mapping: yaml.MappingNode, *, env: bool = False, nested: bool = False
) -> Iterator[tuple[str, int | None, int]]:
    """Yield key, first and last line of every secret; no line where it shares one."""
    for key, value in mapping.value:
        inside = env or (key.value == "env" and not nested)
        if _is_secret(key, value, env=inside, nested=nested):
            yield _lines(mapping, key, value)
        elif isinstance(value, yaml.MappingNode):
            yield from _places(value, env=inside, nested=True)


def _is_secret(key: yaml.Node, value: yaml.Node, *, env: bool, nested: bool) -> bool:
    """Whether a value is a secret, or a block of nothing else: left empty it would be null."""
    if isinstance(value, yaml.MappingNode):
        inner = [_is_secret(k, v, env=env, nested=True) for k, v in value.value]
        return bool(inner) and all(inner)
    if isinstance(value, yaml.SequenceNode):
        return not env and any(
            _is_secret(_NO_KEY, one, env=env, nested=False) for one in value.value
        )
    if not isinstance(value, yaml.ScalarNode):
        return False
    if env:
        return not is_open_variable(str(key.value), str(value.value))
    return is_secret_option(str(key.value), str(value.value), nested=nested)


def _lines(
    mapping: yaml.MappingNode, key: yaml.Node, value: yaml.Node
) -> tuple[str, int | None, int]:
    end = value.end_mark.line
    if end > key.start_mark.line and value.end_mark.column <= key.start_mark.column:
        end -= 1  # the mark of a block is already at what follows it
    return str(key.value), None if mapping.flow_style else key.start_mark.line, end
