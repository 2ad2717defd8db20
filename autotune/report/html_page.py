"""A result as one self-contained HTML page: readable offline, on a phone, in light and in dark.

Everything from outside goes through autoescaping or JSON; a content-security policy that names the
page's own scripts by their hash keeps anything else from running. Reaches nothing on the network.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from autotune.core.result import Result
from autotune.report import palette
from autotune.report.charts import charts
from autotune.report.page_model import page_values
from autotune.report.privacy import public

TEMPLATES = Path(__file__).parent / "templates"
#: plotly.js "basic" (points, lines, bars, pies), MIT; licence in templates/LICENSE.plotly.
PLOTLY = "plotly-basic-4.1.1.min.js"


def render(result: Result) -> str:
    """Write the page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    shown = public(result)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made = charts(shown)
    scripts = [_read(PLOTLY), _read("page.js")] if made else [_read("page.js")]
    values = page_values(shown) | {
        "charts": made,
        "chart_data": Markup(_json({chart.name: chart.figure for chart in made})),
        "dark_colours": Markup(_json(palette.DARK)),
        "style": Markup(_style()),
        "scripts": [Markup(script) for script in scripts],
        "policy": _policy(scripts),
    }
    return environment.get_template("page.html.j2").render(values) + "\n"


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
