"""Runs the micro-benchmarks on all ranks, fits the constants of both cost models, and writes a SKU.

TorchRec's constants are bandwidths and factors. The hardware costs' are latencies and efficiencies,
which are shares of those bandwidths.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from fastplan.measure.cases import Case, Sizes, cases
from fastplan.measure.constants import Calibration, Constant, Point, calibration, slowest_median
from fastplan.measure.cost_constants import MEASURED, CostCalibration, cost_lender, fit_costs
from fastplan.measure.hosts import format_rate
from fastplan.measure.launch import run_group
from fastplan.measure.settings import (
    LOGS,
    POINTS,
    LaunchSettings,
    MeasureError,
    WorkerConfig,
)
from fastplan.model.hardware_costs import COST_GROUPS, CostFigure
from fastplan.spec.hardware import Hardware, find_hardware, topology_arguments


class Calibrated(NamedTuple):
    """Constants, the measurements behind them, and the names of the devices."""

    found: Calibration
    points: tuple[Point, ...]
    devices: tuple[str, ...]


def calibrate(
    group: LaunchSettings,
    sizes: Sizes,
    *,
    repetitions: int = 7,
    progress: Callable[[int], None] = lambda done: None,
) -> Calibrated | None:
    """Runs every micro-benchmark on a group.

    Args:
        group: The processes to start.
        sizes: The sizes to benchmark.
        repetitions: Timed repetitions of each benchmark.
        progress: Called with the number of finished benchmarks.

    Returns:
        The constants; None on hosts without rank 0.

    Raises:
        MeasureError: A rank failed.
    """
    every = cases(group.device, group.ranks, group.ranks_per_host, sizes)
    with tempfile.TemporaryDirectory(prefix="fastplan-calibrate-") as name:
        folder = Path(name)
        (folder / POINTS).touch()
        WorkerConfig(
            task="calibrate",
            device=group.device,
            timeout=group.timeout,
            settings={"repetitions": repetitions, "cases": [case.json() for case in every]},
            labels=tuple(case.kind for case in every),
        ).write(folder)

        def watch() -> None:
            progress((folder / POINTS).read_bytes().count(b"\n"))

        failure = run_group(folder, group, watch)
        if failure is not None:
            labels = tuple(case.kind for case in every)
            raise MeasureError(f"{failure.text(labels)}{_last_log_line(folder)}")
        lines = [json.loads(line) for line in (folder / POINTS).read_text().splitlines()]
    if not lines and not group.on_this_machine:
        return None
    if not lines:
        raise MeasureError("the ranks ended without a result")
    points = tuple(_point(line) for line in lines)
    devices = sorted({rank["device"] for line in lines for rank in line["ranks"]})
    return Calibrated(
        calibration(points, group.device, group.ranks, group.hosts), points, tuple(devices)
    )


def _point(line: dict[str, Any]) -> Point:
    ranks = [rank["seconds"] for rank in line["ranks"]]
    return Point(Case(**line["case"]), slowest_median(ranks))


def _last_log_line(folder: Path) -> str:
    """Returns the last line of torchrun's log, because the folder is deleted."""
    log = folder / LOGS / "torchrun.log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return f" ({lines[-1].strip()})" if lines else ""


