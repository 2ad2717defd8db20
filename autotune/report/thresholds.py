"""The small language in which CI says how much worse is too much: ``peak_memory.process:+3%``.

Parses and holds thresholds; measures and compares nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from autotune.core.errors import BadInput, nearest
from autotune.core.units import parse_bytes

Sign = Literal["+", "-"]
#: Direction in which each quantity gets worse.
METRICS: dict[str, Sign] = {"peak_memory": "+", "throughput": "-", "step_time": "+"}
#: Parts of ``peak_memory`` and the number they stand for; without a part it is the largest number
#: the process is charged with.
MEMORY_PARTS = {
    "allocated": "allocated_bytes",
    "reserved": "reserved_bytes",
    "process": "process_bytes",
    "device": "device_used_bytes",
}
#: What ``autotune compare`` checks when it is not told.
DEFAULT_THRESHOLDS = ("peak_memory:+3%", "throughput:-5%")
_FORM = re.compile(r"^\s*([a-z_]+)(?:\.([a-z_]+))?\s*:\s*([+-])\s*([0-9.]+)\s*([A-Za-z%]*)\s*$")
_SECONDS = {"s": 1.0, "ms": 1e-3}
_EXAMPLES = "peak_memory:+3%, peak_memory.process:+200MiB, throughput:-5% or step_time:+0.1s"


@dataclass(frozen=True)
class Threshold:
    """Say how far one quantity may get worse.

    Args:
        metric: key of `METRICS`.
        part: key of `MEMORY_PARTS`, None for the deciding peak or another metric.
        ratio: change allowed as a share of the baseline; None when ``amount`` is given.
        amount: change allowed in bytes or seconds; None when ``ratio`` is given.
        text: as the user wrote it.
    """

    metric: str
    part: str | None
    ratio: float | None
    amount: float | None
    text: str

    @property
    def name(self) -> str:
        """``peak_memory.process`` or ``throughput``."""
        return self.metric if self.part is None else f"{self.metric}.{self.part}"

    def allowed_change(self, baseline: float) -> float:
        """Return the change allowed against a baseline value, always positive."""
        return self.amount if self.amount is not None else (self.ratio or 0.0) * baseline


def parse_threshold(text: str) -> Threshold:
    """Read one threshold.

    Args:
        text: ``peak_memory[.allocated|.reserved|.process|.device]:+3%``, ``throughput:-5%`` or
            ``step_time:+0.1s``; memory also takes sizes, time also ``ms``.

    Raises:
        BadInput: the text is no threshold, or its direction would be an improvement.
    """
    match = _FORM.match(text)
    if match is None:
        raise BadInput(f"threshold is {text!r}, expected for example {_EXAMPLES}.")
    metric, part, sign, number, unit = match.groups()
    if metric not in METRICS:
        raise BadInput(
            f"threshold {text!r} names {metric!r}{nearest(metric, list(METRICS))}.",
            f"Known are {', '.join(METRICS)}.",
        )
    if part is not None and (metric != "peak_memory" or part not in MEMORY_PARTS):
        raise BadInput(
            f"threshold {text!r} names a part {part!r}{nearest(part, list(MEMORY_PARTS))}.",
            f"Only peak_memory has parts: {', '.join(MEMORY_PARTS)}.",
        )
    if sign != METRICS[metric]:
        raise BadInput(
            f"threshold {text!r} has the sign of an improvement.",
            f"Write {metric}:{METRICS[metric]}{number}{unit}.",
        )
    ratio, amount = _size(text, metric, number, unit)
    return Threshold(metric, part, ratio, amount, text.strip())


def parse_thresholds(texts: Iterable[str]) -> tuple[Threshold, ...]:
    """Read thresholds, none given meaning `DEFAULT_THRESHOLDS`.

    Raises:
        BadInput: a text is no threshold, or two are for the same quantity.
    """
    given = [parse_threshold(text) for text in texts]
    names = [threshold.name for threshold in given]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"{name} has {names.count(name)} thresholds, expected one.")
    return tuple(given) or tuple(parse_threshold(text) for text in DEFAULT_THRESHOLDS)


def _size(text: str, metric: str, number: str, unit: str) -> tuple[float | None, float | None]:
    try:
        value = float(number)
    except ValueError:
        raise BadInput(f"threshold {text!r} has no number: {number!r}.") from None
    if unit == "%" and METRICS[metric] == "-" and value >= 100.0:
        raise BadInput(
            f"threshold {text!r} is never reached: nothing falls by more than 100 %.",
            f"Write less, for example {metric}:-5%.",
        )
    if unit == "%":
        return value / 100.0, None
    if metric == "step_time" and unit in _SECONDS:
        return None, value * _SECONDS[unit]
    if metric == "peak_memory" and unit:
        return None, float(parse_bytes(f"{number}{unit}", f"threshold {text!r}"))
    expected = {"peak_memory": "% or a size such as 200MiB", "throughput": "%", "step_time": "%, s"}
    raise BadInput(f"threshold {text!r} has the unit {unit!r}, expected {expected[metric]}.")
