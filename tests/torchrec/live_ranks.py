"""Four gloo ranks, forked from one process that has imported torch and TorchRec."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from tests.torchrec.live_jobs import HOST, WORLD

_SECONDS = 60  # for a collective


def fork_ranks(folder: Path, work: Callable[[int], Any]) -> list[Any]:
    """Runs a function on each rank. Returns what each returned; None for a rank that was killed."""
    folder.mkdir(parents=True, exist_ok=True)
    processes = []
    for rank in range(WORLD):
        child = os.fork()
        if not child:
            _run(folder, rank, work)
        processes.append(child)
    for process in processes:
        os.waitpid(process, 0)
    found = [folder / f"{rank}.json" for rank in range(WORLD)]
    return [json.loads(each.read_text()) if each.exists() else None for each in found]


def _run(folder: Path, rank: int, work: Callable[[int], Any]) -> None:
    """Never returns: the fork ends here."""
    try:
        os.environ["LOCAL_WORLD_SIZE"] = str(HOST)
        logging.disable(logging.ERROR)
        warnings.simplefilter("ignore")
        store = dist.FileStore(f"{folder}/store", WORLD)
        dist.init_process_group(
            *("gloo",),
            store=store,
            rank=rank,
            world_size=WORLD,
            timeout=timedelta(seconds=_SECONDS),
        )
        result = json.dumps(work(rank))
        (folder / f"{rank}.json").write_text(result)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)
