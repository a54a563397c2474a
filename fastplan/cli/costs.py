"""`fastplan costs`: compares estimates with measured times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastplan.cli.errors import NO, OK
from fastplan.cli.options import json_option
from fastplan.cli.output import table
from fastplan.cli.parser import Args, Group, argument, option

if TYPE_CHECKING:
    from fastplan.measure.record_estimates import RecordEstimate

HELP = """
Compares estimates of single lookups and collectives with measured times: by
TorchRec's constants, by a SKU's datasheet, and by the SKU's hardware costs.
"""
EXAMPLES = """
fastplan costs check times.jsonl
fastplan costs check times.jsonl --sku-map 'H100 NVL=h100' --at-most 1.3
fastplan costs check times.jsonl --json
"""
_ESTIMATES = ("torchrec", "datasheet", "hardware")
_TITLES = ("TorchRec's constants", "datasheet", "hardware costs")


costs = Group("costs", help=HELP, examples=EXAMPLES)


@costs.action(
    "check",
    "compare estimates with a file of measured times; exit code 2 if --at-most is exceeded",
    EXAMPLES.strip(),
)
@argument("FILE", "records as JSON lines; see docs/hardware-costs.md", name="records")
@option("--sku-map GPU=SKU...", "the SKU of a device's name, if names don't match")
@option("--at-most R", "the largest median ratio of the hardware costs, over all records")
@json_option("one JSON object per record and line")
def _check(args: Args) -> int:
    from fastplan.measure.record_estimates import estimate_records
    from fastplan.measure.records import read_records

    found = estimate_records(read_records(args.records), dict(args.sku_map))
    if args.json:
        import json

        for each in found:
            print(json.dumps(each.to_json(), allow_nan=False))
    else:
        print("\n".join(_report(found)))
    ratios = _ratios(found, "hardware")
    exceeded = args.at_most is not None and (not ratios or _median(ratios) > args.at_most)
    if exceeded and not args.json:
        reason = f"the median is {_median(ratios):.3g}" if ratios else "no record can be estimated"
        print(f"\n--at-most {args.at_most:g} is exceeded: {reason}.")
    return NO if exceeded else OK


def _report(found: Sequence[RecordEstimate]) -> list[str]:
    """Returns the lines: ratios by group, ratios by kind, and what can't be estimated."""
    from collections import Counter

    groups: dict[str, list[RecordEstimate]] = {}
    kinds: dict[str, list[RecordEstimate]] = {}
    for each in found:
        if each.measured_ms is not None:
            groups.setdefault(each.record.group or "-", []).append(each)
            kinds.setdefault(f"{each.record.kind} {each.what}".strip(), []).append(each)
    lines = [*_table("group", groups), "", *_table("kind", kinds), ""]
    lines.append(
        "Ratios of estimate and measurement, at least 1: median / 90th percentile / worst."
    )
    missing = [each for each in found if each.hardware_ms is None]
    lines.append(f"{len(found) - len(missing)} of {len(found)} records can be estimated.")
    for reason, count in Counter(each.reason or "" for each in missing).most_common():
        lines.append(f"  {count} can't be estimated: {_escaped(reason)}")
    return lines


def _table(title: str, groups: dict[str, list[RecordEstimate]]) -> list[str]:
    rows = [
        (name, str(len(own)), *(_summary(_ratios(own, each)) for each in _ESTIMATES))
        for name, own in groups.items()
    ]
    return table((title, "n", *_TITLES), rows, "<>>>>")


def _ratios(found: Sequence[RecordEstimate], by: str) -> list[float]:
    ratios = (each.ratio(by) for each in found)
    return sorted(ratio for ratio in ratios if ratio is not None)


def _summary(ratios: list[float]) -> str:
    if not ratios:
        return "-"
    ninth = ratios[min(len(ratios) - 1, int(0.9 * len(ratios)))]
    return " / ".join(_shown(each) for each in (_median(ratios), ninth, ratios[-1]))


def _median(ratios: list[float]) -> float:
    from statistics import median

    return median(ratios)


def _shown(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"


def _escaped(text: str) -> str:
    from fastplan.report.terminal import escape_name

    return escape_name(text)
