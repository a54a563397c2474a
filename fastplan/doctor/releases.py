"""Releases of torch, FBGEMM and TorchRec that belong together.

TorchRec and FBGEMM are released with every torch and share their numbers. FBGEMM's libraries are
built against one torch and mostly don't load with another; TorchRec is Python, and may work.
"""

from __future__ import annotations

import re

from fastplan.spec.stock import VERSIONS

# TorchRec and FBGEMM -> torch.
TORCH_OF = {
    "1.9": "2.14",
    "1.8": "2.13",
    "1.7": "2.12",
    "1.6": "2.11",
    "1.5": "2.10",
    "1.4": "2.9",
    "1.3": "2.8",
    "1.2": "2.7",
    "1.1": "2.6",
    "1.0": "2.5",
}
RELEASE_OF = {torch: release for release, torch in TORCH_OF.items()}


def minor(version: str) -> str | None:
    """`2.13` of `2.13.0+cpu`; None for nightly builds, which belong to no release."""
    found = re.match(r"(\d{1,2}\.\d+)\.\d+(?!.*(dev|git))", version)
    return found[1] if found else None


def supported_torchrec(torch: str | None) -> str | None:
    """The TorchRec that fastplan supports and that belongs to this torch."""
    release = RELEASE_OF.get(torch or "")
    return next((version for version in VERSIONS if minor(version) == release), None)
