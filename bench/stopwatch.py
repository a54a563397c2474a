"""Are plans for the predicted step faster by the stopwatch, on hosts with a slow network?

Drawn models run on 2 emulated hosts of 2 CPU ranks, with links of one rate between the hosts. The
machine is calibrated first. Each model is trained with TorchRec's default plan, TorchRec's plan
with the calibrated constants, fastplan's plans for the rating and for the predicted step, and a few
plans of one sharding type, so that there is an order to predict. Plans take turns in one run.

Every finished part is kept in --work, if that is given: an interrupted run continues there.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.arguments import at_least_one, new_parser
from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown
from bench.stopwatch_models import EVALUATION, HOSTS, RANKS_PER_HOST, TUNING, drawn_model
from bench.stopwatch_plans import make_plans, predictions
from bench.stopwatch_report import failed, report, summary
from bench.two_hosts import calibrated_sku
from fastplan.measure.hosts import parse_rate, why_unavailable
from fastplan.measure.prepare import Subject, layout_key
from fastplan.measure.results import read_runs
from fastplan.measure.run import finished, measure
from fastplan.measure.scaling import MemoryLimit, free_host_memory
from fastplan.measure.settings import RUN, LaunchSettings, Settings
from fastplan.model.plan import Plan
from fastplan.plans.file import read_plan, write_plan
from fastplan.spec.hardware import Hardware, find_hardware
from fastplan.spec.model import ModelSpec

FILE = "stopwatch.json"
STEPS, WARMUP = 1, 1


def main() -> int:
    arguments = _arguments()
    if not arguments.show and (reason := why_unavailable()):
        sys.exit(f"nothing was measured: {reason}")
    return measured_or_shown(arguments, FILE, lambda: _measure(arguments), report, failed)


def _arguments() -> argparse.Namespace:
    parser = new_parser("bench.stopwatch", __doc__)
    parser.add_argument("--work", type=Path, metavar="DIR", help="keeps the runs; default: nothing")
    parser.add_argument("--link", type=parse_rate, default="200Mbit", help="default 200Mbit")
    parser.add_argument("--rounds", type=at_least_one, default=9, help="of a pass (default 9)")
    parser.add_argument("--passes", type=at_least_one, default=1, help="default 1")
    parser.add_argument("--models", type=at_least_one, default=None, help="only the first ones")
    parser.add_argument("--tuning", action="store_true", help="the models for trials")
    parser.add_argument("--sku", type=Path, metavar="FILE", help="constants; default: calibrate")
    add_arguments(parser, FILE)
    return parser.parse_args()


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.work is not None:
        return _measure_in(arguments.work, arguments)
    with tempfile.TemporaryDirectory() as name:
        return _measure_in(Path(name), arguments)


def _measure_in(work: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    group = LaunchSettings(
        device="cpu", ranks_per_host=RANKS_PER_HOST, hosts=HOSTS, timeout=120, link=arguments.link
    )
    work.mkdir(parents=True, exist_ok=True)
    hardware = find_hardware(str(arguments.sku or calibrated_sku(work, group)))
    seeds = (TUNING if arguments.tuning else EVALUATION)[: arguments.models]
    for number in range(arguments.passes):
        for seed in seeds:
            with Progress(f"pass {number + 1}, model {seed}"):
                _run(work, seed, number, hardware, group, arguments.rounds)
    models = [_model(work, seed, hardware) for seed in seeds]
    calibration = work / "calibration.json"
    return {
        "link": arguments.link,
        "ranks": group.ranks,
        "hosts": group.hosts,
        "tuning": arguments.tuning,
        "calibration": json.loads(calibration.read_text()) if calibration.exists() else None,
        "models": models,
        "summary": summary(models),
    }


def _run(
    work: Path, seed: int, number: int, hardware: Hardware, group: LaunchSettings, rounds: int
) -> None:
    """Measures one pass of a model, unless it was finished before."""
    spec = drawn_model(seed)
    plans = _plans(work, seed, spec, hardware)
    distinct = {layout_key(plan.layout): (name, plan) for name, plan in reversed(plans.items())}
    folder = work / str(seed) / f"pass-{number}"
    if _is_complete(folder):
        return
    shutil.rmtree(folder, ignore_errors=True)
    subject = Subject(
        spec,
        None,
        tuple(plan for _, plan in distinct.values()),
        tuple(name for name, _ in distinct.values()),
    )
    settings = Settings(
        rounds=rounds,
        steps=STEPS,
        warmup=WARMUP,
        batches=2,
        seed=seed + number,
        resident=True,
        part_rounds=1,
    )
    limit = MemoryLimit(free_host_memory(), None)
    if failures := measure(folder, subject, group, settings, room=limit):
        sys.exit("\n".join(failure.text(subject.labels) for failure in failures))


def _plans(work: Path, seed: int, spec: ModelSpec, hardware: Hardware) -> dict[str, Plan]:
    """Returns the plans of a model by name. All passes measure the same ones."""
    folder = work / str(seed) / "plans"
    order = folder / "order.json"
    if not order.exists():
        folder.mkdir(parents=True, exist_ok=True)
        made = make_plans(spec, hardware)
        for number, plan in enumerate(made.values()):
            write_plan(plan, folder / f"{number}.json")
        order.write_text(json.dumps(list(made)))
    names = json.loads(order.read_text())
    return {name: read_plan(folder / f"{number}.json") for number, name in enumerate(names)}


def _model(work: Path, seed: int, hardware: Hardware) -> dict[str, Any]:
    """Returns the predictions of a model's plans, and all measured steps by round."""
    spec = drawn_model(seed)
    plans = _plans(work, seed, spec, hardware)
    keys = {name: layout_key(plan.layout) for name, plan in plans.items()}
    steps: dict[str, list[list[float]]] = {}
    parts: dict[str, dict[str, float]] = {}
    for folder in sorted((work / str(seed)).glob("pass-*")):
        if not _is_complete(folder):
            continue
        for own in read_runs(folder).plans:
            steps.setdefault(own.layout, []).extend(list(map(float, each)) for each in own.steps)
            parts[own.layout] = {name: max(ranks) for name, ranks in own.rank_parts.items()}
    return {
        "seed": seed,
        "name": spec.name,
        "batch_size": spec.batch_size,
        "tables": len(spec.tables),
        "plans": [
            {
                "name": name,
                "layout": keys[name],
                "types": _types(plan),
                "predicted": predictions(plan, spec, hardware),
                "steps": steps[keys[name]],
                "parts": parts[keys[name]],
            }
            for name, plan in plans.items()
        ],
    }


def _is_complete(folder: Path) -> bool:
    """Returns whether every plan had its turn in every round."""
    about = folder / RUN
    if not about.exists():
        return False
    content = json.loads(about.read_text())
    return len(finished(folder)) == len(content["plans"]) * content["settings"]["rounds"]


def _types(plan: Plan) -> dict[str, int]:
    kinds = [table.sharding_type for table in plan.layout.tables]
    return {kind: kinds.count(kind) for kind in sorted(set(kinds))}


if __name__ == "__main__":
    sys.exit(main())
