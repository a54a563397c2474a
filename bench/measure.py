"""Does the estimate order plans as the machine does, before and after calibration?

Seven plans of one model, one of them twice, run on CPU ranks. They are estimated with TorchRec's
constants and with measured constants, and both estimates are compared with the time of a step.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.arguments import new_parser
from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown
from bench.runs import quiet
from bench.text import duration, table, verdicts
from fastplan.files.document import document_of
from fastplan.measure.agreement import Agreement, agreement
from fastplan.measure.calibrate import CalibratedSku, calibrate
from fastplan.measure.calibration_text import calibration_json, calibration_text
from fastplan.measure.cases import sizes_of
from fastplan.measure.paired import compare_rounds
from fastplan.measure.prepare import Subject
from fastplan.measure.rerate import reestimate
from fastplan.measure.results import Runs, read_runs
from fastplan.measure.run import measure
from fastplan.measure.scaling import MemoryLimit, free_host_memory, host_memory
from fastplan.measure.settings import NAMES, LaunchSettings, Settings
from fastplan.measure.statistics import Interval
from fastplan.measure.text import (
    agreement_json,
    format_factor,
    format_interval,
    runs_json,
    runs_text,
)
from fastplan.model.plan import RANK, Plan
from fastplan.planning.plan import plan
from fastplan.spec.hardware import Hardware
from fastplan.spec.lower import lower
from fastplan.spec.model import ModelSpec, replace
from fastplan.spec.read import spec_of

FILE = "measure.json"
BATCH = 256
# Row-wise tables on CPUs need a request: TorchRec can run them, but does not propose them.
TYPES = ("data_parallel", "table_wise", "column_wise", "row_wise")
DEFAULT, AGAIN, FASTPLAN, ONE_RANK = "TorchRec default", "the same again", "fastplan", "one rank"
ROWS = (8_000, 1_000, 4_000, 500, 8_000, 10_000, 1_000, 4_000, 5_000, 2_000, 800, 6_000)
DIMS = (256, 512, 128, 256, 256, 128, 512, 256, 128, 512, 256, 256)
POOLING = (300, 10, 120, 20, 200, 400, 8, 60, 160, 80, 12, 240)


def main() -> int:
    arguments = _arguments()
    return measured_or_shown(arguments, FILE, lambda: _measure(arguments), _report, _failed)


def _failed(result: dict[str, Any]) -> bool:
    return not all(result["checks"].values())


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    group = LaunchSettings(device="cpu", ranks_per_host=arguments.ranks, threads=1, timeout=120)
    spec = model(arguments.ranks)
    with Progress("calibrating"):
        sku = _calibrated(spec, group)
    plans = make_plans(spec, sku.hardware)
    with tempfile.TemporaryDirectory() as name, Progress(f"measuring {len(plans)} plans"):
        folder = Path(name) / "runs"
        settings = Settings(rounds=arguments.rounds, steps=arguments.steps, warmup=2, batches=2)
        subject = Subject(spec, None, tuple(plans.values()), tuple(plans))
        failures = measure(
            folder, subject, group, settings, room=MemoryLimit(free_host_memory(), None)
        )
        runs = read_runs(folder)
        if arguments.runs is not None:
            shutil.copytree(folder, arguments.runs)
    if failures:
        sys.exit("\n".join(failure.text(subject.labels) for failure in failures))
    before = _agreement(plans, spec, runs)
    after = _agreement(plans, on(spec, sku.hardware), runs)
    return {
        "calibration": calibration_json(sku),
        "runs": runs_json(runs),
        "before": agreement_json(before, runs),
        "after": agreement_json(after, runs),
        "checks": _checks(runs, before, after),
        "texts": [calibration_text(sku).rstrip(), runs_text(runs).rstrip()],
    }


def _arguments() -> argparse.Namespace:
    parser = new_parser("bench.measure", __doc__)
    parser.add_argument("--ranks", type=int, default=4, metavar="N", help="CPU ranks (default 4)")
    parser.add_argument("--rounds", type=int, default=8, metavar="N", help="rounds (default 8)")
    parser.add_argument("--steps", type=int, default=2, metavar="N", help="per turn (default 2)")
    parser.add_argument("--runs", type=Path, metavar="DIR", help="keep the measurement there")
    add_arguments(parser, FILE)
    return parser.parse_args()


def model(ranks: int) -> ModelSpec:
    """Twelve tables. Some are large, some are wide, and some are looked up often."""
    kernels = {kind: ["dense" if kind == "data_parallel" else "fused"] for kind in TYPES}
    content = {
        "model": "study",
        "batch_size": BATCH,
        "modules": {"sparse": {"sharding_types": list(TYPES), "compute_kernels": kernels}},
        "tables": [
            {
                "name": f"t{i}",
                "rows": rows,
                "dim": dim,
                "pooling": pooling,
                "optimizer": "rowwise_adagrad",
            }
            for i, (rows, dim, pooling) in enumerate(zip(ROWS, DIMS, POOLING, strict=True))
        ],
        "topology": {"sku": "torchrec-cpu", "world_size": ranks, "local_world_size": ranks},
    }
    return spec_of(document_of(content, "study.json"))


def on(spec: ModelSpec, hardware: Hardware) -> ModelSpec:
    return replace(spec, topology=replace(spec.topology, hardware=hardware))


def _calibrated(spec: ModelSpec, group: LaunchSettings) -> CalibratedSku:
    calibrated = calibrate(group, sizes_of(spec, group.ranks))
    assert calibrated is not None  # there is one host
    return CalibratedSku(
        name="calibrated",
        like="torchrec-cpu",
        group=group,
        calibrated=calibrated,
        host_memory=host_memory(),
        device_memory=None,
    )


def make_plans(spec: ModelSpec, hardware: Hardware) -> dict[str, Plan]:
    """The plans of the study, by name; fastplan's own is made with the measured constants."""
    default = torchrec_plan(spec)
    plans = {DEFAULT: default, AGAIN: default}
    for kind in ("table_wise", "row_wise", "column_wise", "data_parallel"):
        tables = tuple(replace(each, sharding_types=(kind,)) for each in spec.tables)
        plans[kind.replace("_", "-")] = plan(lower(replace(spec, tables=tables))).plan()
    plans[FASTPLAN] = plan(lower(on(spec, hardware))).plan()
    plans[ONE_RANK] = _on_one_rank(plans["table-wise"])
    return plans


