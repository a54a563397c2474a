"""Labels of a job: short texts that fleets of jobs are filtered and grouped by.

They come from `ett.install(labels=...)`, from FASTPLAN_ETT_LABELS=team=ads,model=dlrm, and from
what schedulers set. The first source that has a name wins. Labels come from the code of the job and
from its environment, so nothing here raises because of them.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastplan.ett.events import to_text

LABELS = "FASTPLAN_ETT_LABELS"
KNOWN = ("job", "model", "team", "cluster", "revision")
MOST_LABELS = 32
LONGEST_LABEL = 200
_SCHEDULERS = {
    "job": ("SLURM_JOB_NAME", "JOB_NAME"),
    "cluster": ("SLURM_CLUSTER_NAME",),
    "revision": ("GIT_COMMIT", "GITHUB_SHA", "CI_COMMIT_SHA"),
    # What `imports.launchers` finds a job by. A pod's name is its host's, unless it is given.
    "slurm_job": ("SLURM_JOB_ID",),
    "pod": ("POD_NAME",),
}
_REVISION = re.compile(r"[0-9a-f]{40,64}")
_SMALL = 1 << 16  # bytes of a file of git that are read


def job_labels(given: Any = None) -> dict[str, str]:
    """Returns the labels of this process.

    Args:
        given: The labels of `ett.install`, which win over the environment.
    """
    found: dict[str, str] = {}
    if isinstance(given, Mapping):
        found = clean_labels(given)
    for name, text in parse_labels(os.environ.get(LABELS, "")).items():
        found.setdefault(name, text)
    for name, variables in _SCHEDULERS.items():
        for variable in variables:
            if os.environ.get(variable):
                found.setdefault(name, to_text(os.environ[variable], LONGEST_LABEL))
    if "pod" not in found and "KUBERNETES_SERVICE_HOST" in os.environ:
        found["pod"] = to_text(socket.gethostname(), LONGEST_LABEL)
    if "revision" not in found and (revision := _git_revision(Path.cwd)):
        found["revision"] = revision
    return dict(list(found.items())[:MOST_LABELS])


def parse_labels(text: str) -> dict[str, str]:
    """Returns the labels of `team=ads,model=dlrm`; parts without `=` are skipped."""
    pairs = (part.partition("=") for part in text.split(","))
    return clean_labels({name.strip(): value.strip() for name, sep, value in pairs if sep})


def clean_labels(given: Mapping[Any, Any]) -> dict[str, str]:
    """Returns labels as short texts, and at most MOST_LABELS of them; empty ones are dropped."""
    found: dict[str, str] = {}
    try:
        for name, value in given.items():
            if len(found) == MOST_LABELS:
                break
            key, text = to_text(name, LONGEST_LABEL), to_text(value, LONGEST_LABEL)
            if key and text:
                found[key] = text
    except Exception:  # a mapping of the job's own, which may raise anything
        pass
    return found


def _git_revision(folder: Any) -> str | None:
    """Returns the commit that is checked out in the working directory, without running git."""
    try:
        place = folder()
        git = next((p / ".git" for p in (place, *place.parents) if (p / ".git").is_dir()), None)
        if git is None:
            return None
        head = _text(git / "HEAD")
        if not head.startswith("ref: "):
            return head if _REVISION.fullmatch(head) else None
        name = head.removeprefix("ref: ")
        if re.fullmatch(r"refs/[\w./-]+", name) is None or ".." in name:
            return None
        loose = git / name
        if loose.is_file():
            found = _text(loose)
            return found if _REVISION.fullmatch(found) else None
        for line in _text(git / "packed-refs").splitlines():
            revision, _, ref = line.partition(" ")
            if ref == name and _REVISION.fullmatch(revision):
                return revision
    except (OSError, ValueError):
        pass
    return None


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_SMALL).decode("ascii", "replace").strip()
