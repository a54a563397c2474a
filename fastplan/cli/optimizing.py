"""Options of commands that can improve on TorchRec's plans."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fastplan.cli.amounts import part
from fastplan.cli.errors import UsageError, naming_options

if TYPE_CHECKING:
    from fastplan.engine.optimize import OptimizeSettings

SECONDS = 1.0
# Options that mean something with --optimize only, by their name in the parsed arguments.
_DETAILS = (
    "time_budget",
    "move_budget",
    "seed",
    "threads",
    "minimize",
    "within",
    "pin",
    "together",
)


def add_arguments(parser: ArgumentParser, *, rules: bool) -> None:
    """`rules` adds those that speak of single tables."""
    group = parser.add_argument_group("better plans than TorchRec's")
    group.add_argument(
        "--optimize",
        action="store_true",
        help="improve on TorchRec's plan, and prove how good it is",
    )
    group.add_argument(
        "--time-budget",
        type=float,
        metavar="S",
        help=f"seconds for that; default: {SECONDS:g}, or no limit with --move-budget",
    )
    group.add_argument(
        "--move-budget",
        type=int,
        metavar="N",
        help="how much to try; gives the same plan each time",
    )
    group.add_argument("--seed", type=int, metavar="N", help="of the search; default: 0")
    group.add_argument("--threads", type=int, metavar="N", help="of the search; default: 1")
    group.add_argument(
        "--minimize",
        choices=("rating", "memory", "shards", "critical_path"),
        metavar="WHAT",
        help="rating, memory (of the fullest rank), shards or critical_path",
    )
    group.add_argument(
        "--within",
        type=part,
        metavar="PART",
        help="how far the rating may be above the best one for that; default: 1%%",
    )
    if rules:
        group.add_argument(
            "--pin",
            type=_pin,
            action="append",
            metavar="TABLE=RANK",
            help="a table on a rank, or its shards on RANK,RANK,...",
        )
        group.add_argument(
            "--together",
            type=lambda text: tuple(text.split(",")),
            action="append",
            metavar="A,B",
            help="tables that are cut alike and lie on the same ranks",
        )


def settings_of(args: Namespace) -> OptimizeSettings | None:
    """What the options ask for; None for TorchRec's plan. Raises UsageError."""
    given = {name: value for name in _DETAILS if (value := getattr(args, name, None)) is not None}
    if not args.optimize:
        if given:
            raise UsageError(f"--{next(iter(given)).replace('_', '-')} is for --optimize")
        return None
    from fastplan.engine.optimize import Objectives, OptimizeSettings

    rules = {"pins": _pins(given.pop("pin", ())), "together": given.pop("together", ())}
    chosen = {name: given.pop(name) for name in ("minimize", "within") if name in given}
    if "move_budget" not in given:
        given.setdefault("time_budget", SECONDS)
    with naming_options(ValueError, pins="pin"):
        objectives = Objectives(**chosen, **rules)
        return OptimizeSettings(**{"time_budget": None, **given}, objectives=objectives)


def _pins(given: Iterable[tuple[str, tuple[int, ...]]]) -> dict[str, tuple[int, ...]]:
    pins: dict[str, tuple[int, ...]] = {}
    for table, ranks in given:
        if table in pins:
            both = " and ".join(",".join(map(str, each)) for each in (pins[table], ranks))
            raise UsageError(
                f"--pin names the table {table!r} twice, with {both}: "
                "give the ranks of its shards as TABLE=RANK,RANK,..."
            )
        pins[table] = ranks
    return pins


def _pin(text: str) -> tuple[str, tuple[int, ...]]:
    table, _, ranks = text.rpartition("=")
    try:
        if not table:
            raise ValueError
        return table, tuple(int(rank) for rank in ranks.split(","))
    except ValueError:
        raise ArgumentTypeError(f"{text!r} must be TABLE=RANK, such as users=3") from None
