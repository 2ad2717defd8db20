"""The stages of a probe that memory is read after: their names, and what each is in words."""

from __future__ import annotations

from autotune.core.outcome import Phase

LOAD, PRECOMPUTE, MEMORY = "load", "precompute", "memory"
TIMED, MIXED, SAVE, EVAL = "timed", "mixed", "save", "eval"

#: Completes "its peak, ...".
IN_WORDS = {
    LOAD: "while loading",
    PRECOMPUTE: "in the pass over the reference",
    MEMORY: "in the worst batch",
    TIMED: "over batches of mixed lengths",
    MIXED: "over batches of mixed lengths",
    SAVE: "while saving a checkpoint",
    EVAL: "in evaluation",
}
#: What a probe was doing in a stage; in the others it was training.
PHASES = {LOAD: Phase.LOAD, SAVE: Phase.SAVE, EVAL: Phase.EVAL}
