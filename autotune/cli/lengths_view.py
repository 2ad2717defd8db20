"""A length report for the terminal: advice on top, then the histogram and the tables."""

from __future__ import annotations

from itertools import pairwise

from rich.console import Console
from rich.table import Table
from rich.text import Text

from autotune.core.length_report import LengthAt, LengthReport
from autotune.core.units import show_ratio

#: Least columns the tables need; a pipe without a width gets this many at most for the bars.
_WIDEST = 100
#: What a mark is called where there is little room.
_SHORT = {"TRL's default": "TRL"}
#: Eighths of a character, for bars finer than a column.
_BLOCKS = " ▏▎▍▌▋▊▉█"


def print_lengths(report: LengthReport, console: Console) -> None:
    """Print a report; 60 columns are enough for it.

    Args:
        report: what was found.
        console: where to.
    """
    rows = report.profile
    console.print(
        f"{rows.rows_used:,} rows ({rows.layout}), {rows.tokens:,} tokens, "
        f"{rows.label_tokens:,} of them trained on",
        markup=False,
    )
    for sentence in report.advice.sentences:
        console.print(sentence, style="bold" if sentence == _chosen(report) else "", markup=False)
    for notice in report.notices:
        console.print(f"note: {notice}", markup=False)
    width = min(console.width, _WIDEST)
    for line in _histogram(report, width):
        console.print(line, soft_wrap=True)
    console.print()
    console.print(_quantiles(report), markup=False)
    for table in (_cuts(report), _padding(report), _packing(report)):
        if table is not None:
            console.print()
            console.print(table, crop=False)


def _chosen(report: LengthReport) -> str | None:
    sentences = report.advice.sentences
    return next((s for s in sentences if s.startswith(("Take ", "Keep "))), None)


def _histogram(report: LengthReport, width: int) -> list[Text]:
    edges, counts = report.histogram.edges, report.histogram.rows
    total, most = max(sum(counts), 1), max(counts, default=1)
    names = [f"{a:,} to {b - 1:,}" for a, b in pairwise(edges)]
    label = max(len(n) for n in [*names, "tokens in a row"])
    number = max(len(f"{c:,}") for c in [*counts, 1000])
    room = max(width - label - number - 12, 8)
    lines = [Text(), Text(f"{'tokens in a row':>{label}}  {'rows':>{number}}", style="bold")]
    for name, count in zip(names, counts, strict=True):
        eighths = round(count / max(most, 1) * room * 8)
        bar = _BLOCKS[8] * (eighths // 8) + _BLOCKS[eighths % 8].strip()
        if count and not bar:
            bar = _BLOCKS[1]
        line = Text(f"{name:>{label}}  {count:>{number},}  {count / total:>6.1%}  ")
        line.append(bar, style="blue")
        lines.append(line)
    return lines


def _quantiles(report: LengthReport) -> str:
    rows = report.profile
    parts = [f"{float(q):.0%} {n:,}" for q, n in rows.quantiles.items() if q != "1.0"]
    longest = rows.quantiles.get("1.0", 0)
    return (
        f"length quantiles: {', '.join(parts)}, longest {longest:,} (row {rows.longest_row + 1:,})"
    )


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.title_style = "italic"
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _cuts(report: LengthReport) -> Table:
    table = _table(
        "kept after a cut, unpacked", "max_length", "tokens", "labels", "cut", "left out"
    )
    table.add_column("", no_wrap=True)
    for row in report.lengths:
        table.add_row(
            f"{row.max_length}",
            show_ratio(row.tokens_kept_ratio),
            show_ratio(row.label_tokens_kept_ratio),
            f"{row.rows_cut:,}",
            f"{row.rows_dropped:,}",
            ", ".join(_SHORT.get(mark, mark) for mark in row.marks),
            style="bold" if "advised" in row.marks else "",
        )
    return table


def _padding(report: LengthReport) -> Table:
    batches = list(report.lengths[0].padding_ratio_by_batch)
    table = _table(
        "padding among what is computed, unpacked, by batch size",
        "max_length",
        *(str(b) for b in batches),
    )
    for row in report.lengths:
        shares = (f"{row.padding_ratio_by_batch[b]:.0%}" for b in batches)
        table.add_row(f"{row.max_length}", *shares, style=_style(row))
    return table


def _packing(report: LengthReport) -> Table | None:
    if not any(row.packing for row in report.lengths):
        return None
    table = _table(
        "packed", "max_length", "strategy", "rows", "fill", "docs/row", "split", "labels"
    )
    for row in report.lengths:
        for number, packed in enumerate(row.packing):
            table.add_row(
                f"{row.max_length}" if number == 0 else "",
                packed.strategy + (" *" if packed.mixes else ""),
                f"{packed.rows:,}",
                show_ratio(packed.fill_ratio),
                f"{packed.documents_per_row:.1f}",
                f"{packed.documents_split:,}",
                show_ratio(packed.label_tokens_kept_ratio or 0.0),
                style=_style(row),
            )
    table.caption = (
        "split: documents that go on in another row; labels: label tokens in one row with all "
        "that comes before them, of all there are; * documents can attend to one another"
    )
    table.caption_justify = "left"
    return table


def _style(row: LengthAt) -> str:
    return "bold" if "advised" in row.marks else ""
