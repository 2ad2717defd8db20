"""A length report as one self-contained HTML page, in the look of a result's page."""

from __future__ import annotations

from typing import Any

from autotune.core.length_report import LengthAt, LengthReport
from autotune.core.units import show_ratio
from autotune.report.page_shell import render_page
from autotune.report.privacy import clean
from autotune.report.profile_charts import profile_charts


def render(report: LengthReport) -> str:
    """Write the page, without secrets and home folders."""
    shown = LengthReport.model_validate(clean(report.model_dump(mode="json")))
    return render_page("lengths.html.j2", profile_charts(shown), _values(shown))


def _values(report: LengthReport) -> dict[str, Any]:
    rows = report.profile
    chosen = next(r for r in report.lengths if r.max_length == report.advice.max_length)
    longest = rows.quantiles.get("1.0", 0)
    quantiles = ", ".join(f"{float(q):.0%} {n:,}" for q, n in rows.quantiles.items())
    return {
        "title": f"autotune: lengths of {report.dataset}",
        "dataset": report.dataset,
        "model": report.model,
        "version": report.autotune_version,
        "headline": f"max_length {chosen.max_length} keeps "
        f"{show_ratio(chosen.label_tokens_kept_ratio)} of the label tokens",
        "under": [
            f"{rows.rows_used:,} rows",
            f"{rows.tokens:,} tokens",
            f"longest {longest:,}",
            f"trl {report.trainer.value}",
        ],
        "sentences": report.advice.sentences,
        "notices": report.notices,
        "cuts": _cuts(report),
        "padding": _padding(report),
        "packing": _packing(report),
        "rows": {
            "Layout": rows.layout,
            "Converted": rows.conversion or "no",
            "Rows": rows.rows_words,
            "Tokens": f"{rows.tokens:,}, of which {rows.label_tokens:,} are trained on",
            "Length at": quantiles,
            "Longest row": f"row {rows.longest_row + 1:,}, counted from 1",
            "Padding token": rows.pad_token,
            "Fingerprint": rows.fingerprint,
            "Looked at": report.created,
        },
    }


def _table(heads: list[str], rows: list[tuple[LengthAt, list[str]]], best: int) -> dict[str, Any]:
    return {
        "heads": heads,
        "rows": [{"cells": cells, "best": row.max_length == best} for row, cells in rows],
    }


def _cuts(report: LengthReport) -> dict[str, Any]:
    heads = ["max_length", "tokens kept", "label tokens kept", "rows cut", "left out", "is"]
    rows = [
        (
            row,
            [
                f"{row.max_length:,}",
                show_ratio(row.tokens_kept_ratio),
                show_ratio(row.label_tokens_kept_ratio),
                f"{row.rows_cut:,}",
                f"{row.rows_dropped:,}",
                ", ".join(row.marks),
            ],
        )
        for row in report.lengths
    ]
    return _table(heads, rows, report.advice.max_length)


def _padding(report: LengthReport) -> dict[str, Any]:
    batches = list(report.lengths[0].padding_ratio_by_batch)
    rows = [
        (
            row,
            [
                f"{row.max_length:,}",
                *(show_ratio(row.padding_ratio_by_batch[batch]) for batch in batches),
            ],
        )
        for row in report.lengths
    ]
    return _table(["max_length", *(f"batch {b}" for b in batches)], rows, report.advice.max_length)


def _packing(report: LengthReport) -> dict[str, Any]:
    heads = ["max_length", "strategy", "rows", "fill", "tokens kept", "documents per row"]
    heads += ["documents cut", "documents split", "label tokens kept in context"]
    rows = [
        (
            row,
            [
                f"{row.max_length:,}",
                packed.strategy,
                f"{packed.rows:,}",
                show_ratio(packed.fill_ratio),
                show_ratio(packed.tokens_kept_ratio),
                f"{packed.documents_per_row:.1f}",
                f"{packed.documents_cut:,}",
                f"{packed.documents_split:,}",
                _share(packed.label_tokens_kept_ratio),
            ],
        )
        for row in report.lengths
        for packed in row.packing
    ]
    return _table(heads, rows, report.advice.max_length)


def _share(ratio: float | None) -> str:
    return "" if ratio is None else show_ratio(ratio)
