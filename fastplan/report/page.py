"""Self-contained HTML pages: nothing is fetched, and nothing but their own code runs."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from html import escape

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def html_page(title: str, style: str, body: Iterable[str], script: str | None = None) -> str:
    """A page of parts that are HTML already; its title is plain text.

    `script` runs after the body is read. The page's policy allows this style and script only.
    """
    parts = [*body, f"<script>{script}</script>"] if script is not None else body
    return _PAGE.format(
        policy=escape(_policy(style, script)),
        title=escape(title),
        style=style,
        body="\n".join(parts),
    )


def _policy(style: str, script: str | None) -> str:
    """Only this page's own style and script, and no network at all."""
    scripts = "" if script is None else f"script-src {_source(script)}; "
    return (
        f"default-src 'none'; {scripts}style-src {_source(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _source(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
