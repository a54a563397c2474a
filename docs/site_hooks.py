"""Hooks of the documentation site: pages and files outside of docs/, and the API reference.

The pages are written for readers of the repository, so they link to files beside docs/. The site
gets a copy of each file that a page links to, and the links point to the copy. A link to a file
that does not exist stays as it is, and the strict build names it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
# Pages of the site that stand outside of docs/, by their path in the repository.
PAGES = {
    "README.md": "index.md",
    "bench/measured/README.md": "measured.md",
    "examples/README.md": "examples.md",
    "SECURITY.md": "SECURITY.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
}
LINK = re.compile(r"(\]\()([^)\s:#]+)(#[^)\s]*)?(\))")
# A line of docs/api.md: the kind and the name of what it lists.
LISTED = re.compile(r"^- `(?:class )?(fastplan[\w.]*).*$", re.M)


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages outside of docs/, and every file that a page links to."""
    for path, page in PAGES.items():
        files.append(_file(config, page, ROOT / path))
    sources = [*files.documentation_pages()]
    for page in sources:
        for path in sorted(set(_linked(page))):
            if files.get_file_from_path(_copy(path)) is None:
                files.append(_file(config, _copy(path), path))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Points links at the site's copies, and lists the API by its docstrings."""
    if page.file.src_uri == "api.md":
        markdown = LISTED.sub(lambda found: f"::: {found[1]}", markdown)
    return LINK.sub(lambda link: _on_site(link, _folder(page.file)), markdown)


def _file(config: Any, uri: str, source: Path) -> File:
    return File.generated(config, uri, abs_src_path=str(source))


def _folder(page: File) -> Path:
    """Returns the folder that the links of a page start from."""
    outside = {page: path for path, page in PAGES.items()}
    return (ROOT / outside.get(page.src_uri, f"docs/{page.src_uri}")).parent


def _linked(page: File) -> list[Path]:
    """Returns the files outside of docs/ that a page links to, but for the pages of the site."""
    found = (_target(link, _folder(page)) for link in LINK.finditer(page.content_string))
    return [path for path in found if path and path.is_file() and not _is_page(path)]


def _target(link: re.Match[str], folder: Path) -> Path | None:
    path = (folder / link[2]).resolve()
    return path if path.is_relative_to(ROOT) else None


def _is_page(path: Path) -> bool:
    inside = path.relative_to(ROOT).as_posix()
    return inside in PAGES or (path.parent == ROOT / "docs" and path.suffix == ".md")


def _copy(path: Path) -> str:
    return f"files/{path.relative_to(ROOT).as_posix()}"


def _on_site(link: re.Match[str], folder: Path) -> str:
    path = _target(link, folder)
    if path is None or not path.exists():
        return link[0]
    if path.is_dir():
        # A folder has no page: its name alone stays.
        return "]"
    inside = path.relative_to(ROOT).as_posix()
    to = PAGES.get(inside) or (path.name if _is_page(path) else _copy(path))
    return f"{link[1]}{to}{link[3] or ''}{link[4]}"
