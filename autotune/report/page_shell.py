"""What every page of this package shares: templates, style, and a policy that names its scripts.

Everything from outside goes through autoescaping or JSON; a content-security policy that names the
page's own scripts by their hash keeps anything else from running. Reaches nothing on the network.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.report import palette
from autotune.report.figure import Chart

TEMPLATES = Path(__file__).parent / "templates"
#: plotly.js "basic" (points, lines, bars, pies), MIT; licence in templates/LICENSE.plotly.
PLOTLY = "plotly-basic-4.1.1.min.js"


def render_page(
    template: str, charts: list[Chart], values: Mapping[str, Any], *, table: bool = False
) -> str:
    """Write a page.

    Args:
        template: its template's file name.
        charts: in the order they are shown; plotly is left out of a page without any.
        values: what the template shows besides.
        table: whether it holds a table (``table.html.j2``) to be sorted and filtered.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = [*((PLOTLY, "charts.js") if charts else ()), *(("table.js",) if table else ())]
    scripts = [_read(name) for name in names]
    shared = {
        "charts": charts,
        "chart_data": Markup(_json({chart.name: chart.figure for chart in charts})),
        "dark_colours": Markup(_json(palette.DARK)),
        "style": Markup(_style()),
        "scripts": [Markup(text) for text in scripts],
        "policy": _policy(scripts),
    }
    return environment.get_template(template).render({**values, **shared}) + "\n"


def _read(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _style() -> str:
    return (
        _read("page.css")
        .replace("/*LIGHT*/", palette.css_variables(dark=False))
        .replace("/*DARK*/", palette.css_variables(dark=True))
    )


def _json(value: Any) -> str:
    """Write JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(scripts: list[str]) -> str:
    hashes = []
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        hashes.append(f"'sha256-{digest}'")
    # plotly sets styles on elements and draws its mode bar from data: images.
    return (
        f"default-src 'none'; script-src {' '.join(hashes)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
