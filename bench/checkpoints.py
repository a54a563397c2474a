"""What do checkpoints lose between plans, by TorchRec's own means and with fastplan.checkpoint?

For every pair of shardings there is a table: jobs on 2 and on 4 CPU ranks train it under the first
and save it, jobs on as many, fewer and more ranks load it under the second, and every bit of it is
compared. TorchRec's own means are DCP with `state_dict()` of the model and of its
CombinedOptimizer. DCP loads each table on its own, as it would refuse all because of one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from bench.arguments import new_parser
from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown
from bench.text import table

FILE = "checkpoints.json"
KINDS = ("bags", "sequences")
OPTIMIZERS = ("sgd", "rowwise_adagrad", "adagrad", "adam")
FEW, MANY = 2, 4  # ranks
VERDICTS = ("same", "refused", "wrong")
SIDES = ("torchrec_weights", "torchrec_states", "fastplan_weights", "fastplan_states")
_WORKER = "tests.torchrec.checkpoint_worker"

Task = dict[str, Any]
Found = dict[str, dict[str, list[str]]]  # by run and table: a verdict for each of SIDES


def main() -> int:
    parser = new_parser("bench.checkpoints", __doc__)
    parser.add_argument("--optimizers", nargs="+", choices=OPTIMIZERS, default=OPTIMIZERS)
    add_arguments(parser, FILE)
    arguments = parser.parse_args()
    return measured_or_shown(arguments, FILE, lambda: _measure(arguments), report, _failed)


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    cases = [(kind, optimizer) for kind in KINDS for optimizer in arguments.optimizers]
    found: Found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        steps = {
            f"saving on {FEW} ranks": (FEW, _saves(cases)),
            f"saving and loading on {MANY} ranks": (
                MANY,
                [*_saves(cases), *_loads(cases, FEW), *_loads(cases, MANY)],
            ),
            f"loading on {FEW} ranks": (FEW, _loads(cases, MANY)),
        }
        for number, (title, (world, tasks)) in enumerate(steps.items()):
            with Progress(title):
                found.update(run_ranks(world, folder, f"store{number}", tasks))
    return summary(found)


def _saves(cases: list[tuple[str, str]]) -> list[Task]:
    return [{"do": "save", "kind": kind, "optimizer": optimizer} for kind, optimizer in cases]


def _loads(cases: list[tuple[str, str]], saved_by: int) -> list[Task]:
    return [{**task, "do": "load", "saved_by": saved_by} for task in _saves(cases)]


def run_ranks(world: int, folder: Path, store: str, tasks: list[Task]) -> Found:
    """Runs tasks on ranks that are processes, and returns the worst verdict of the ranks."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "LOCAL_WORLD_SIZE": "2",  # ranks of a host, for table-row-wise and grid shardings
        "PYTHONPATH": ":".join(sys.path),
    }
    outputs = [folder / f"{store}-{rank}.json" for rank in range(world)]
    processes = []
    try:
        for rank, output in enumerate(outputs):
            words = [str(rank), str(world), str(folder), str(folder / store), json.dumps(tasks)]
            with output.open("w") as file:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", _WORKER, *words], stdout=file, env=environment
                    )
                )
        codes = [process.wait() for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(codes):
        raise RuntimeError(f"ranks ended with exit codes {codes}")
    found = [json.loads(output.read_text().splitlines()[-1]) for output in outputs]
    return merge_ranks(found)


def merge_ranks(ranks: list[Found]) -> Found:
    """Returns the worst verdict of all ranks for each run, table and side."""
    return {
        run: {
            name: [
                max((rank[run][name][side] for rank in ranks), key=_badness)
                for side in range(len(SIDES))
            ]
            for name in tables
        }
        for run, tables in ranks[0].items()
    }


def _badness(verdict: str) -> int:
    return VERDICTS.index(_short(verdict))


def _short(verdict: str) -> str:
    return verdict.partition(":")[0]


def summary(found: Found) -> dict[str, Any]:
    """Counts verdicts, by run and by kind of change."""
    runs, changes, wrong = [], {}, []
    for run, tables in found.items():
        kind, optimizer, saved, loaded = run.split("-")
        counts = {side: dict.fromkeys(VERDICTS, 0) for side in SIDES}
        for name, verdicts in tables.items():
            change = changes.setdefault(_change(name), [Counter() for _ in SIDES])
            for side, verdict, total in zip(SIDES, verdicts, change, strict=True):
                counts[side][_short(verdict)] += 1
                total[_short(verdict)] += 1
                if side.startswith("fastplan") and _short(verdict) == "wrong":
                    wrong.append(f"{run} {name}: {verdict}")
        head = {"kind": kind, "optimizer": optimizer, "saved": int(saved), "loaded": int(loaded)}
        runs.append({**head, "pairs": len(tables), **counts})
    return {
        "runs": runs,
        "changes": {
            name: {side: {v: totals[i][v] for v in VERDICTS} for i, side in enumerate(SIDES)}
            for name, totals in changes.items()
        },
        "reasons": _reasons(found),
        "wrong": wrong,
    }  # fmt: skip


def _change(name: str) -> str:
    """Names the kind of change of a pair of shardings."""
    before, after = name.split("--")
    if before == after:
        return "same sharding and kernel"
    words = ["fused" if "fused" in each else "dense" for each in (before, after)]
    if before == "dp_dense":
        words[0] = "data-parallel"
    if after == "dp_dense":
        words[1] = "data-parallel"
    return " to ".join(words)


def _reasons(found: Found) -> dict[str, int]:
    """Counts why fastplan has refused tables."""
    counts: Counter[str] = Counter()
    for tables in found.values():
        for verdicts in tables.values():
            verdict = verdicts[-1]
            if _short(verdict) == "refused":
                is_merge = "number per row and column shard" in verdict
                counts["column shards with different row-wise states" if is_merge else verdict] += 1
    return dict(counts)


HEADER = ("", "pairs", "TorchRec: weights", "states the same", "states refused", "states wrong",
          "fastplan: the same", "refused")  # fmt: skip


def optimizer_rows(result: dict[str, Any]) -> list[list[str]]:
    """A line for each kind of module and optimizer, over all numbers of ranks."""
    totals: dict[str, list[Any]] = {}
    for run in result["runs"]:
        name = f"{run['optimizer'].replace('_', ' ')}, {run['kind']}"
        totals.setdefault(name, []).append(run)
    return [_line(name, runs) for name, runs in totals.items()]


def change_rows(result: dict[str, Any]) -> list[list[str]]:
    """A line for each kind of change."""
    rows = sorted(result["changes"].items())
    return [_line(name, [{**each, "pairs": sum(each[SIDES[0]].values())}]) for name, each in rows]


def _line(name: str, runs: list[dict[str, Any]]) -> list[str]:
    def total(side: str, verdict: str) -> str:
        return f"{sum(run[side][verdict] for run in runs):,}"

    return [
        name,
        f"{sum(run['pairs'] for run in runs):,}",
        total("torchrec_weights", "same"),
        *(total("torchrec_states", verdict) for verdict in VERDICTS),
        *(total("fastplan_states", verdict) for verdict in VERDICTS[:2]),
    ]


def report(result: dict[str, Any]) -> str:
    parts = [table(list(HEADER), rows(result)) for rows in (optimizer_rows, change_rows)]
    reasons = [f"{count:,} refused: {why}" for why, count in result["reasons"].items()]
    return "\n\n".join([*parts, *reasons, *result["wrong"]])


def _failed(result: dict[str, Any]) -> bool:
    return bool(result["wrong"])


if __name__ == "__main__":
    sys.exit(main())
