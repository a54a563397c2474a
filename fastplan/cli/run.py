"""`fastplan run`: torchrun, with workers that need no imports."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import NoReturn

from fastplan.cli.errors import CommandError
from fastplan.cli.parser import Args, argument, command, option

EXAMPLES = """
fastplan run -- --nproc-per-node=8 train.py --batch 4096
fastplan run --preload mypkg.models mypkg.data -- --nnodes=2 --nproc-per-node=8 -m mypkg.train
"""


@command("run", examples=EXAMPLES)
@option("--preload MODULE...", "import these as well; `module:function` is also called")
@argument("ARGUMENT...", "arguments of torchrun, after --", name="words")
def run(args: Args) -> NoReturn:
    """
    Runs torchrun. Its workers are forks of a process that has torch, TorchRec and fastplan
    imported, so that restarts are shorter. A worker that can't be a fork starts as usual, and the
    reason is logged.
    """
    if find_spec("torch") is None:
        raise CommandError("torch is not installed; `fastplan doctor` shows how to install it")
    wrong = [name for name in args.preload if "," in name or not name.strip()]
    if wrong:
        raise CommandError(f"--preload: {wrong[0]!r} is not the name of a module")
    preload = [f"--preload={name}" for name in args.preload]
    # Another program in the same process: its errors and signals end as torchrun's do.
    os.execv(sys.executable, [sys.executable, "-m", "fastplan.launch", *preload, *args.words])
