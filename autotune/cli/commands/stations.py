"""Verbs whose station of the pipeline is not built in this version; each says so by name."""

from __future__ import annotations

from collections.abc import Callable

import typer

_STATIONS = {
    "predict": "prediction without probes",
}


def register(app: typer.Typer) -> None:
    """Add every verb that is not built yet."""
    for verb, what in _STATIONS.items():
        app.command(
            verb,
            help=f"Not built yet: {what}.",
            context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        )(_refuse(verb, what))


def _refuse(verb: str, what: str) -> Callable[[], None]:
    def refuse() -> None:
        from autotune.core.errors import NotBuiltYet

        raise NotBuiltYet(
            f"`autotune {verb}` ({what}) is not built in this version.",
            "`autotune run` and `autotune run --dry-run` work.",
        )

    return refuse
