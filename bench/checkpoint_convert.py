"""How much memory and time does `fastplan checkpoint convert` take for a large checkpoint?

The checkpoint has tables of one chunk each, as table-wise tables of a job are. It is converted
to row-wise shards in a process of its own, whose peak memory and CPU time are measured.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from bench.arguments import at_least_one, new_parser
from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown

FILE = "checkpoint_convert.json"
COLUMNS, RANKS = 128, 16
_CONVERT = """
import json, sys, time
from pathlib import Path
import torch
from fastplan.checkpoint import convert
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024
Path("/proc/self/clear_refs").write_text("5")  # a peak of before the start is inherited
before, began, cpu = peak(), time.monotonic(), time.process_time()
written = convert(*sys.argv[1:])
print(json.dumps({"written": written, "imported_bytes": before, "peak_bytes": peak(),
                  "cpu_seconds": time.process_time() - cpu, "seconds": time.monotonic() - began}))
"""


def main() -> int:
    parser = new_parser("bench.checkpoint_convert", __doc__)
    parser.add_argument("--gigabytes", type=at_least_one, default=10, help="default 10")
    parser.add_argument("--tables", type=at_least_one, default=8, help="default 8")
    add_arguments(parser, FILE)
    arguments = parser.parse_args()
    return measured_or_shown(
        arguments, FILE, lambda: _measure(arguments), report, lambda result: False
    )


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    rows = int(arguments.gigabytes * 1e9 / arguments.tables / (4 * COLUMNS))
    with tempfile.TemporaryDirectory(dir=arguments.output) as name:
        folder = Path(name)
        with Progress("writing a checkpoint"):
            _write(folder / "old", rows, arguments.tables)
            _write_plan(folder / "plan.json", rows, arguments.tables)
        with Progress("converting it"):
            words = [str(folder / part) for part in ("old", "plan.json", "new")]
            done = subprocess.run(
                [sys.executable, "-c", _CONVERT, *words], capture_output=True, text=True, check=True
            )
    found = json.loads(done.stdout.splitlines()[-1])
    return {"tables": arguments.tables, "rows": rows, "columns": COLUMNS, **found}


def _write(path: Path, rows: int, tables: int) -> None:
    """Writes random tables, one after the other in memory."""
    import torch

    from fastplan.checkpoint.storage import open_writer
    from fastplan.checkpoint.writing import Block, finish, write_blocks

    path.mkdir()
    shape = (rows, COLUMNS)
    blocks = [
        Block(("model", _key(i)), shape, (0, 0), shape, torch.float32, partial(torch.rand, shape))
        for i in range(tables)
    ]
    writer = open_writer(path)
    writer.set_up_storage_writer(True)
    results = write_blocks(writer, blocks, "0")
    finish(writer, blocks, results)


def _key(number: int) -> str:
    return f"tables.embedding_bags.t{number}.weight"


def _write_plan(path: Path, rows: int, tables: int) -> None:
    from fastplan import save_plan
    from tests.torchrec.shardings import plan_of, row_wise

    sharding = row_wise(rows, *range(RANKS))
    for shard in sharding.sharding_spec.shards:
        shard.shard_sizes[1] = COLUMNS
    save_plan(plan_of({f"t{i}": sharding for i in range(tables)}), path)


def report(result: dict[str, Any]) -> str:
    return (
        f"{result['written'] / 1e9:.1f} GB in {result['tables']} chunks, converted to {RANKS} "
        f"row-wise shards per table: {result['peak_bytes'] / 1e6:.0f} MB at most, of them "
        f"{result['imported_bytes'] / 1e6:.0f} MB before the start, and "
        f"{result['cpu_seconds']:.0f} s of CPU time"
    )


if __name__ == "__main__":
    sys.exit(main())
