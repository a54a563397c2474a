"""The two planners that the parity tests compare.

`FASTPLAN_PARITY_SELF_CHECK=1` puts TorchRec's own planner in fastplan's place: then the
tests examine themselves, since TorchRec must agree with TorchRec.
"""

import os
from importlib.metadata import version
from pathlib import Path

import torchrec
from torchrec.distributed.planner.planners import (
    EmbeddingShardingPlanner as TorchRecPlanner,
)

SELF_CHECK = os.environ.get("FASTPLAN_PARITY_SELF_CHECK") == "1"

if SELF_CHECK:
    FastPlanner = TorchRecPlanner
else:
    from fastplan import EmbeddingShardingPlanner as FastPlanner


def _imported_version() -> tuple[int, ...]:
    """The version of the imported package; metadata of another copy may be installed."""
    beside = sorted(Path(torchrec.__file__).parents[1].glob("torchrec-*.dist-info"))
    text = beside[0].name.split("-")[1] if beside else version("torchrec")
    return tuple(int(part) for part in text.split(".")[:2])


def _estimates_natively() -> bool:
    """Whether the core's estimates are those of this TorchRec."""
    from fastplan.torchrec.differences.estimates import MISSING
    from fastplan.torchrec.support import support
    from fastplan.torchrec.support.watch import ESTIMATES

    return not MISSING and ESTIMATES not in support.decide().reasons


TORCHREC_VERSION = _imported_version()
ESTIMATES_NATIVELY = SELF_CHECK or _estimates_natively()

__all__ = [
    "ESTIMATES_NATIVELY",
    "SELF_CHECK",
    "TORCHREC_VERSION",
    "FastPlanner",
    "TorchRecPlanner",
]
