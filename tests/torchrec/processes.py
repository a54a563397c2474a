"""Ranks as real processes, each of which prints what it found as its last line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import psutil
import torch.distributed as dist

_SECONDS = 240


def run_ranks(
    worker: str, arguments: Sequence[Sequence[Any]], **environment: str | list[str]
) -> list[Any]:
    """What each rank found; `arguments` has a line per rank, as a list in the environment has.

    No process outlives the call.
    """
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", worker, *map(str, own)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": ":".join(sys.path),
                "OMP_NUM_THREADS": "1",
                **{
                    name: value if isinstance(value, str) else value[rank]
                    for name, value in environment.items()
                },
            },
        )
        for rank, own in enumerate(arguments)
    ]
    results = []
    try:
        for process in processes:
            output, errors = process.communicate(timeout=_SECONDS)
            assert process.returncode == 0, errors
            results.append(json.loads(output.splitlines()[-1]))
    finally:
        for process in processes:
            process.kill()
    return results


def has_ended(pid: int) -> bool:
    """Whether a process that is not a child of this one ends; if not, it is killed."""
    try:
        process = psutil.Process(pid)
        process.wait(30)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        if process.status() == psutil.STATUS_ZOMBIE:  # nobody reaps it in some containers
            return True
        process.kill()
        return False
    return True


def end_rank(found: Any) -> NoReturn:
    """Prints what this rank has found, and ends its process when all ranks have come here.

    Python does not end in order: a thread of Gloo that releases a tensor at that time would abort
    the process.
    """
    dist.barrier()
    print(json.dumps(found), flush=True)
    os._exit(0)
