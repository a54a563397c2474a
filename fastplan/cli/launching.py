"""Arguments of commands that start ranks: how many, where, and for how long."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from fastplan.cli.errors import CommandError

if TYPE_CHECKING:
    from fastplan.measure.scaling import Room
    from fastplan.measure.settings import Group

# torchrun's, handed on as they are.
_TORCHRUN = ("node-rank", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "master-addr", "master-port")


def add_group_arguments(parser: ArgumentParser) -> None:
    ranks = parser.add_argument_group("ranks")
    ranks.add_argument("--nproc", type=int, required=True, metavar="N", help="ranks of this host")
    ranks.add_argument(
        "--device", choices=("auto", "cuda", "cpu"), default="auto", help="auto: GPUs if there are"
    )
    ranks.add_argument(
        "--threads", type=int, metavar="N", help="of each rank; default: its share of the cores"
    )
    ranks.add_argument(
        "--timeout",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="give up after so many without any progress (300)",
    )
    ranks.add_argument("--nnodes", type=int, default=1, metavar="N", help="hosts (1)")
    for name in _TORCHRUN:
        ranks.add_argument(f"--{name}", metavar="X", help="as torchrun has it, on several hosts")


def check_installed(*modules: str) -> None:
    """Raises CommandError for the first that is not there: ranks could only die of it."""
    for module in modules:
        if not _is_there(module):
            raise CommandError(
                f"ranks need {module}, which is not installed; `fastplan doctor` tells how to"
            )


def _is_there(module: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def group_of(args: Namespace) -> Group:
    """The processes that the arguments mean."""
    from fastplan.measure.probe import gpus
    from fastplan.measure.settings import Group

    _check(args)
    device = args.device
    if device != "cpu":
        found = len(gpus())
        if device == "cuda" and not found:
            raise CommandError("torch finds no GPU here; `--device cpu` measures on the CPU")
        device = "cuda" if found else "cpu"
        if device == "cuda" and found < args.nproc:
            raise CommandError(
                f"{args.nproc} ranks need a GPU each, and torch finds {found}: give --nproc "
                f"{found}, or --device cpu"
            )
    given = [(name, getattr(args, name.replace("-", "_"))) for name in _TORCHRUN]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Group(
        device=device,
        ranks_per_host=args.nproc,
        hosts=args.nnodes,
        threads=args.threads or max(1, (cores or 1) // args.nproc),
        timeout=args.timeout,
        torchrun=tuple(
            word for name, value in given if value is not None for word in (f"--{name}", value)
        ),
    )


def _check(args: Namespace) -> None:
    for name in ("nproc", "nnodes", "threads", "timeout"):
        value = getattr(args, name)
        if value is not None and not value > 0:
            raise CommandError(f"--{name} must be more than 0, not {value:g}")
    if args.nnodes == 1 and (
        given := [name for name in _TORCHRUN if getattr(args, name.replace("-", "_")) is not None]
    ):
        raise CommandError(f"--{given[0]} is for several hosts: give --nnodes, too")
    if args.nnodes > 1 and args.rdzv_endpoint is None and args.master_addr is None:
        raise CommandError("several hosts must know where to meet: give --rdzv-endpoint HOST:PORT")


def room_of(group: Group) -> Room:
    """The memory that plans may take here."""
    from fastplan.measure.probe import gpus
    from fastplan.measure.scaling import Room, free_host_memory

    devices = gpus() if group.device == "cuda" else []
    smallest = min((gpu.free for gpu in devices[: group.ranks_per_host]), default=None)
    return Room(free_host_memory(), smallest)
