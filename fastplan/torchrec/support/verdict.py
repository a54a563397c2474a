"""The verdict on the TorchRec of this process: known, proven, or not native.

A source that all tests have run with is known. Any other is proven at first use: a self-check plans
small models with both planners. Its verdict is kept in a private directory of the user.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastplan.files.private import DirectoryNotPrivate, private_directory
from fastplan.model.log import escaped_logger
from fastplan.torchrec.support.digest import own_digest, torchrec_digest, torchrec_version
from fastplan.torchrec.support.known import KNOWN
from fastplan.torchrec.support.watch import PLANNER, STATISTICS, Watch

logger = escaped_logger(__name__)

_VARIABLE = "FASTPLAN_PROOF"
_NO_STATISTICS = "the self-check does not compare tables of statistics"
_LONGEST = 100_000  # characters of a kept verdict
_MOST = 50  # parts in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is native with a TorchRec.

    Attributes:
        name: identifies plans of this source; a release for known ones.
        digest: of the source.
        origin: "known", "proven", or "skipped".
        reasons: why a part is not native, by part.
        plans: how many plans were compared.
        seconds: how long that took.
    """

    name: str
    digest: str
    origin: str
    reasons: Mapping[str, str] = field(default_factory=dict)
    plans: int = 0
    seconds: float = 0.0

    @property
    def note(self) -> str | None:
        """What a report says about plans of this TorchRec; None if it is known."""
        if self.origin != "proven":
            return None
        return f"TorchRec {self.name} is not known; {self.plans} plans of a self-check agreed"


def verdict(watch: Watch) -> Verdict:
    """Returns the verdict on TorchRec. The environment variable FASTPLAN_PROOF changes it:

    `skip` runs no self-check, so that TorchRec's own planner plans if the source is not known;
    `force` runs it even if the source is known or has a verdict.
    """
    digest, version = torchrec_digest(watch), torchrec_version()
    how = os.environ.get(_VARIABLE, "")
    if how not in ("", "auto", "skip", "force"):
        logger.warning("fastplan: %s must be auto, skip or force, not %r", _VARIABLE, how)
    known = KNOWN.get(digest)
    if known is not None and how != "force":
        return Verdict(name=known.name, digest=digest, origin="known", reasons=known.reasons)
    name = f"{version} ({digest[:8]})"
    if how == "skip":
        reason = f"TorchRec {name} is not known, and {_VARIABLE}=skip skips the self-check"
        return Verdict(name=name, digest=digest, origin="skipped", reasons={PLANNER: reason})
    file = _file(digest)
    kept = _read(file) if how != "force" else None
    if kept is not None:
        return Verdict(name=name, digest=digest, origin="proven", **kept)
    found = proven(name, digest)
    _keep(file, found)
    return found


def proven(name: str, digest: str) -> Verdict:
    """Runs the self-check and returns its verdict. Never raises."""
    from fastplan.torchrec.support.proof import prove

    start = time.perf_counter()
    try:
        reasons, plans = prove()
    except Exception as error:
        logger.warning("fastplan: the self-check failed", exc_info=True)
        reasons = {PLANNER: f"the self-check failed with {type(error).__name__}: {error}"}
        plans = 0
    reasons = {part: f"TorchRec {name}: {reason}" for part, reason in reasons.items()}
    reasons.setdefault(STATISTICS, _NO_STATISTICS)
    seconds = time.perf_counter() - start
    differing = [reason for reason in reasons.values() if reason is not _NO_STATISTICS]
    log = logger.warning if differing else logger.info
    log(
        "fastplan: TorchRec %s is not known; a self-check compared %d plans in %.1f s: %s",
        name,
        plans,
        seconds,
        "; ".join(differing) or "all agree",
    )
    return Verdict(
        name=name, digest=digest, origin="proven", reasons=reasons, plans=plans, seconds=seconds
    )


def _file(digest: str) -> Path | None:
    """Returns where a verdict is kept; None without a private directory."""
    from fastplan.cache.stores import StoreError, default_directory

    try:
        folder = private_directory(default_directory().with_name("verdicts"), "XDG_CACHE_HOME")
        return folder / f"{digest}-{own_digest()}.json"
    except (DirectoryNotPrivate, StoreError, OSError) as error:
        logger.info("fastplan: the verdict of the self-check is not kept: %s", error)
        return None


def _read(file: Path | None) -> dict[str, Any] | None:
    """Returns the fields of a kept verdict; None if there is none, or a damaged one."""
    if file is None:
        return None
    with suppress(OSError, ValueError, KeyError, TypeError):
        with file.open(encoding="utf-8") as opened:
            found = json.loads(opened.read(_LONGEST))
        reasons, plans, seconds = found["reasons"], found["plans"], found["seconds"]
        if (
            isinstance(reasons, dict)
            and len(reasons) <= _MOST
            and all(isinstance(text, str) for pair in reasons.items() for text in pair)
            and isinstance(plans, int)
            and isinstance(seconds, float)
        ):
            return {"reasons": reasons, "plans": plans, "seconds": seconds}
    return None


def _keep(file: Path | None, found: Verdict) -> None:
    from fastplan.files.storage import replace_file

    if file is not None:
        text = json.dumps(
            {"reasons": dict(found.reasons), "plans": found.plans, "seconds": found.seconds}
        )
        with suppress(OSError):
            replace_file(file, [text.encode()], others_write=False)
