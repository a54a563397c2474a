"""The commands there are, known without importing any of them.

A command is the module `fastplan.cli.<name>` (see CommandModule) and a line in COMMANDS. Importing
it must load neither torch nor numpy: completion imports all of them.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from importlib import import_module
from typing import NamedTuple, Protocol, cast

GROUPS = ("Plan", "Look", "Measure", "Cache", "Help")


class Command(NamedTuple):
    """A line of the map that `fastplan --help` shows."""

    name: str
    group: str  # one of GROUPS
    help: str  # one line
    example: str  # a typical use


COMMANDS = (
    Command(
        "plan",
        "Plan",
        "plan a spec file or a real model on a cluster",
        "fastplan plan model.yaml --sku h100 --world-size 64",
    ),
    Command(
        "export",
        "Plan",
        "write a real model down as a spec file",
        "fastplan export mypkg.models:build -o model.yaml",
    ),
    Command(
        "precompute",
        "Plan",
        "plan models x hardware x sizes into a cache, and ask which fits",
        "fastplan precompute sweep.yaml --cache /shared/plans",
    ),
    Command(
        "inspect",
        "Look",
        "show what a plan costs and what limits it",
        "fastplan inspect plan.json",
    ),
    Command(
        "compare",
        "Look",
        "show what changes from one plan to another",
        "fastplan compare before.json after.json",
    ),
    Command(
        "measure",
        "Measure",
        "run plans on the devices at hand and time their steps",
        "fastplan measure model.yaml plan.json --nproc 8 -o runs/",
    ),
    Command(
        "convert",
        "Look",
        "write a plan in another format",
        "fastplan convert plan.json -o plan --to torcheasyrec",
    ),
    Command("skus", "Look", "list the hardware that has a name", "fastplan skus"),
    Command(
        "calibrate",
        "Measure",
        "measure the constants that estimates should use",
        "fastplan calibrate --nproc 8 --model model.yaml -o my-cluster.yaml",
    ),
    Command(
        "ett",
        "Measure",
        "show where a job's time went, and what faster planning would gain",
        "fastplan ett report runs/",
    ),
    Command("cache", "Cache", "list, show, check and prune cached plans", "fastplan cache ls"),
    Command(
        "bundle",
        "Cache",
        "put plans and compiled code into one file for restarts",
        "fastplan bundle save -o start.bundle --plans /shared/plans",
    ),
    Command("doctor", "Help", "find out what is wrong with this installation", "fastplan doctor"),
    Command(
        "completion",
        "Help",
        "let a shell complete fastplan's commands and options",
        "source <(fastplan completion bash)",
    ),
)


class CommandModule(Protocol):
    """What a command's module has.

    An argument whose metavar is FILE, DIR or WHERE is completed as a path.
    """

    HELP: str  # what it does, in a sentence or two
    EXAMPLES: str  # a command line per line

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds everything but the options that all commands have."""

    def run(self, args: Namespace) -> int:
        """Does it and returns the exit code; raises for errors, prints results only."""


def load(command: Command) -> CommandModule:
    """The command's module."""
    return cast(CommandModule, import_module(f"fastplan.cli.{command.name}"))
