"""Do moves of a re-plan take as long as estimated, over links of a known rate?

A job on two emulated hosts of two CPU ranks moves tables while it runs, as `fastplan.reshard` does.
Each case has other tables that move. Estimates are those of `list_moves` with the calibrated SKU,
by TorchRec's bandwidths and by the hardware costs.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.arguments import at_least_one, new_parser
from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown
from bench.text import duration, table
from bench.two_hosts import calibrated_sku
from fastplan.files.document import document_of
from fastplan.measure.hosts import parse_rate, why_unavailable
from fastplan.measure.launch import run_group
from fastplan.measure.rerate import reestimate
from fastplan.measure.settings import MODEL, LaunchSettings, WorkerConfig, plan_file
from fastplan.model.plan import RANK, Plan
from fastplan.planning.moves import list_moves
from fastplan.planning.plan import plan
from fastplan.plans.file import write_plan
from fastplan.spec.hardware import find_hardware
from fastplan.spec.lower import lower
from fastplan.spec.model import ModelSpec, replace
from fastplan.spec.read import spec_of
from fastplan.spec.write import write_spec

FILE = "moves.json"
HOSTS, RANKS_PER_HOST = 2, 2
ROWS, DIM, TABLES = 16_000, 64, 8
# By case: the new rank of each table. Table t starts on rank t % 4; ranks 0 and 1 are one host.
CASES = {
    "one table, to the other host": [2, 1, 2, 3, 0, 1, 2, 3],
    "four tables, to the other host": [2, 3, 0, 1, 0, 1, 2, 3],
    "all tables, to the other host": [2, 3, 0, 1, 2, 3, 0, 1],
    "four tables, within their hosts": [1, 0, 3, 2, 0, 1, 2, 3],
}


def main() -> int:
    parser = new_parser("bench.moves", __doc__)
    parser.add_argument("--sku", metavar="FILE", help="constants of the hosts; default: calibrate")
    parser.add_argument("--link", type=parse_rate, default="200Mbit", help="default 200Mbit")
    parser.add_argument("--repetitions", type=at_least_one, default=5, help="default 5")
    parser.add_argument(
        "--only-estimate",
        action="store_true",
        help=f"keep the measured times of {FILE}, and estimate again",
    )
    add_arguments(parser, FILE)
    arguments = parser.parse_args()
    measures = not arguments.show and not arguments.only_estimate
    if measures and (reason := why_unavailable()):
        sys.exit(f"nothing was measured: {reason}")
    if arguments.only_estimate and arguments.sku is None:
        parser.error("--only-estimate needs --sku, the file that the times were measured with")
    return measured_or_shown(arguments, FILE, lambda: _measure(arguments), _report)


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.only_estimate:
        kept = json.loads((arguments.output / FILE).read_text())
        return _estimated_again(_model(arguments.sku), kept)
    group = LaunchSettings(
        device="cpu", ranks_per_host=RANKS_PER_HOST, hosts=HOSTS, timeout=120, link=arguments.link
    )
    with tempfile.TemporaryDirectory() as folder:
        spec = _model(arguments.sku or str(calibrated_sku(Path(folder), group)))
    rows = []
    for name, ranks in CASES.items():
        with Progress(name):
            rows.append({"name": name, **_case(spec, ranks, group, arguments.repetitions)})
    return {"link": arguments.link, "cases": rows}


def _model(sku: str) -> ModelSpec:
    tables = [
        {"name": f"t{i}", "rows": ROWS, "dim": DIM, "optimizer": "rowwise_adagrad"}
        for i in range(TABLES)
    ]
    content = {
        "model": "moves",
        "batch_size": 32,
        "modules": {"sparse": {}},
        "tables": [{**each, "sharding_types": ["table_wise"]} for each in tables],
        "topology": {"sku": "torchrec-cpu", "world_size": 4, "local_world_size": 2},
    }
    spec = spec_of(document_of(content, "moves.json"))
    return replace(spec, topology=replace(spec.topology, hardware=find_hardware(sku)))


def _estimated_again(spec: ModelSpec, result: dict[str, Any]) -> dict[str, Any]:
    cases = [
        {**case, **_estimates(spec, *_plans(spec, CASES[case["name"]]))} for case in result["cases"]
    ]
    return {
        "link": result["link"],
        "measured": result.get("measured", result["date"]),
        "cases": cases,
    }


def _plans(spec: ModelSpec, ranks: list[int]) -> tuple[Plan, Plan]:
    """The plans before and after a move, without costs."""
    made = plan(lower(spec)).plan()
    return _placed(made, [t % 4 for t in range(TABLES)]), _placed(made, ranks)


def _estimates(spec: ModelSpec, before: Plan, after: Plan) -> dict[str, Any]:
    """Bytes, and seconds by TorchRec's bandwidths and by the hardware costs, if the SKU has any."""
    jobs = [lower(spec)]
    if spec.topology is not None and spec.topology.hardware.costs:
        jobs.append(lower(replace(spec, costs="hardware")))
    moves = [list_moves(reestimate(before, job), reestimate(after, job)) for job in jobs]
    hardware = moves[1].seconds if len(moves) > 1 else None
    return {"bytes": moves[0].bytes, "estimated": moves[0].seconds, "hardware": hardware}


def _case(
    spec: ModelSpec, ranks: list[int], group: LaunchSettings, repetitions: int
) -> dict[str, Any]:
    before, after = _plans(spec, ranks)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_spec(spec, folder / MODEL)
        plan_file(folder, 0).parent.mkdir()
        for number, each in enumerate((before, after)):
            bare = Plan(name=spec.name, layout=each.layout)
            write_plan(bare, plan_file(folder, number))
        WorkerConfig(
            task="moves", device="cpu", timeout=120, settings={"repetitions": repetitions}
        ).write(folder)
        failure = run_group(folder, group, worker="bench.moves_worker")
        if failure is not None:
            log = (folder / "logs" / "torchrun.log").read_text(errors="replace")[-3000:]
            sys.exit(f"{failure.text(('moves',) * 9)}\n{log}")
        seconds = json.loads((folder / "seconds.json").read_text())
    return {**_estimates(spec, before, after), "seconds": seconds}


def _placed(plan: Plan, ranks: list[int]) -> Plan:
    tables = []
    for each in plan.layout.tables:
        shards = each.shards.copy()
        shards[:, RANK] = ranks[int(each.name[1:])]
        tables.append(each._replace(shards=shards))
    layout = replace(plan.layout, tables=tuple(tables))
    return replace(plan, layout=layout, basis=None, fingerprint=None)


def rows_of(result: dict[str, Any]) -> list[list[str]]:
    """Returns a row for each case: bytes, estimates, measured time with its range, ratios, n."""
    rows = []
    for case in result["cases"]:
        seconds = case["seconds"]
        middle = statistics.median(seconds)
        estimates = [case["estimated"], case["hardware"]]
        rows.append(
            [
                case["name"],
                f"{case['bytes'] / 1e6:.1f} MB",
                *("-" if each is None else duration(each) for each in estimates),
                f"{duration(middle)} ({duration(min(seconds))} to {duration(max(seconds))})",
                *("-" if each is None else f"{middle / each:.2f}" for each in estimates),
                str(len(seconds)),
            ]
        )
    return rows


HEADER = ["moves", "bytes", "TorchRec's bandwidths", "hardware costs", "measured"]
HEADER += ["measured / TorchRec's", "measured / hardware", "n"]


def _report(result: dict[str, Any]) -> str:
    return table(HEADER, rows_of(result))


if __name__ == "__main__":
    sys.exit(main())
