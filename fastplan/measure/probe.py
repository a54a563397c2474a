"""The GPUs of this host, asked for in a process of its own: asking takes memory on each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import NamedTuple

from fastplan.measure.settings import MeasureError

_DRIVERS = ("/dev/nvidia0", "/dev/kfd", "/dev/dxg")
_PATIENCE = 300.0


class Gpu(NamedTuple):
    name: str
    total: int  # bytes
    free: int


def gpus() -> list[Gpu]:
    """The GPUs that torch can use here. Raises MeasureError if torch can't be asked."""
    if not any(map(os.path.exists, _DRIVERS)):
        return []
    command = [sys.executable, "-m", "fastplan.measure.probe"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)
        found = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        raise MeasureError(
            "torch does not tell which GPUs there are; `fastplan doctor` may know why"
        ) from error
    return [Gpu(*entry) for entry in found]


def main() -> None:
    import torch

    found = []
    for number in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(number)
        found.append((torch.cuda.get_device_name(number), total, free))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
