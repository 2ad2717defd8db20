"""What the device's clocks did while a candidate was timed, in words; says nothing of causes."""

from __future__ import annotations

from autotune.core.device_state import DeviceState
from autotune.core.result import TrialRecord


def state_of(trial: TrialRecord | None) -> DeviceState | None:
    """Return the state kept with a trial; None on a CPU and where nothing was timed."""
    measured = trial.report.measurement if trial is not None else None
    return measured.device_state if measured is not None else None


def clocks(trial: TrialRecord | None) -> str:
    """Return clocks and temperature of a trial in one line; empty where there are none."""
    state = state_of(trial)
    if state is None:
        return ""
    parts = []
    if state.sm_clock_mhz is not None:
        parts.append(f"{state.sm_clock_mhz} MHz (least {state.sm_clock_least_mhz})")
    if state.memory_clock_mhz is not None:
        parts.append(f"memory {state.memory_clock_mhz} MHz")
    if state.temperature_celsius is not None:
        parts.append(f"at most {state.temperature_celsius} \u00b0C")
    if state.held_back:
        parts.append(f"held back by {', '.join(state.held_back)}")
    return ", ".join(parts) or "; ".join(dict.fromkeys(state.absent.values()))
