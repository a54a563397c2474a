"""Renders self-contained HTML pages: they fetch nothing, and run only their own script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fastplan.report.terminal import escape_name


def render_page(
    template: str, *, styles: Sequence[str], scripts: Sequence[str] = (), **context: Any
) -> str:
    """Renders a template of `fastplan/report/templates`.

    Every value in the template is escaped, and characters that are invisible or move other text are
    shown as escapes. The filter `lines` keeps the ends of lines. Values of type `markupsafe.Markup`
    are inserted unchanged.

    Args:
        template: The file name of a template that extends `page.html`.
        styles: File names in `fastplan/report/assets`, which are inserted into the page.
        scripts: The same for scripts, which run after the page is read.
        **context: The values of the template, `title` among them.

    Returns:
        The page. Its content security policy allows only these styles and scripts.
    """
    style = _assets(styles)
    script = f'"use strict";\n(() => {{\n{_assets(scripts)}}})();\n' if scripts else None
    page = _environment().get_template(template)
    return page.render(
        policy=_policy(style, script),
        style=Markup(style),
        script=None if script is None else Markup(script),
        **context,
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("fastplan.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: escape_name(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["lines"] = _lines
    return environment


def _lines(text: str) -> Markup:
    """Returns a text with its line ends, which are escaped in any other value."""
    return Markup("\n").join(map(escape_name, text.split("\n")))


def _assets(names: Sequence[str]) -> str:
    folder = files("fastplan.report").joinpath("assets")
    return "\n".join(folder.joinpath(name).read_text("utf-8") for name in names)


def _policy(style: str, script: str | None) -> str:
    """Allows this page's style and script, and no network."""
    scripts = "" if script is None else f"script-src {_source(script)}; "
    return (
        f"default-src 'none'; {scripts}style-src {_source(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _source(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
