"""Checks the pages of the documentation site in Chromium, on a phone and on a wide screen.

    python -m tests.site build/docs

A page has a language, one main heading, no skipped level of headings, alternative text for each
picture and a name for each link and button. It is not wider than the screen, and asks no other
server for anything.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.report.browser import Browser, find_browser

WIDTHS = (400, 1400)
# Each is a list of what is wrong: an expression that returns texts.
STRUCTURE = """(() => {
  const wrong = [];
  const all = (selector) => [...document.querySelectorAll(selector)];
  const named = (element) => (element.textContent.trim() || element.getAttribute("aria-label")
    || element.title || element.querySelector("img[alt]"));
  if (!document.documentElement.lang) wrong.push("the page has no language");
  const main = all("h1");
  if (main.length !== 1) wrong.push(`${main.length} main headings`);
  let level = 1;
  for (const heading of all("article h1, article h2, article h3, article h4, article h5")) {
    const own = Number(heading.tagName[1]);
    if (own > level + 1) wrong.push(`a level is skipped before "${heading.textContent}"`);
    level = own;
  }
  for (const image of all("article img"))
    if (!image.alt) wrong.push(`no alternative text: ${image.src}`);
  for (const element of all("a[href], button"))
    if (!named(element)) wrong.push(`no name: ${element.outerHTML.slice(0, 120)}`);
  for (const image of all("article img"))
    if (image.complete && !image.naturalWidth) wrong.push(`no picture: ${image.src}`);
  return wrong;
})()"""
LAYOUT = """(() => {
  const wide = document.documentElement.scrollWidth;
  if (wide <= window.innerWidth) return [];
  const first = [...document.querySelectorAll("article *")].find(
    (element) => element.getBoundingClientRect().right > window.innerWidth + 1
      && !element.closest(".md-typeset__scrollwrap, pre, .highlight"));
  return [`${wide} px wide: ${first ? first.outerHTML.slice(0, 120) : "outside of the article"}`];
})()"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.resolve()
    program = find_browser()
    if program is None:
        print("no Chromium is installed: the pages were not checked in a browser")
        return 0
    pages = sorted(path for path in folder.rglob("*.html") if path.name != "404.html")
    browser = Browser(program)
    try:
        found = [
            f"{page.relative_to(folder)}: {each}" for page in pages for each in wrong(browser, page)
        ]
    finally:
        browser.close()
    print(
        "\n".join(found) or f"{len(pages)} pages checked in Chromium at {WIDTHS} px: nothing wrong"
    )
    return int(bool(found) or not pages)


def wrong(browser: Browser, path: Path) -> Iterator[str]:
    """What is wrong with a page."""
    page = browser.open(path, width=WIDTHS[0])
    try:
        yield from page.run(STRUCTURE)
        for width in WIDTHS:
            page.resize(width)
            yield from (f"at {width} px, {each}" for each in page.run(LAYOUT))
        yield from (
            f"a request for {each}" for each in page.complaints() if each.startswith("http")
        )
    finally:
        page.close()


if __name__ == "__main__":
    sys.exit(main())
