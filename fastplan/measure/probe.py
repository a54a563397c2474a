"""Lists the GPUs of this host in a separate process, because this allocates memory on each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import NamedTuple

from fastplan.measure.settings import MeasureError

_DRIVERS = ("/dev/nvidia0", "/dev/kfd", "/dev/dxg")
_TIMEOUT = 300.0


class Gpu(NamedTuple):
    """A GPU with its bytes of memory."""

    name: str
    total: int
    free: int


def gpus() -> list[Gpu]:
    """Returns the GPUs that torch can use.

    Raises:
        MeasureError: torch can't list them.
    """
    if not any(map(os.path.exists, _DRIVERS)):
        return []
    command = [sys.executable, "-m", "fastplan.measure.probe"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT)
        found = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        raise MeasureError("torch can't list the GPUs; `fastplan doctor` may show why") from error
    return [Gpu(*entry) for entry in found]


def main() -> None:
    """Prints the GPUs as JSON."""
    import torch

    found = []
    for number in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(number)
        found.append((torch.cuda.get_device_name(number), total, free))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
