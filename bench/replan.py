"""The cost of changes: plans from scratch compared with plans that follow the previous plan.

TorchRec's plans are fastplan's parity plans, which are the same to the bit. They may renumber their
ranks in the best way before bytes are counted. Moved bytes are those that ranks
need and don't hold.
"""

import argparse
import random
import statistics
import sys
import time
from typing import Any

from bench.progress import Progress
from bench.replan_drawn import drawn
from bench.replan_models import CHANGES, HOST_LOST, Asked, State, ask, criteo_state, random_state
from bench.replan_plot import draw
from bench.replan_proof import impossible
from bench.replan_ranks import best_renumbering
from bench.results_file import add_arguments, measured_or_shown
from bench.text import table
from fastplan.engine.layout import layout_of
from fastplan.engine.optimize import Optimize, optimize
from fastplan.engine.solve import solve, verify_plan
from fastplan.model.plan import Basis, Plan, PlanRecord
from fastplan.planning.held import renumbered
from fastplan.planning.movement import movement
from fastplan.planning.policy import Replan
from fastplan.planning.replan import ReplanAttempt, Scratch

FILE = "replan.json"
INSTANCES = {
    "random 50 x 8": random_state(50, 2, 4),
    "random 50 x 16": random_state(50, 2, 8),
    "Criteo 26 x 16": criteo_state(2, 8),
    "random 200 x 32": random_state(200, 4, 8),
}
# Numbers of drawn cases, with which nothing was tuned.
DRAWN = range(100, 112)
# Where a host is lost, what must move may grow by this part of itself.
MOST_OVER = 0.3
OPTIMIZE = Optimize(time_budget=None, move_budget=1_000_000)
DAY = ("1 table added", "2 added, 1 removed", "a tenth grows by 10 %", "all pooling +-10 %")
DAY_POLICY = Replan(slack=0.03, reference="scratch")


def plan_of(asked: Asked, options: Any, ranks: Any, rating: float) -> Plan:
    record = PlanRecord.of(asked.problem.space, options, ranks, rating)
    return Plan(
        name="model",
        layout=layout_of(asked.request, asked.cluster, record),
        basis=Basis(canonical=b"", request=asked.request, cluster=asked.cluster, record=record),
    )


def followed(asked: Asked, previous: Plan, policy: Replan, scratch: Scratch) -> Any:
    """The plan that follows another one, its report, and its CPU seconds."""
    began = time.process_time()
    replan = ReplanAttempt(asked.request, asked.cluster, previous, policy)
    found = replan.after(asked.problem, scratch)
    seconds = time.process_time() - began
    assert not isinstance(found, str), found
    point, report = found
    assert not verify_plan(asked.problem, point.options, point.ranks, point.rating)
    return plan_of(asked, point.options, point.ranks, point.rating), report, seconds


def moved(previous: Plan, plan: Plan) -> int:
    """Moved bytes with the best numbering of the new plan's ranks."""
    ranks = best_renumbering(plan, previous)
    return min(
        movement(previous, plan).bytes,
        movement(previous, renumbered(plan, ranks, plan.ranks)).bytes,
    )


def first_plan(state: State) -> Plan:
    asked = ask(state)
    first = solve(asked.problem, asked.search)
    return plan_of(asked, first.options, first.ranks, first.rating)


def measure(name: str, state: State) -> list[dict[str, Any]]:
    previous = first_plan(state)
    rows = []
    for change, apply in CHANGES.items():
        with Progress(f"{name}: {change}"):
            rows.append(
                {"instance": name, "change": change, **_row(previous, state, change, apply)}
            )
    return rows


def measure_drawn() -> list[dict[str, Any]]:
    rows = []
    for number in DRAWN:
        case = drawn(number)
        with Progress(f"{case.name}: {case.change_name}"):
            row = _row(first_plan(case.state), case.state, case.change_name, case.change)
        rows.append({"instance": case.name, "change": case.change_name, **row})
    return rows


def _row(previous: Plan, state: State, change: str, apply: Any) -> dict[str, Any]:
    asked = ask(apply(state, random.Random(change)))
    began = time.process_time()
    scratch = solve(asked.problem, asked.search)
    torchrec_seconds = time.process_time() - began
    torchrec = Scratch(scratch.options, scratch.ranks, scratch.rating)
    began = time.process_time()
    best = optimize(asked.problem, asked.search, OPTIMIZE, start=scratch)
    optimize_seconds = time.process_time() - began
    lost = change in HOST_LOST
    policy = Replan(reference="scratch", slack=0.0)
    if lost:
        probe = followed(asked, previous, Replan(slack=9.0, max_moved=1.0), torchrec)[1]
        policy = Replan(
            reference="scratch", slack=0.0, max_moved=MOST_OVER * probe.least / probe.held
        )
    plan, report, seconds = followed(asked, previous, policy, torchrec)
    assert movement(previous, plan).bytes == report.moved
    made = {
        "torchrec": (torchrec.options, torchrec.ranks, torchrec.rating, torchrec_seconds),
        "optimize": (best.options, best.ranks, best.rating, optimize_seconds),
    }
    row: dict[str, Any] = {
        "bytes": report.held,
        "least": report.least,
        "host_lost": lost,
        "replan": {"rating": report.rating, "moved": report.moved, "seconds": seconds},
        "followed": report.followed,
        "reason": report.reason,
    }
    if not report.followed:
        most = report.least + int(policy.max_moved * report.held)
        held = ReplanAttempt(asked.request, asked.cluster, previous, policy).held
        row["impossible"] = impossible(asked, held, rating=torchrec.rating, moved=most)
    for who, (options, ranks, rating, spent) in made.items():
        bytes_moved = moved(previous, plan_of(asked, options, ranks, rating))
        row[who] = {"rating": rating, "moved": bytes_moved, "seconds": spent}
    return row


