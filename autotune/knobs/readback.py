"""What a constructed trainer was seen to use, as choices of knobs: asked and used may differ.

TRL switches options off with no more than a remark. Whatever the rules know of that, the values in
effect are read back after every probe (`autotune.probe.child.effective`) and compared here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotune.core.candidate import Candidate, Value
from autotune.knobs.catalog import BY_NAME
from autotune.knobs.no_effect import shown

Effective = Mapping[str, Any]


def _plain(name: str) -> Callable[[Effective], Value]:
    return lambda effective: effective[name]


def _checkpointing(effective: Effective) -> Value:
    if not effective["gradient_checkpointing"]:
        return "none"
    if effective["selective"]:
        return "selective"
    return "reentrant" if effective["use_reentrant"] else "full"


def _dtype(effective: Effective) -> Value:
    return str(effective["dtype"]).partition("+")[0]  # the base's; adapters have their own


def _packing(effective: Effective) -> Value:
    return str(effective["packing_strategy"]) if effective["packing"] else "none"


#: How the choice of a knob is read from the values in effect; a value that was not read back is
#: absent, and so is the knob.
READ: Mapping[str, Callable[[Effective], Value]] = {
    **{
        name: _plain(name)
        for name in (
            "padding_free",
            "pad_to_multiple_of",
            "activation_offloading",
            "optim",
            "attn_implementation",
            "precompute_ref_log_probs",
            "use_liger_kernel",
            "dataloader_num_workers",
        )
    },
    "gradient_checkpointing": _checkpointing,
    "dtype": _dtype,
    "packing": _packing,
}


def used_instead(candidate: Candidate, effective: Effective) -> dict[str, Value]:
    """Return, by knob, what was in effect where that is another choice than was asked for.

    Args:
        candidate: what was asked for; null leaves the choice to TRL.
        effective: the values in effect, by TRL's names.
    """
    found: dict[str, Value] = {}
    for name, asked in candidate.knobs.items():
        if name not in READ or asked is None:
            continue
        try:
            used = READ[name](effective)
        except KeyError:
            continue
        if used != asked and BY_NAME[name].accepts(used):
            found[name] = used
    return found


def words(candidate: Candidate, used: Mapping[str, Value]) -> str:
    """Return what had no effect, as a sentence without its end; empty when everything had."""
    return "; ".join(
        f"{name} {shown(candidate.get(name))} had no effect: {shown(value)} was used"
        for name, value in used.items()
    )
