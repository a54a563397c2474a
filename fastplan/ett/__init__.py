"""Effective Training Time: records where a job's time goes, and the share of planning in it.

    from fastplan import ett

    ett.install()                      # records into FASTPLAN_ETT, if that is set
    for number, batch in enumerate(batches, start):
        train(batch)
        ett.step(number)

`fastplan ett report DIR` shows the result. Importing this package installs nothing, and does not
import torch.
"""

from __future__ import annotations

from fastplan.ett.hooks import install, uninstall
from fastplan.ett.recording import checkpoint, failure, phase, start, step, stop

__all__ = ["checkpoint", "failure", "install", "phase", "start", "step", "stop", "uninstall"]