def day(state: State, steps: int) -> list[dict[str, Any]]:
    """Small changes one after the other. Each way of planning continues from its own last plan."""
    asked = ask(state)
    first = solve(asked.problem, asked.search)
    start = optimize(asked.problem, asked.search, OPTIMIZE, start=first)
    plans = dict.fromkeys(
        ("torchrec", "optimize"), plan_of(asked, first.options, first.ranks, first.rating)
    )
    plans["replan"] = plan_of(asked, start.options, start.ranks, start.rating)
    rng, rows = random.Random(0), []
    for step in range(steps):
        change = DAY[step % len(DAY)]
        if len(state.tables) > 55:
            change = "3 removed"
        state = CHANGES[change](state, rng)
        asked = ask(state)
        scratch = solve(asked.problem, asked.search)
        torchrec = Scratch(scratch.options, scratch.ranks, scratch.rating)
        best = optimize(asked.problem, asked.search, OPTIMIZE, start=scratch)
        reference = Scratch(best.options, best.ranks, best.rating)
        following, report, _ = followed(asked, plans["replan"], DAY_POLICY, reference)
        made = {
            "torchrec": plan_of(asked, *torchrec),
            "optimize": plan_of(asked, best.options, best.ranks, best.rating),
        }
        row: dict[str, Any] = {"change": change, "bytes": report.held, "followed": report.followed}
        for who, plan in made.items():
            assert plan.basis is not None
            rating = plan.basis.record.rating
            row[who] = {"rating": rating, "moved": moved(plans[who], plan)}
        row["replan"] = {"rating": report.rating, "moved": report.moved}
        plans = {**made, "replan": following}
        rows.append(row)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.replan", description=__doc__)
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="instances with this in the name"
    )
    parser.add_argument("--steps", type=int, default=50, help="changes per day (default 50)")
    add_arguments(parser, FILE)
    arguments = parser.parse_args()
    return measured_or_shown(arguments, FILE, lambda: _measure_all(arguments), report_text)


def _measure_all(arguments: argparse.Namespace) -> dict[str, Any]:
    rows = []
    for name, state in INSTANCES.items():
        if arguments.only in name:
            rows += measure(name, state)
    drawn_rows = [] if arguments.only else measure_drawn()
    with Progress("a day of small changes"):
        days = day(INSTANCES["random 50 x 16"], arguments.steps)
    arguments.output.mkdir(parents=True, exist_ok=True)
    draw(rows, days, arguments.output / "replan.svg")
    return {"changes": rows, "drawn": drawn_rows, "day": days}


def _part(row: dict[str, Any], who: str) -> str:
    return f"{100 * row[who]['moved'] / row['bytes']:.2f} %"


def _above(rating: float, reference: float) -> str:
    return f"{100 * (rating / reference - 1):+.1f} %"


def _rows_text(rows: list[dict[str, Any]]) -> list[str]:
    header = ["tables x ranks", "change", "TorchRec moves", "optimize moves", "replan moves"]
    header += ["must move", "optimize rating", "replan rating", "replan CPU"]
    cells = [
        [
            row["instance"],
            row["change"],
            *(_part(row, who) for who in ("torchrec", "optimize", "replan")),
            f"{100 * row['least'] / row['bytes']:.2f} %",
            *(
                _above(row[who]["rating"], row["torchrec"]["rating"])
                for who in ("optimize", "replan")
            ),
            f"{1000 * row['replan']['seconds']:.0f} ms",
        ]
        for row in rows
    ]
    lines = [table(header, cells), ""]
    for row in rows:
        if row["followed"]:
            continue
        proof = "; proven: no plan meets both" if row["impossible"] else ""
        lines.append(
            f"{row['instance']}, {row['change']}: planned from scratch, {row['reason']}{proof}"
        )
    return lines


def report_text(result: dict[str, Any]) -> str:
    days = result["day"]
    lines = _rows_text(result["changes"])
    lines += ["Ratings are compared with TorchRec's; lower is better."]
    if result["drawn"]:
        lines += ["", "Models, clusters and changes drawn at random:", *_rows_text(result["drawn"])]
    scratch = sum(not row["followed"] for row in days)
    lines += [
        "",
        f"A day of {len(days)} small changes on random 50 x 16. replan must stay within 3 % of",
        f"optimize; it planned from scratch {scratch} times:",
    ]
    for who in ("torchrec", "optimize", "replan"):
        part = statistics.mean(row[who]["moved"] / row["bytes"] for row in days)
        last = days[-1][who]["rating"] / days[-1]["optimize"]["rating"]
        worst = max(row[who]["rating"] / row["optimize"]["rating"] for row in days)
        lines.append(
            f"  {who}: moves {100 * part:.2f} % per change, rating relative to optimize "
            f"{100 * (last - 1):+.2f} % at the end, {100 * (worst - 1):+.2f} % at worst"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
