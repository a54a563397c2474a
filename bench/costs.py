"""How well the hardware costs estimate published times, and the fit of their constants.

python -m bench.costs        compares estimates with all times of bench/measured
python -m bench.costs fit    fits the constants, and writes them to fastplan/spec/skus.json

Three estimates by the hardware costs are compared: with the shipped constants; with constants that
are fitted without the configuration (a curve of a collective, or a shape of a lookup); and with
those of another GPU, fitted without this one.
"""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fastplan.spec
from bench.arguments import new_parser
from bench.costs_file import skus_text
from bench.costs_fit import LENDERS, ROOT, SAME, SMALL, CostFits, cost_sections
from bench.costs_plot import draw
from bench.costs_table import Measured, measured
from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown
from bench.text import table
from fastplan.costs.fit import Fit
from fastplan.measure.record_estimates import estimate_records
from fastplan.measure.record_work import ExchangeWork
from fastplan.model.hardware_costs import CONSTANTS

FILE = "costs.json"
SKUS = Path(fastplan.spec.__file__).with_name("skus.json")
MESH = ("mi300x", "mi355x")
ESTIMATES = ("torchrec", "datasheet", "hardware", "left_out", "other_gpu")
TITLES = ("TorchRec's constants", "datasheet", "hardware costs", "left out", "other GPU")

Test = Callable[[Measured], bool]


def main() -> int:
    parser = new_parser("bench.costs", __doc__)
    parser.add_argument("action", nargs="?", choices=("fit",), help="fit the shipped constants")
    add_arguments(parser, FILE)
    arguments = parser.parse_args()
    if arguments.action == "fit":
        SKUS.write_text(fitted_skus(SKUS.read_text()))
        print(f"{_fit_report()}\n\nwritten: {SKUS.name}")
        return 0
    return measured_or_shown(
        arguments, FILE, lambda: _compare(arguments.output), report, lambda result: False
    )


def fitted_skus(text: str) -> str:
    """Returns the SKU file with newly fitted constants."""
    content = json.loads(text)
    for sku, section in cost_sections(CostFits(measured(), intervals=True)).items():
        content["skus"][sku]["costs"] = section
    return skus_text(content)


def _fit_report() -> str:
    """What each SKU has of its own, and what is thin about it."""
    rows = []
    for sku, fields in json.loads(SKUS.read_text())["skus"].items():
        groups = fields.get("costs", {})
        figures = [figure for group in groups.values() for figure in group.values()]
        fitted = sum(figure["n"] > 0 for figure in figures)
        lender = fields.get("costs_from") or fields.get("like", "")
        rest = f"carried over from {lender}" if len(figures) < len(CONSTANTS) else "assumed"
        notes = dict.fromkeys(figure["note"] for figure in figures if "note" in figure)
        if sku in LENDERS:
            rows.append([sku, str(fitted), rest, "; ".join(notes)])
    return table(["SKU", "fitted", "the rest is", "notes"], rows, left=(0, 2, 3))


def _compare(folder: Path) -> dict[str, Any]:
    every = measured()
    ratios: dict[str, list[float | None]] = {}
    estimated = estimate_records([m.record for m in every])
    for name in ESTIMATES[:3]:
        ratios[name] = [each.ratio(name) for each in estimated]
    known: dict[tuple[object, ...], Fit] = {}
    with Progress("fits without one configuration"):
        ratios["left_out"] = _left_out(every, known)
    with Progress("fits without one GPU"):
        ratios["other_gpu"] = _other_gpu(every, known)
    draw(every, estimated, folder / "costs.svg")
    rows = []
    for name, test in rows_of():
        own = [i for i, m in enumerate(every) if test(m)]
        cells = {each: _summary([ratios[each][i] for i in own]) for each in ESTIMATES}
        rows.append({"name": name, "n": len(own), **cells})
    return {"rows": rows}


def _left_out(every: Sequence[Measured], known: dict[tuple[object, ...], Fit]) -> list[Any]:
    found: dict[int, float] = {}
    for name in dict.fromkeys(m.configuration for m in every):
        fits = CostFits([m for m in every if m.configuration != name], known)
        own = [m for m in every if m.configuration == name]
        for each, ms in zip(own, fits.estimates(own), strict=True):
            found[id(each)] = max(ms / each.ms, each.ms / ms)
    return [found[id(m)] for m in every]


