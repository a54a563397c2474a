"""Start bundles: a job's plans and compiled code in one file.

A restart from a bundle neither plans nor compiles.
"""

from fastplan.bundle.bundle import (
    Bundle,
    BundleMismatch,
    LoadedCode,
    StoredPlan,
    UntrustedCode,
    open_bundle,
    parse_bundle,
)
from fastplan.bundle.format import BundleError
from fastplan.bundle.starting import Start, start

__all__ = [
    "Bundle",
    "BundleError",
    "BundleMismatch",
    "LoadedCode",
    "Start",
    "StoredPlan",
    "UntrustedCode",
    "open_bundle",
    "parse_bundle",
    "start",
]
