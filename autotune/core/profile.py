"""What is known of the user's rows before any probe: a document the preparing child writes.

Lengths themselves are too many for a document; they lie beside it as ``lengths.npz``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from autotune.core.job import Frozen

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


#: Codes of the remark on what the config's ``max_length`` takes from the rows: TRL's own default,
#: or the user's.
IMPLICIT_CUT, OWN_CUT = "implicit-max-length", "own-max-length"


class Notice(Frozen):
    """One counted remark about the rows, e.g. ``3 of 400 assistant turns are empty``."""

    code: str
    message: str
    count: int | None = None


class LengthHistogram(Frozen):
    """Count rows by length, small enough for a document.

    Args:
        edges: token lengths between the bins, ascending, one more than there are bins; a bin
            holds its lower edge and not its upper one.
        rows: rows in each bin.
    """

    edges: tuple[int, ...]
    rows: tuple[int, ...]

    @classmethod
    def of(cls, tokens: NDArray[np.int64], bins: int = 60) -> LengthHistogram:
        """Count lengths into bins of about equal width that end with the longest row.

        Args:
            tokens: int64[n], tokens of every row, n at least 1.
            bins: most bins; fewer when there are fewer different lengths.
        """
        import numpy as np

        edges = np.unique(np.linspace(0, int(tokens.max()) + 1, bins + 1).round().astype(np.int64))
        counts, _ = np.histogram(tokens, bins=edges)
        return cls(edges=tuple(int(e) for e in edges), rows=tuple(int(c) for c in counts))


class DatasetProfile(Frozen):
    """Describe the prepared rows.

    Args:
        layout: what was recognised, e.g. ``messages``, ``text``, ``prompt-completion``.
        conversion: what was converted, in words, or None when rows go to TRL as they came.
        rows_given: rows in the split.
        rows_used: rows TRL trains on after its own preparation without truncation.
        tokens: total tokens of the rows used, uncut; of both sides of a preference row.
        label_tokens: tokens that are trained on, uncut.
        quantiles: token length at 0.5, 0.9, 0.95, 0.99 and 1.0, keyed by name.
        longest_row: index of the longest row, counted from 0 in the split as given.
        model_positions: longest sequence the model can take, None when it has no limit.
        vocabulary: rows of the model's input embedding.
        pad_token: the token used for padding and where it came from.
        notices: counted remarks.
        rows_dir: folder of the prepared rows (Arrow; columns ``input_ids`` and ``labels``).
        converted_file: Parquet file of the rows in a layout TRL reads, when they were converted.
        fingerprint: hash of rows, tokenizer and template; equal means the same tokens.
        length_histogram: rows by token length, uncut; None in documents of older versions.
    """

    schema_version: Literal[1] = 1
    layout: str
    conversion: str | None
    rows_given: int
    rows_used: int
    tokens: int
    label_tokens: int
    quantiles: dict[str, int]
    longest_row: int
    model_positions: int | None
    vocabulary: int
    pad_token: str
    notices: tuple[Notice, ...]
    rows_dir: str
    converted_file: str | None
    fingerprint: str
    length_histogram: LengthHistogram | None = None

    @property
    def rows_words(self) -> str:
        """How many of the rows given were read; KTO makes two of a preference row."""
        if self.rows_used > self.rows_given:
            return f"{self.rows_used:,} made of the {self.rows_given:,} given"
        return f"{self.rows_used:,} of {self.rows_given:,} read"
