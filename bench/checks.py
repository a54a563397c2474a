"""Figures derived from the planning benchmark's cells, each only if its cells were run."""

from typing import Any

Cell = dict[str, Any]


def derived(cells: list[Cell]) -> list[dict[str, Any]]:
    """A list of {text, value}; every value is a quotient of two measured times."""
    found = {(cell["tables"], cell["ranks"]): cell for cell in cells}
    checks = [
        _check(
            f"TorchRec {tables} x {ranks} relative to fastplan {tables} x {ranks}",
            _torchrec(found.get((tables, ranks))),
            _fastplan(found.get((tables, ranks))),
        )
        for tables, ranks in ((100, 16), (100, 64))
    ]
    checks += [
        _check(
            f"fastplan {tables} x {ranks} relative to TorchRec 26 x 8",
            _fastplan(found.get((tables, ranks))),
            _torchrec(found.get((26, 8))),
        )
        for tables, ranks in ((1000, 64), (1000, 1024))
    ]
    checks.append(
        _check(
            "fastplan's search at 1000 tables, 1024 ranks relative to 64",
            _search(found.get((1000, 1024))),
            _search(found.get((1000, 64))),
        )
    )
    return [check for check in checks if check is not None]


def _check(text: str, value: float | None, reference: float | None) -> dict[str, Any] | None:
    if not value or not reference:
        return None
    return {"text": text, "value": value / reference}


def _torchrec(cell: Cell | None) -> float | None:
    return cell["torchrec"]["seconds"] if cell else None


def _fastplan(cell: Cell | None) -> float | None:
    return cell["fastplan"]["median_seconds"] if cell else None


def _search(cell: Cell | None) -> float | None:
    return cell["fastplan"]["phases"].get("search") if cell else None
