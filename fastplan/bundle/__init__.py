"""Start bundles: a job's plans and compiled code in one file, so that a restart makes neither."""

from fastplan.bundle.bundle import (
    Bundle,
    BundleMismatch,
    Loaded,
    NotTrusted,
    StoredPlan,
    open_bundle,
    parse_bundle,
)
from fastplan.bundle.format import BadBundle
from fastplan.bundle.starting import Start, start

__all__ = [
    "BadBundle",
    "Bundle",
    "BundleMismatch",
    "Loaded",
    "NotTrusted",
    "Start",
    "StoredPlan",
    "open_bundle",
    "parse_bundle",
    "start",
]
