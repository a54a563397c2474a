"""Parses and checks a page without a browser."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

VOID = {"meta", "link", "input", "br", "img", "hr"}


class Page(HTMLParser):
    """Elements with their attributes, text by element, and whether all tags are closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.broken: list[str] = []
        self.feed(text)
        self.close()
        self.broken += self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.broken.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def text_of(self, tag: str) -> str:
        return "".join(text for own, text in self.texts if own == tag)

    @property
    def scripts(self) -> list[str]:
        return [text for own, text in self.texts if own == "script"]

    @property
    def data(self) -> Any:
        return json.loads(self.scripts[0])


def asset(name: str) -> str:
    return files("fastplan.report").joinpath("assets", name).read_text("utf-8")


def palettes() -> dict[str, dict[str, str]]:
    """The colours of both schemes by name."""
    light, dark = asset("base.css").split("@media screen and (prefers-color-scheme: dark)")
    found = re.compile(r"--([\w-]+): (#[0-9a-f]{6});")
    own = dict(found.findall(light))
    return {"light": own, "dark": {**own, **dict(found.findall(dark))}}


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)