def torchrec_plan(spec: ModelSpec) -> Plan:
    """The plan of TorchRec's own planner with all defaults."""
    from torchrec.distributed.planner import EmbeddingShardingPlanner
    from torchrec.distributed.planner.types import ParameterConstraints, Topology

    from fastplan.measure.step import build
    from fastplan.torchrec.plan_files import describe_plan

    ranks = spec.topology.world_size
    with quiet():
        planner = EmbeddingShardingPlanner(
            topology=Topology(world_size=ranks, compute_device="cpu", local_world_size=ranks),
            batch_size=spec.batch_size,
            constraints={
                each.name: ParameterConstraints(pooling_factors=list(each.pooling))
                for each in spec.tables
            },
        )
        built = build(spec, None)
        return describe_plan(planner.plan(built.module, built.sharders), DEFAULT)


def _on_one_rank(plan: Plan) -> Plan:
    tables = []
    for each in plan.layout.tables:
        shards = each.shards.copy()
        shards[:, RANK] = 0
        tables.append(each._replace(shards=shards))
    layout = replace(plan.layout, tables=tuple(tables))
    return replace(plan, layout=layout, basis=None, fingerprint=None)


def _agreement(plans: dict[str, Plan], spec: ModelSpec, runs: Runs) -> Agreement:
    """Agreement of the plans without the repeated one, estimated with the spec's hardware."""
    job = lower(spec)
    rated = {name: reestimate(plan, job) for name, plan in plans.items() if name != AGAIN}
    return agreement(list(rated.values()), list(rated), runs)


def _checks(runs: Runs, before: Agreement, after: Agreement) -> dict[str, bool]:
    plans = {plan.label: plan for plan in runs.plans}
    rounds = zip(plans[ONE_RANK].steps, plans["table-wise"].steps, strict=True)
    assert before.tau is not None
    assert after.tau is not None
    return {
        "the same plan twice agrees": not compare_rounds(
            plans[DEFAULT].steps, plans[AGAIN].steps
        ).different,
        "one rank is slower in every round": all(
            statistics.median(one) > statistics.median(spread) for one, spread in rounds
        ),
        "calibration orders better": after.tau.value > before.tau.value,
    }


def _report(result: dict[str, Any]) -> str:
    before, after = result["before"], result["after"]
    calibrated = {plan["label"]: plan["estimated"] for plan in after["plans"]}
    rows = [
        [
            plan["label"],
            duration(plan["measured"]),
            duration(plan["spread"]),
            _milliseconds(plan["estimated"]),
            _milliseconds(calibrated[plan["label"]]),
        ]
        for plan in before["plans"]
    ]
    header = ["plan", "measured", "spread", "estimated", "calibrated"]
    parts = [
        [NAMES[one["part"]], _factor(one["factor"]), _factor(two["factor"])]
        for one, two in zip(before["parts"], after["parts"], strict=True)
    ]
    return "\n\n".join(
        (
            *result["texts"],
            table(header, rows),
            "\n".join(_order(name, result[name]) for name in ("before", "after")),
            table(["measured / estimated", "before", "after"], parts),
            verdicts(result["checks"]),
        )
    )


def _order(name: str, found: dict[str, Any]) -> str:
    pairs = found["pairs"]
    whole, rated = (format_interval(Interval(**found[tau])) for tau in ("tau", "tau_rated"))
    return (
        f"{name} calibration: Kendall's tau {whole}, without the distribution of inputs {rated}; "
        f"{pairs['agreeing']} of {pairs['clear']} clear pairs in order"
    )


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else duration(value / 1000)


def _factor(value: float | None) -> str:
    return "-" if value is None else format_factor(value)


if __name__ == "__main__":
    sys.exit(main())
