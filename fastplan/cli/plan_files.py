"""Plan files as arguments: every format that can be read, with what reading them may need."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastplan.model.plan import Plan


def add_reading_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--trust-pickle",
        action="store_true",
        help="read pickled ShardingPlans; these can run any code",
    )


def read(path: str, args: Namespace) -> Plan:
    """The plan in a file."""
    from fastplan.plans.foreign import read_any

    return read_any(path, trust_pickle=args.trust_pickle)
