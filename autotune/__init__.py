"""autotune finds the fastest TRL training configuration that is safe for the whole run.

The package imports nothing heavy; `autotune.tune` loads what it needs when it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.core.about import __version__

if TYPE_CHECKING:
    from autotune.api import tune

__all__ = ["__version__", "tune"]


def __getattr__(name: str) -> Any:
    """Load the Python API on first use, so that ``import autotune`` stays light."""
    if name == "tune":
        from autotune.api import tune

        return tune
    raise AttributeError(f"module 'autotune' has no attribute {name!r}")
