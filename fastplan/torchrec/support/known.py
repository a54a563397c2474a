"""Sources of TorchRec that all tests have run with.

`python -m fastplan.torchrec.support.report` prints the digest of the installed one.
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
    "8f762f8dd17e2a8687496b7737b386e5": Known("1.9.2", {}),  # and 1.9.0, 1.9.1
    "48c29e186d5afc6f00bc2f332e5cd283": Known("1.8.0", {}),
    "254ae13a0b65ad496eaf81f833a86ff3": Known("1.7.0", {}),
    "272f9e4c8ab1022ca98b1c8a54e34619": Known("1.6.1", {ESTIMATES: _OLD_ESTIMATES.format("1.6")}),
    "e7f023fd982d8a8a68e4c1e7a88764f9": Known("1.5.0", {ESTIMATES: _OLD_ESTIMATES.format("1.5")}),
}
