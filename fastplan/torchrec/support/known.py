"""Sources of TorchRec that all tests have run with.

`python -m fastplan doctor --prove` shows the digest of the installed one.
"""

from __future__ import annotations

from typing import NamedTuple

from fastplan.torchrec.support.watch import ESTIMATES

_OLD_ESTIMATES = (
    "TorchRec {} estimates by other formulas than later releases; its own code estimates"
)


# The releases whose logging hooks fastplan calls itself, with TorchRec's arguments.
HOOKED = frozenset({"1.8.0", "1.9.2"})


class Known(NamedTuple):
    """A source of TorchRec.

    Attributes:
        name: the newest release with this source.
        reasons: why a part is not native, by part.
    """

    name: str
    reasons: dict[str, str]


KNOWN = {
    "2b1ea2be1cb956e533efdbe307a30490": Known("1.9.2", {}),  # and 1.9.0, 1.9.1
    "3a7e9159a8b46d9ff89869a3e7fe7b83": Known("1.8.0", {}),
    "fc8d8cc581c80102e925edd01e606ae6": Known("1.7.0", {}),
    "c66db871ddb0a3b9c3fd7039d3e699ce": Known("1.6.1", {ESTIMATES: _OLD_ESTIMATES.format("1.6")}),
    "64c2b61a93262b50c91f875fe679091c": Known("1.5.0", {ESTIMATES: _OLD_ESTIMATES.format("1.5")}),
}
