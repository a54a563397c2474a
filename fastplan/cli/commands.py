"""The list of commands, available without importing any of them.

A command is a click command of the same name in a module of `fastplan.cli`, and a line in COMMANDS.
Importing the module must load neither torch nor numpy: help and completion import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

# What `fastplan --help` shows: a line about each command, by group.
GROUPS = {
    "Plan": {
        "plan": "plan a spec file or a real model on a cluster",
        "export": "export a real model to a spec file",
        "precompute": "plan models on many clusters, fill a cache and show which clusters fit",
    },
    "Look": {
        "inspect": "show what a plan costs and what limits it",
        "compare": "show what changes from one plan to another",
        "convert": "write a plan in another format",
        "skus": "list named hardware",
    },
    "Measure": {
        "measure": "run plans on this machine's devices and time their steps",
        "calibrate": "measure the constants that estimates should use",
        "ett": "show where a job's time went, and what faster planning would gain",
    },
    "Cache": {
        "cache": "list, show, check and prune cached plans",
        "bundle": "put plans and compiled code into one file for restarts",
    },
    "Help": {
        "doctor": "find out what is wrong with this installation",
        "completion": "print a shell completion script",
    },
}
COMMANDS = {name: help for group in GROUPS.values() for name, help in group.items()}
# The module of fastplan.cli that a command is in, if it has another name.
_MODULES = {
    "calibrate": "measure",
    "compare": "plans",
    "completion": "help",
    "convert": "plans",
    "doctor": "help",
    "export": "plan",
    "inspect": "plans",
}
# A typical use of each.
EXAMPLES = """
fastplan plan model.yaml --sku h100 --world-size 64
fastplan export mypkg.models:build -o model.yaml
fastplan precompute sweep.yaml --cache /shared/plans
fastplan inspect plan.json
fastplan compare before.json after.json
fastplan convert plan.json -o plan --to torcheasyrec
fastplan skus
fastplan measure model.yaml plan.json --nproc 8 -o runs/
fastplan calibrate --nproc 8 --model model.yaml -o my-cluster.yaml
fastplan ett report runs/
fastplan cache ls
fastplan bundle save -o start.bundle --plans /shared/plans
fastplan doctor
source <(fastplan completion bash)
"""
# Options before the command.
OPTIONS = {
    "--help": "show help and examples of a command",
    "--debug": "show where an error comes from",
    "--no-color": "no colours, as NO_COLOR=1 does",
    "--version": "print the version",
}


def load(name: str) -> click.Command:
    """Imports a command."""
    from importlib import import_module

    module = import_module(f"fastplan.cli.{_MODULES.get(name, name)}")
    found: click.Command = getattr(module, name)
    return found


def top() -> click.Group:
    """Returns all commands as one click group, which imports only the called command."""
    from fastplan.cli.parser import Group, Option

    class Top(Group):
        kind = "command"

        def list_commands(self, ctx: click.Context) -> list[str]:
            return list(COMMANDS)

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            return load(cmd_name) if cmd_name in COMMANDS else None

        def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
            from click.shell_completion import CompletionItem

            words = OPTIONS if incomplete.startswith("-") else COMMANDS
            return [
                CompletionItem(word, help=help)
                for word, help in words.items()
                if word.startswith(incomplete)
            ]

    # `main` handles it without click; it is here as a suggestion for misspelt words.
    version = Option("--version", OPTIONS["--version"], expose_value=False)
    return Top("fastplan", params=[version], examples=EXAMPLES)
