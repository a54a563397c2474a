"""`fastplan skus`: the hardware that plans can be made for."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from fastplan.cli.errors import OK

if TYPE_CHECKING:
    from fastplan.spec.hardware import Hardware

HELP = "Lists the hardware that has a name, with the figures that plans are made with."
EXAMPLES = """
fastplan skus
fastplan skus h100
fastplan skus my-cluster.yaml --json
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("sku", metavar="NAME", nargs="?", help="show one, with its sources")
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(args: Namespace) -> int:
    from dataclasses import asdict

    from fastplan.spec.hardware import find_hardware, known_hardware

    found = known_hardware() if args.sku is None else [find_hardware(args.sku)]
    if args.json:
        from json import dumps

        print(dumps([asdict(hardware) for hardware in found], indent=2))
        return OK
    from fastplan.cli.terminal import table

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


def _figures(hardware: Hardware) -> list[str]:
    """Every figure with its source."""
    from fastplan.cli.terminal import table
    from fastplan.spec.hardware import FIGURES

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
