"""Frozen values and pure functions every other package speaks in; no I/O, no torch."""
