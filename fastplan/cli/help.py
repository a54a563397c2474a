"""`fastplan doctor` and `fastplan completion`."""

from __future__ import annotations

import sys

from fastplan.cli.errors import FAILED, OK
from fastplan.cli.options import json_option
from fastplan.cli.parser import Args, argument, command, option

DOCTOR_EXAMPLES = """
fastplan doctor
fastplan doctor --json
fastplan doctor --prove
"""
COMPLETION_EXAMPLES = """
source <(fastplan completion bash)
fastplan completion bash > ~/.local/share/bash-completion/completions/fastplan
fastplan completion zsh > "${fpath[1]}/_fastplan"
fastplan completion fish > ~/.config/fish/completions/fastplan.fish
"""
_SHELLS = ("bash", "zsh", "fish")


@command("doctor", DOCTOR_EXAMPLES)
@option("--prove", "compare 600 plans with TorchRec's planner, in minutes")
@json_option("findings as JSON")
def doctor(args: Args) -> int:
    """Looks at Python, numpy, the native core, torch, FBGEMM and TorchRec, the plan cache and the
    environment, and shows which parts of planning are native with the installed TorchRec.
    Packages are imported in another process, so a broken one can't stop it.
    Problems are shown with the command that fixes them, if any; replace words in capitals, such as
    DIR. The exit code is 2 if there is a problem.
    """
    from fastplan.cli.doctor import diagnose

    return diagnose(args.json, prove=args.prove)


@command("completion", COMPLETION_EXAMPLES)
@argument("SHELL", ", ".join(_SHELLS), name="shell", choices=_SHELLS)
def completion(args: Args) -> int:
    """Prints a script for a shell that completes fastplan's commands, options, files and names of
    hardware. The script asks fastplan for them, so it stays valid after an update.
    """
    from click.shell_completion import ShellComplete, get_completion_class

    from fastplan.cli.main import COMPLETE, top

    found = get_completion_class(args.shell)
    assert found is not None
    # Not the class's own `source`: bash's would run bash to check its version.
    sys.stdout.write(ShellComplete.source(found(top(), {}, "fastplan", COMPLETE)))
    return OK


def complete(instruction: str) -> int:
    """Completes for a script: prints the words that can follow those in the environment.

    Args:
        instruction: What the script asks, such as `bash_complete`.

    Returns:
        The exit code. Nothing raises: a message would land in the user's command line.
    """
    from click.shell_completion import get_completion_class

    from fastplan.cli.main import COMPLETE, top

    try:
        found = get_completion_class(instruction.partition("_")[0])
        assert found is not None
        shell = found(top(), {}, "fastplan", COMPLETE)
        words, incomplete = shell.get_completion_args()
        words = [word for word in words if word != "="]  # bash's word in `--option=value`
        print("\n".join(map(shell.format_completion, shell.get_completions(words, incomplete))))
        return OK
    except Exception:
        return FAILED
