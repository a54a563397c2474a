"""`fastplan measure`: runs plans on the devices at hand."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from fastplan.cli.errors import INTERRUPTED, OK, CommandError, naming_options
from fastplan.cli.launching import add_group_arguments, check_installed, group_of, room_of
from fastplan.cli.plan_files import add_reading_arguments, read
from fastplan.cli.targets import check_sizes, is_function

if TYPE_CHECKING:
    from fastplan.measure.failures import Failure
    from fastplan.measure.prepare import Subject
    from fastplan.measure.settings import Group, Settings

HELP = (
    "Runs plans on the devices at hand and times a step of each: the model's embedding modules are "
    "sharded by TorchRec, fed batches by the spec's pooling factors, and trained. Plans take turns "
    "so that a machine that gets slower is no plan's fault. `fastplan compare --measured` puts the "
    "results beside the estimates."
)
EXAMPLES = """
fastplan measure model.yaml plan_a.json plan_b.json --nproc 8 -o runs/
fastplan measure mypkg.models:build plan.json --nproc 8 --zipf 1.1 -o runs/
fastplan measure model.yaml plan.json --nproc 4 --device cpu --scale-rows auto -o runs/
fastplan measure model.yaml plan.json --nproc 8 --nnodes 2 --rdzv-endpoint host0:29400 -o runs/
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("model", metavar="FILE", help="a spec file, or package.module:function")
    parser.add_argument("plans", metavar="FILE", nargs="+", help="plan files")
    parser.add_argument(
        "-o", "--output", metavar="DIR", required=True, help="folder for the results, a new one"
    )
    add_group_arguments(parser)
    steps = parser.add_argument_group("batches and steps")
    steps.add_argument("--batch-size", type=int, metavar="N", help="batch of one rank")
    steps.add_argument("--rounds", type=int, default=5, metavar="N", help="turns of each plan (5)")
    steps.add_argument("--steps", type=int, default=10, metavar="N", help="timed in a turn (10)")
    steps.add_argument("--warmup", type=int, default=3, metavar="N", help="before them (3)")
    steps.add_argument(
        "--lengths", choices=("fixed", "poisson"), default="fixed", help="of bags around the mean"
    )
    steps.add_argument(
        "--zipf", type=float, default=0.0, metavar="S", help="skew of ids; 0, the default, is none"
    )
    steps.add_argument("--seed", type=int, default=0, metavar="N", help="of all that is drawn")
    steps.add_argument(
        "--dataset",
        metavar="NAME",
        help="package.module:function(rank, ranks) that yields KeyedJaggedTensors",
    )
    steps.add_argument(
        "--scale-rows",
        type=_scale,
        default=1,
        metavar="N",
        help="divide tables' rows by N, or by what it takes to fit (`auto`)",
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    add_reading_arguments(parser)


def run(args: Namespace) -> int:
    from fastplan.measure.settings import MeasureError, Settings

    check_sizes(args, "batch_size")
    check_installed("torch", "fbgemm_gpu", "torchrec")
    group = group_of(args)
    with naming_options(MeasureError):
        settings = Settings(
            rounds=args.rounds,
            steps=args.steps,
            warmup=args.warmup,
            lengths=args.lengths,
            zipf=args.zipf,
            seed=args.seed,
            dataset=args.dataset,
        )
    subject = _subject(args, group)
    folder = Path(args.output)
    try:
        failures = _measure(args, folder, subject, group, settings)
    except KeyboardInterrupt:
        kept = f"finished rounds are in {folder}" if _is_first(folder) else "no round was finished"
        print(f"\nfastplan: interrupted; {kept}", file=sys.stderr)
        return INTERRUPTED
    _print(args, folder, has_results=group.hosts == 1 or _is_first(folder))
    if failures:
        count = f"{len(failures)} of {len(subject.plans)} plans failed"
        told = "; ".join(failure.text(subject.labels) for failure in failures)
        raise CommandError(f"{count}: {told}; logs are in {folder / 'logs'}")
    return OK


def _measure(
    args: Namespace, folder: Path, subject: Subject, group: Group, settings: Settings
) -> list[Failure]:
    from fastplan.cli.terminal import Progress
    from fastplan.measure.run import measure

    done = 0
    with Progress("measuring", len(subject.plans) * settings.rounds) as bar:

        def progress(count: int) -> None:
            nonlocal done
            bar.advance(count - done)
            done = count

        return measure(
            folder,
            subject,
            group,
            settings,
            room=room_of(group),
            scale=args.scale_rows,
            progress=progress,
        )


def _subject(args: Namespace, group: Group) -> Subject:
    from dataclasses import replace

    from fastplan.measure.prepare import Subject
    from fastplan.spec.read import read_spec

    target = args.model if is_function(args.model) else None
    if target is not None:
        from fastplan.torchrec.models import export_model

        spec = export_model(target, world_size=group.ranks, batch_size=args.batch_size)
    else:
        spec = read_spec(args.model)
        if args.batch_size is not None:
            spec = replace(spec, batch_size=args.batch_size)
    plans = tuple(read(path, args) for path in args.plans)
    labels = [
        path if args.plans.count(path) == 1 else f"{path} #{1 + args.plans[:i].count(path)}"
        for i, path in enumerate(args.plans)
    ]
    return Subject(spec, target, plans, tuple(labels))


def _is_first(folder: Path) -> bool:
    """Whether results are here: rank 0 writes them on its host."""
    file = folder / "rounds.jsonl"
    return file.exists() and os.path.getsize(file) > 0


def _print(args: Namespace, folder: Path, *, has_results: bool) -> None:
    from fastplan.measure.results import read_runs

    if not has_results:
        print("done; the results are on the host of rank 0")
        return
    runs = read_runs(folder)
    if args.json:
        from json import dumps

        from fastplan.measure.text import runs_json

        print(dumps(runs_json(runs), indent=2))
        return
    from fastplan.measure.text import runs_text
    from fastplan.report.terminal import Style

    print(runs_text(runs, Style.of(sys.stdout)), end="")
    print(f"\nwritten: {folder}")


def _scale(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 1 << 24:
        raise ArgumentTypeError("must be `auto`, or a whole number of at least 1")
    return int(text)
