"""`fastplan skus`: lists named hardware."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastplan.cli.errors import OK
from fastplan.cli.options import json_option, sku_names
from fastplan.cli.output import print_json, table
from fastplan.cli.parser import Args, argument, command

if TYPE_CHECKING:
    from fastplan.spec.hardware import Hardware

EXAMPLES = """
fastplan skus
fastplan skus h100
fastplan skus my-cluster.yaml --json
"""


@command("skus", EXAMPLES)
@argument("[NAME]", "show one, with its sources", name="sku", complete=sku_names)
@json_option()
def skus(args: Args) -> int:
    """Lists named hardware with its figures."""
    from dataclasses import asdict

    from fastplan.spec.hardware import find_hardware, known_hardware

    found = known_hardware() if args.sku is None else [find_hardware(args.sku)]
    if args.json:
        print_json([asdict(hardware) for hardware in found])
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
