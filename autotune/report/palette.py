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

#: Parts of a peak; neighbours in a bar differ in hue and in lightness.
PARTS = {
    "weights": "#1b4f9c",
    "reference": "#8a6fc9",
    "gradients": "#0f8a8c",
    "optimizer": "#e2a32b",
    "activations": "#2f7d4a",
    "logits": "#d0603a",
    "inputs": "#94a3b5",
    "temporaries": "#c67fa8",
    "rest": "#c3cbd5",
    "host": "#d9c9a8",
}

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
    PARTS["weights"]: "#5b95ee",
    PARTS["reference"]: "#b49df0",
    PARTS["gradients"]: "#37b6b8",
    PARTS["optimizer"]: "#f0bd58",
    PARTS["activations"]: "#57b37a",
    PARTS["logits"]: "#f08a63",
    PARTS["inputs"]: "#8291a3",
    PARTS["temporaries"]: "#d99bc0",
    PARTS["rest"]: "#4c5968",
    PARTS["host"]: "#6d6247",
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
    **{f"part-{name}": colour for name, colour in PARTS.items()},
}


def css_variables(*, dark: bool) -> str:
    """Return the colours as CSS declarations."""
    return " ".join(
        f"--{name}: {DARK[colour] if dark else colour};" for name, colour in NAMES.items()
    )