@dataclass(frozen=True, kw_only=True)
class CalibratedSku:
    """What was measured, on top of a known SKU for all the rest."""

    name: str
    like: str  # a name or file of hardware
    group: LaunchSettings
    calibrated: Calibrated
    host_memory: int  # bytes
    device_memory: int | None  # None on CPUs

    @property
    def base(self) -> Hardware:
        return find_hardware(self.like)

    @property
    def sizes(self) -> dict[str, int]:
        """Memory of a rank, by figure."""
        sizes = {"ddr": self.host_memory // self.group.ranks_per_machine}
        return sizes if self.device_memory is None else {"hbm": self.device_memory, **sizes}

    @property
    def figures(self) -> dict[str, float]:
        """The constants with four digits, as the file has them."""
        return {
            name: float(f"{constant.value:.4g}")
            for name, constant in self.calibrated.found.constants.items()
        }

    @property
    def hardware(self) -> Hardware:
        """The SKU as a plan sees it."""
        return replace(self._without_costs, costs=self.costs.figures)

    @cached_property
    def costs(self) -> CostCalibration:
        """The constants of the hardware costs, with four digits, as the file has them."""
        lender = cost_lender(self.base, self.calibrated.devices)
        own = self._without_costs
        found = fit_costs(self.calibrated.points, own, self.group.ranks, lender)
        return replace(
            found,
            figures={name: _rounded(figure, self.name) for name, figure in found.figures.items()},
        )

    @property
    def _without_costs(self) -> Hardware:
        own: dict[str, Any] = {**self.sizes, **self.figures}
        return replace(
            self.base,
            name=self.name,
            device=self.group.device,
            ranks_per_host=self.group.ranks_per_host,
            costs={},
            **own,
        )

    @property
    def topology(self) -> dict[str, Any]:
        """Keyword arguments for TorchRec's Topology."""
        return topology_arguments(self.hardware, self.group.ranks, self.group.ranks_per_host)


def _rounded(figure: CostFigure, sku: str) -> CostFigure:
    value, low, high = (
        None if number is None else float(f"{number:.4g}")
        for number in (figure.value, figure.low, figure.high)
    )
    assert value is not None
    return replace(figure, value=value, low=low, high=high, sku=sku)


def sku_yaml(sku: CalibratedSku) -> str:
    """The file, which `--sku` and `find_hardware` read."""
    group, found = sku.group, sku.calibrated.found
    hosts = "one host" if group.hosts == 1 else f"{group.hosts} hosts"
    if group.link is not None:
        hosts = f"{group.hosts} emulated hosts with links of {format_rate(group.link)}"
    where = f"{group.ranks} ranks on {hosts} of {', '.join(sku.calibrated.devices)}"
    date = time.strftime("%Y-%m-%d", time.gmtime())
    lines = [
        f"# Measured by `fastplan calibrate` on {date}.",
        f"name: {_quoted(sku.name)}",
        f"like: {_quoted(sku.like)}  # for what is not given here",
        f"about: {_quoted(f'calibrated on {where}')}",
        f"device: {group.device}",
        f"ranks_per_host: {group.ranks_per_host}",
        *(f"{name}: {size}" for name, size in sku.sizes.items()),
    ]
    for name, figure in sku.figures.items():
        constant = found.constants[name]
        lines.append(f"{name}: {figure_text(name, figure)}  # {range_text(constant)}")
    lines += [f"# not measured: {name}: {reason}" for name, reason in found.left_out.items()]
    sources = dict.fromkeys(sku.sizes, "as the system reports it")
    sources |= {name: constant.source for name, constant in found.constants.items()}
    lines.append("sources:")
    lines += [
        f"  {name}: {_quoted(f'measured {date}: {source}')}" for name, source in sources.items()
    ]
    lines += _cost_lines(sku, date)
    return "\n".join(lines) + "\n"


def _cost_lines(sku: CalibratedSku, date: str) -> Iterator[str]:
    yield "# Constants of the hardware costs. Efficiencies are shares of the bandwidths above."
    yield "costs:"
    for group, names in COST_GROUPS.items():
        yield f"  {group}:"
        for name in names:
            yield f"    {name}: {_cost(sku.costs.figures[f'{group}.{name}'], date)}"


def _cost(figure: CostFigure, date: str) -> str:
    """A constant as a mapping on one line; JSON is YAML."""
    source = figure.source
    if source.startswith(MEASURED):
        source = source.replace(MEASURED, f"{MEASURED} {date}", 1)
    fields = {"value": figure.value, "low": figure.low, "high": figure.high, "n": figure.n}
    texts = {"source": source, "note": figure.note or None}
    return json.dumps({k: v for k, v in {**fields, **texts}.items() if v is not None})


def figure_text(name: str, value: float) -> str:
    """A bandwidth of bytes per millisecond, or a plain factor, as files have it."""
    return f"{value / 1e6:.4g}GB/s" if name.endswith("_bw") else f"{value:.4g}"


def range_text(constant: Constant) -> str:
    """Where a constant lies 19 times out of 20."""
    scale = 1e6 if constant.name.endswith("_bw") else 1.0
    return f"{constant.low / scale:.3g} to {constant.high / scale:.3g}"


def _quoted(text: str) -> str:
    """A text that YAML takes for one, whatever is in it."""
    return json.dumps(text)
