"""`python -m fastplan.launch [--preload=MODULES] ARGUMENTS`: torchrun with preloaded workers."""

from __future__ import annotations

import os
import re
import sys

from fastplan.launch.agent import Preloader, use

_PRELOAD = "--preload="
_PROCESSES = re.compile(r"--nproc[-_]per[-_]node(?:=(.*))?")


def main(words: list[str]) -> None:
    """Runs torchrun in this process."""
    modules: list[str] = []
    while words and words[0].startswith(_PRELOAD):
        modules += filter(None, words.pop(0).removeprefix(_PRELOAD).split(","))
    preloader = Preloader(modules)
    python = os.getenv("PYTHON_EXEC", sys.executable)
    preloader.start(python, _expected_environment(words))  # before this process imports torch
    try:
        from torch.distributed.run import main as torchrun

        use(preloader)
        torchrun(words)
    finally:
        preloader.end_lost_workers()


def _expected_environment(words: list[str]) -> dict[str, str]:
    """The environment of workers. torchrun sets OMP_NUM_THREADS if there are several."""
    environment = dict(os.environ)
    if _has_several_processes(words):
        environment.setdefault("OMP_NUM_THREADS", "1")
    return environment


def _has_several_processes(words: list[str]) -> bool:
    count = os.environ.get("PET_NPROC_PER_NODE", "1")
    for word, following in zip(words, [*words[1:], ""], strict=True):
        found = _PROCESSES.fullmatch(word)
        if found:
            count = following if found[1] is None else found[1]
            break
    return count != "1"


if __name__ == "__main__":
    main(sys.argv[1:])
