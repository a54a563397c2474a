"""The process that runs TorchRec's own planner for a comparison.

It reads inputs and fastplan's plan from its standard input, and writes one line of JSON.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from typing import Any

NICENESS = 19  # behind everything else on the machine
_POLL_SECONDS = 0.5


def main(parent: int) -> None:
    """Plans, compares and writes the result. Ends when the parent ends."""
    os.nice(NICENESS)
    # Ctrl-C is for the job, which then ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    # Only the result goes to standard output, not what imported modules print.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    result = _result(sys.stdin.buffer)
    output.write(json.dumps(result) + "\n")
    output.flush()
    # Modules of the job may have started threads that don't end.
    os._exit(0)


def _end_with(parent: int) -> None:
    """Ends this process with its parent, which can be killed without a chance to end it."""
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(1)


def _result(stream: Any) -> dict[str, Any]:
    try:
        # Written by fastplan in the parent process.
        inputs = pickle.load(stream)
        ours = pickle.load(stream)
    except Exception as error:
        return {"reason": f"the inputs can't be read in another process: {_text(error)}"}
    from fastplan.torchrec.shadow.run import plan_and_compare

    return plan_and_compare(inputs, ours)


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
