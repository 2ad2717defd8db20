"""Colours of the report page, each for light and dark surroundings.

Charts are drawn in the light colours; the page swaps every one for its dark partner when the reader
prefers dark. That is why no two light colours here are equal.
"""

from __future__ import annotations

BACKGROUND = "#f5f6f8"
SURFACE = "#ffffff"
INK = "#16202c"
MUTED = "#536071"
LINE = "#dde2e8"
BEST = "#1558d6"
REFERENCE = "#6b7a8c"
TRIAL = "#7490bf"
FRONT = "#5f80b5"
MISFIT = "#b83a10"
HEADROOM = "#fbe9d0"
BUDGET = "#a15c00"
GOOD = "#0b6b43"

#: Light colour to dark colour.
DARK = {
    BACKGROUND: "#0d1218",
    SURFACE: "#161d26",
    INK: "#e8edf3",
    MUTED: "#9dabba",
    LINE: "#2b3542",
    BEST: "#74a9ff",
    REFERENCE: "#8d9bac",
    TRIAL: "#4d6ea3",
    FRONT: "#5b7fb8",
    MISFIT: "#ff9068",
    HEADROOM: "#3a2c16",
    BUDGET: "#f0b35a",
    GOOD: "#5fd39a",
}

#: Name of every colour as a CSS variable.
NAMES = {
    "background": BACKGROUND,
    "surface": SURFACE,
    "ink": INK,
    "muted": MUTED,
    "line": LINE,
    "best": BEST,
    "reference": REFERENCE,
    "trial": TRIAL,
    "front": FRONT,
    "misfit": MISFIT,
    "headroom": HEADROOM,
    "budget": BUDGET,
    "good": GOOD,
}


def css_variables(*, dark: bool) -> str:
    """Return the colours as CSS declarations."""
    return " ".join(
        f"--{name}: {DARK[colour] if dark else colour};" for name, colour in NAMES.items()
    )
