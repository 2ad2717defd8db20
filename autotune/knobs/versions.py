"""How the installed versions spell options, and what they have; compared explicitly, never probed.

The canonical name is the one the knob table uses. A spelling is dropped from here once the oldest
supported version no longer needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Newer spelling -> canonical one. transformers 5.24 starts to rename gradient checkpointing and
#: warns of the old name; TRL 1.16 still sets its default under the old name. The table goes when
#: TRL itself uses the new name.
RENAMED: Mapping[str, str] = {
    "activation_checkpointing": "gradient_checkpointing",
    "activation_checkpointing_kwargs": "gradient_checkpointing_kwargs",
}


def canonical_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options under their canonical names; where both are set the newer one wins.

    Args:
        options: TRL options by whatever name the user wrote.
    """
    plain = {k: v for k, v in options.items() if k not in RENAMED}
    newer = {RENAMED[k]: v for k, v in options.items() if k in RENAMED and v is not None}
    return {**plain, **newer}
