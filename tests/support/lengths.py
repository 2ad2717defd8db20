"""A length report for tests of what shows one; made by the real arithmetic from drawn lengths."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune.core.advice import advise
from autotune.core.cut_words import Setting
from autotune.core.job import Trainer
from autotune.core.length_report import LengthReport
from autotune.core.length_table import histogram_of, length_at, marked, sensible_lengths
from autotune.core.profile import LengthHistogram
from tests.support.facts import lengths_of
from tests.support.results import profile


def length_report(trainer: Trainer = Trainer.SFT, **changes: Any) -> LengthReport:
    """Return the report of 900 skewed rows of which a third of every row is a prompt."""
    drawn = np.random.default_rng(0).lognormal(5.5, 1.0, 900).clip(6, 6000).astype(np.int64)
    lengths = lengths_of(drawn.tolist(), (drawn - drawn // 3).tolist())
    setting = Setting(given=False, value=None, default=1024)
    wanted = sensible_lengths(lengths, setting, 4096, 0.99)
    table = [length_at(lengths, n, trainer) for n in wanted]
    advice = advise(table, lengths, setting, trainer, 4096, 0.99)
    known: dict[str, Any] = {
        "created": "2026-01-02T03:04:05+00:00",
        "autotune_version": "0.0.0",
        "trainer": trainer,
        "model": "acme/tiny",
        "dataset": "/data/rows.jsonl",
        "profile": profile(
            rows_given=900,
            rows_used=900,
            tokens=int(drawn.sum()),
            label_tokens=lengths.labels_kept(None),
            quantiles=lengths.quantiles(),
            longest_row=lengths.longest_row,
            length_histogram=LengthHistogram.of(lengths.tokens),
        ),
        "min_retention_ratio": 0.99,
        "histogram": histogram_of(lengths),
        "lengths": marked(table, setting, advice.max_length, 4096),
        "advice": advice,
        "notices": ("Rows: conversations to role/content messages.",),
    }
    return LengthReport(**(known | changes))
