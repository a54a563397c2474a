"""`fastplan skus`: lists named hardware."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastplan.cli.errors import OK, UsageError
from fastplan.cli.options import json_option, sku_names
from fastplan.cli.output import print_json, table
from fastplan.cli.parser import Args, argument, command, option

if TYPE_CHECKING:
    from fastplan.spec.hardware import Hardware

EXAMPLES = """
fastplan skus
fastplan skus h100
fastplan skus h100 --costs
fastplan skus my-cluster.yaml --json
"""


@command("skus", EXAMPLES)
@argument("[NAME]", "show one, with its sources", name="sku", complete=sku_names)
@option("--costs", "show the constants of its hardware costs, with intervals and sources")
@json_option()
def skus(args: Args) -> int:
    """Lists named hardware with its figures."""
    from fastplan.spec.hardware import find_hardware, known_hardware

    if args.costs and args.sku is None and not args.json:
        raise UsageError("--costs is for one SKU: `fastplan skus h100 --costs`")
    found = known_hardware() if args.sku is None else [find_hardware(args.sku)]
    if args.json:
        facts = _costs_json if args.costs else _figures_json
        print_json([facts(hardware) for hardware in found])
        return OK
    if args.costs:
        print("\n".join(_costs(found[0])))
        return OK
    lines = table(
        ("name", "device", "hbm", "ddr", "ranks/host", "pod", "hbm bw", "in host", "across"),
        (
            (
                hardware.name,
                hardware.device,
                _size(hardware.hbm),
                _size(hardware.ddr),
                str(hardware.ranks_per_host),
                "-" if hardware.pod_size is None else str(hardware.pod_size),
                _speed(hardware.hbm_mem_bw),
                _speed(hardware.intra_host_bw),
                _speed(hardware.inter_host_bw),
            )
            for hardware in found
        ),
        "<<>>>>>>>",
    )
    print("\n".join(lines))
    more = " More with `fastplan skus NAME`." if args.sku is None else ""
    print(f"\nMemory by rank; bandwidths in GB/s.{more}")
    if args.sku is not None:
        print()
        print("\n".join(_figures(found[0])))
    return OK


def _figures_json(hardware: Hardware) -> dict[str, Any]:
    from dataclasses import asdict

    facts = asdict(hardware)
    del facts["costs"]  # --costs shows them
    return facts


def _costs_json(hardware: Hardware) -> dict[str, Any]:
    from dataclasses import asdict

    from fastplan.model.hardware_costs import CONSTANTS_BY_NAME

    costs = {
        name: {"unit": CONSTANTS_BY_NAME[name].unit, **asdict(figure)}
        for name, figure in hardware.costs.items()
    }
    return {"name": hardware.name, "costs": costs}


def _costs(hardware: Hardware) -> list[str]:
    """Returns every constant of the hardware costs with its interval and source."""
    from fastplan.model.hardware_costs import CONSTANTS

    if not hardware.costs:
        return [
            f"{hardware.name} has no constants for hardware costs. A SKU file can give them in "
            "`costs`, or carry them over from another SKU with `costs_from`."
        ]
    rows = []
    for constant in CONSTANTS:
        figure = hardware.costs.get(constant.full_name)
        if figure is None:
            rows.append((constant.full_name, "-", constant.unit, "-", "-", "missing"))
            continue
        known = figure.low is not None and figure.high is not None
        interval = f"{figure.low:.3g} - {figure.high:.3g}" if known else "-"
        source = figure.source
        if figure.sku != hardware.name:
            source = f"carried over from {figure.sku}: {source}"
        if figure.note:
            source = f"{source} ({figure.note})"
        value = f"{figure.value:.4g}"
        rows.append((constant.full_name, value, constant.unit, interval, str(figure.n), source))
    titles = ("constant", "value", "unit", "95 % interval", "n", "source")
    return [
        *table(titles, rows, "<><>><"),
        "",
        "n: measured times that depend on the constant; docs/hardware-costs.md has the formulas.",
    ]


def _figures(hardware: Hardware) -> list[str]:
    """Returns every figure with its source."""
    from fastplan.spec.skus import FIGURES

    rows = []
    for name in (*FIGURES, "price"):
        value = getattr(hardware, name)
        if value is None:
            shown = "-"
        elif name in ("hbm", "ddr", "ssd"):
            shown = _size(value)
        else:
            shown = f"{value / 1e6:,.4g}" if name.endswith("_bw") else f"{value:g}"
        rows.append((name, shown, hardware.sources.get(name, "")))
    return table(("figure", "value", "source"), rows, "<><")


def _size(size: int) -> str:
    return f"{size / 2**30:,.0f} GiB" if size else "-"


def _speed(bytes_per_ms: float) -> str:
    return f"{bytes_per_ms / 1e6:,.0f}"
