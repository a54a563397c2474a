"""Runs a variant of the job that bench/ett.py measures, and leaves no process behind."""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from fastplan.measure.processes import stop

_PLAN = """
import sys, pathlib, fastplan
from bench import ett_model
kept, tables, ranks = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
planner = ett_model.planner("fastplan", ranks, kept)
fastplan.save_plan(planner.plan(ett_model.build(tables), ett_model.sharders()), kept / "plan.json")
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """The last step, the step after which the job saves, and that after which a rank dies.

    A rank dies in each of the first `kills` attempts.
    """

    last: int
    saved: int
    killed: int
    kills: int = 1


TORCHRUN = "torch.distributed.run"


def run_job(
    variant: str,
    tables: int,
    ranks: int,
    steps: Steps,
    own: Path,
    *,
    launcher: str = TORCHRUN,
    kept_before: Path | None = None,
) -> None:
    """Runs the job to its end, with one restart, in a folder that it creates.

    `launcher` is torchrun's module, or one that takes its arguments. `kept_before` is a folder with
    what an earlier job has kept. Raises SystemExit with the end of its log if it fails.
    """
    kept = own / "kept"
    if kept_before is None:
        kept.mkdir(parents=True)
    else:
        shutil.copytree(kept_before, kept)
    if variant == "loader":
        _leave_plan(tables, ranks, kept)
    torchrun = [launcher, f"--nproc-per-node={ranks}", f"--max-restarts={steps.kills}"]
    torchrun += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    job = ["bench.ett_job", f"--variant={variant}", f"--tables={tables}", f"--steps={steps.last}"]
    job += [f"--save={steps.saved}", f"--kill={steps.killed}", f"--kept={kept}", f"--folder={own}"]
    job += [f"--kills={steps.kills}"]
    environment = _environment(
        FASTPLAN_ETT=str(own / "runs"),
        FASTPLAN_ETT_LAUNCHED=str(time.time()),
        # The ranks of an attempt share one, as those of a host do; ett_job numbers the attempts.
        TORCHINDUCTOR_CACHE_DIR=str(own / "compiled"),
        TMPDIR=str(own),  # torchrun leaves a folder there
    )
    words = [sys.executable, "-W", "ignore", "-m", *torchrun, "-m", *job]
    with (own / "log").open("wb") as log:
        process = subprocess.Popen(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for this process, which then ends the others
        )
        try:
            code = process.wait()
        finally:
            stop(process)
    if code:
        raise SystemExit(f"the job failed:\n{(own / 'log').read_text()[-4000:]}")


def _leave_plan(tables: int, ranks: int, kept: Path) -> None:
    """Saves the plan that an earlier start would have saved for a plan loader."""
    words = [sys.executable, "-W", "ignore", "-c", _PLAN, str(kept), str(tables), str(ranks)]
    subprocess.run(words, check=True, env=_environment(), stderr=subprocess.DEVNULL)


def _environment(**more: str) -> dict[str, str]:
    fixed = {
        "PYTHONHASHSEED": "0",  # TorchRec's choice between equal plans depends on it
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # there are already as many ranks as cores
        # Otherwise a restart finds the addresses of dead ranks in the store that outlives them.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    return {**os.environ, **fixed, **more}