def _other_gpu(every: Sequence[Measured], known: dict[tuple[object, ...], Fit]) -> list[Any]:
    found: dict[int, float] = {}
    for sku in LENDERS:
        owned = {sku, *(other for other, owner in SAME.items() if owner == sku)}
        fits = CostFits([m for m in every if m.sku not in owned], known)
        # The root is predicted by b200. A mesh has no other GPU that could predict it.
        lender = "b200" if sku == ROOT else None
        own = [m for m in every if m.sku in owned]
        own = [m for m in own if sku != "mi355x" or not m.part.startswith("domain_")]
        if lender is not None:
            own = [m for m in own if isinstance(m.work, ExchangeWork)]
        for each, ms in zip(own, fits.estimates(own, lender), strict=True):
            found[id(each)] = max(ms / each.ms, each.ms / ms)
    return [found.get(id(m)) for m in every]


def rows_of() -> list[tuple[str, Test]]:
    """The rows of the table: names, and which times belong to them."""
    rows: list[tuple[str, Test]] = []
    passes = {"forward": "lookup_forward", "backward": "lookup_backward", "both": "lookup_fwd_bwd"}
    for part, title in (("hbm", "HBM"), ("uvm", "UVM"), ("caching", "UVM caching")):
        for words, kind in passes.items():
            rows.append((f"H100 {title}, {words}", _lookup("h100", part, kind)))
    rows.append(("H200 lookups", lambda m: m.sku == "h200" and not _is_exchange(m)))
    for name in ("all_to_all", "reduce_scatter", "all_gather", "all_reduce"):
        rows.append((f"NVLink {name}, 1 MB and more", _exchange(f"domain_{name}", True, False)))
    rows.append(("NVLink, 1 MB and more", _exchange("domain_", True, False)))
    rows.append(("NVLink, below 1 MB", _exchange("domain_", False, False)))
    rows.append(("Infinity Fabric, 1 MB and more", _exchange("domain_", True, True)))
    rows.append(("Infinity Fabric, below 1 MB", _exchange("domain_", False, True)))
    rows.append(("across hosts, all_to_all", lambda m: m.part == "network_all_to_all"))
    rows.append(
        (
            "across hosts, reduce_scatter and all_gather",
            lambda m: m.part in ("network_reduce_scatter", "network_all_gather"),
        )
    )
    rows.append(("across hosts, all_reduce", lambda m: m.part == "network_all_reduce"))
    return [
        *((name, _reliable(test)) for name, test in rows),
        ("V100 lookups, not fitted", lambda m: not m.is_reliable and not _is_exchange(m)),
        ("across hosts, all_to_all, fitted or not", lambda m: m.part == "network_all_to_all"),
        (
            "across hosts, all_reduce, not fitted",
            lambda m: not m.is_reliable and m.part == "network_all_reduce",
        ),
    ]


def _reliable(test: Test) -> Test:
    return lambda m: m.is_reliable and test(m)


def _is_exchange(m: Measured) -> bool:
    return isinstance(m.work, ExchangeWork)


def _lookup(sku: str, part: str, kind: str) -> Test:
    return lambda m: m.sku == sku and m.part == part and m.record.kind == kind


def _exchange(part: str, is_large: bool, is_mesh: bool) -> Test:
    def test(m: Measured) -> bool:
        if not isinstance(m.work, ExchangeWork) or not m.part.startswith(part):
            return False
        return (m.work.bytes >= SMALL) == is_large and (m.sku in MESH) == is_mesh

    return test


def _summary(ratios: Iterable[float | None]) -> dict[str, float] | None:
    found = [ratio for ratio in ratios if ratio is not None]
    if not found:
        return None
    return {
        "n": len(found),
        "median": round(float(np.median(found)), 3),
        "p90": round(float(np.quantile(found, 0.9)), 3),
        "worst": round(max(found), 3),
    }


def report(result: dict[str, Any]) -> str:
    """The printed table: how many times an estimate is too long or too short."""
    cells = [
        [row["name"], str(row["n"]), *(_cell(row, each) for each in ESTIMATES)]
        for row in result["rows"]
    ]
    return (
        f"{table(['times', 'n', *TITLES], cells)}\n\n"
        "estimate / measured or its inverse: median / 90th percentile / worst"
    )


def _cell(row: dict[str, Any], estimate: str) -> str:
    return cell(row, estimate, ("median", "p90", "worst"))


def cell(row: dict[str, Any], estimate: str, parts: Sequence[str]) -> str:
    """Returns a cell of the table. It has an n if some times of the row have no such estimate."""
    summary = row[estimate]
    if summary is None:
        return "-"
    values = [summary[part] for part in parts]
    shown = " / ".join(f"{value:.2f}" if value < 10 else f"{value:,.0f}" for value in values)
    return shown if summary["n"] == row["n"] else f"{shown} (n = {summary['n']})"


if __name__ == "__main__":
    sys.exit(main())
