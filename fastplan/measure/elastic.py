"""torchrun, noting how each rank ended: `python -m fastplan.measure.elastic FOLDER ARGUMENTS`."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from fastplan.measure.processes import adopt_orphans, end_with_parent, kill_descendants


def main(folder: Path, arguments: list[str]) -> int:
    adopt_orphans()
    end_with_parent(signal.SIGTERM)  # which torchrun takes for the order to end its workers
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        run.run(run.parse_args(arguments))
    except ChildFailedError as error:
        codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
        (folder / "exits.json").write_text(json.dumps(codes))
        print(error, file=sys.stderr)
        return 1
    finally:
        kill_descendants()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
