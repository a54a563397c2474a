"""Everything doctor looks at, in order."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryFile

from fastplan import __version__
from fastplan.cache.stores import GuardedStore, StoreError, default_directory, kind_of, open_store
from fastplan.doctor.findings import NOTE, OK, PROBLEM, Finding
from fastplan.doctor.fixes import install, pip
from fastplan.doctor.installed import Stack, module_folder, read_stack, version_of
from fastplan.doctor.probe import Outcome, try_imports
from fastplan.doctor.stack import PLANNER, check_stack, modules_to_try
from fastplan.doctor.variables import check_values

_PYTHON = (3, 10)
_NUMPY = (1, 26)
_NUMPY_SPEC = "numpy>=1.26"
_PREFIX = "FASTPLAN_"
_NATIVE = "fastplan.engine._native"
_STORE_SECONDS = 15.0

# By distribution: what they are for.
_EXTRAS = {
    "PyYAML": "model files in YAML",
    "fsspec": "caches at URLs",
    "s3fs": "caches on s3://",
    "numba": "cost models in Python",
}
# At run time, when the core is built, and in tests.
VARIABLES = (
    "FASTPLAN_CACHE",
    "FASTPLAN_CACHE_KEY",
    "FASTPLAN_ETT",
    "FASTPLAN_ETT_LAUNCHED",
    "FASTPLAN_PATCH",
    "FASTPLAN_SKUS",
    "FASTPLAN_DEBUG",
    "FASTPLAN_JOBS",
    "FASTPLAN_SANITIZE",
    "FASTPLAN_PARITY_SELF_CHECK",
)


def examine() -> Iterator[Finding]:
    """All findings, each as soon as it is known: imports for real take seconds."""
    yield check_python()
    outcomes = try_imports("numpy", _NATIVE)
    yield check_numpy(outcomes.get("numpy"))
    if _NATIVE in outcomes:
        yield check_core(outcomes[_NATIVE])
    stack = read_stack()
    modules = modules_to_try(stack)
    imported = try_imports(*modules) if modules else {}
    yield from check_stack(stack, imported)
    torch = imported.get("torch")
    yield check_gpus(stack, torch)
    yield check_extras()
    yield check_cache(os.environ)
    yield from check_variables(os.environ)
    planner = imported.get(PLANNER)
    yield from check_values(os.environ, planner is not None and planner.worked)


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    text = f"{'.'.join(map(str, version))} on {platform.system()} {platform.machine()}"
    if version[:2] < _PYTHON:
        return Finding("python", PROBLEM, f"{text}: fastplan needs {_text(_PYTHON)} or later")
    return Finding("python", OK, text)


def check_numpy(outcome: Outcome | None) -> Finding:
    fix = install([_NUMPY_SPEC])
    if outcome is None or not outcome.worked:
        missing = outcome is not None and outcome.missing == "numpy"
        cause = outcome.cause if outcome is not None else "it could not be tried"
        return Finding("numpy", PROBLEM, "not installed" if missing else cause, fix)
    if _numbers(outcome.version) < _NUMPY:
        text = f"{outcome.version}: fastplan needs {_text(_NUMPY)} or later"
        return Finding("numpy", PROBLEM, text, fix)
    return Finding("numpy", OK, outcome.version)


def check_core(outcome: Outcome) -> Finding:
    """The native core, which is built for one version of Python."""
    recorded = version_of("fastplan")
    if outcome.worked:
        text = f"fastplan {__version__}, the native core loads"
        if recorded not in (None, __version__):
            text += f"; installed as {recorded}, so it was changed since"
        return Finding("core", OK, text)
    folder = module_folder("fastplan")
    built = sorted(path.name for path in (folder / "core").glob("_native*.*")) if folder else []
    built = [name for name in built if not name.endswith(".pyi")]
    if outcome.missing is None:
        text = f"the native core does not load: {outcome.cause}"
    elif built:
        text = f"the native core is there for another Python only: {', '.join(built)}"
    else:
        text = "the native core is not built"
    return Finding("core", PROBLEM, text, pip("install --force-reinstall --no-deps fastplan"))


def check_gpus(stack: Stack, torch: Outcome | None) -> Finding:
    """Planning needs none, so their absence is fine."""
    usable = torch.gpus if torch is not None else ()
    if usable or (stack.gpus and torch is None):
        return Finding("gpus", OK, _counted(usable or stack.gpus))
    if not stack.gpus:
        return Finding("gpus", OK, "none here, and planning needs none")
    build = stack.torch.build if stack.torch else None
    why = "is a CPU build" if build == "cpu" else "can't use them: driver or CUDA release differ"
    return Finding("gpus", NOTE, f"{_counted(stack.gpus)}, but torch {why}")


def check_extras() -> Finding:
    """Packages that some features need."""
    versions = {name: version_of(name) for name in _EXTRAS}
    there = [f"{name} {version}" for name, version in versions.items() if version]
    absent = [f"{name} ({_EXTRAS[name]})" for name, version in versions.items() if not version]
    parts = [", ".join(there)] if there else []
    if absent:
        parts.append(f"not installed: {', '.join(absent)}")
    return Finding("extras", OK, "; ".join(parts))


def check_cache(environment: Mapping[str, str]) -> Finding:
    """Whether plans could be kept where FASTPLAN_CACHE, or the platform, says."""
    try:
        where = environment.get("FASTPLAN_CACHE") or os.fspath(default_directory())
        kind = kind_of(where)
        if kind == "url":
            return _check_url(where)
        if kind == "memory":
            return Finding("cache", OK, "memory: of each process")
        path = Path(open_store(where).describe())
    except (StoreError, ValueError) as error:
        return Finding("cache", PROBLEM, str(error))
    nearest = next(place for place in (path, *path.parents) if os.path.exists(place))
    state = "" if nearest == path else ", to be made when the first plan is kept"
    try:
        with TemporaryFile(dir=nearest):
            return Finding("cache", OK, f"{path}{state}")
    except OSError as error:
        text = f"{path} can't be written to: {nearest}: {error.strerror}"
        return Finding("cache", PROBLEM, text, "export FASTPLAN_CACHE=DIR")


def _check_url(where: str) -> Finding:
    store = GuardedStore(open_store(where), _STORE_SECONDS)
    try:
        store.read("0" * 40)
    except StoreError as error:
        driver = str(error).partition("pip install ")[2]
        return Finding("cache", PROBLEM, str(error), install([driver]) if driver else None)
    return Finding("cache", OK, f"{store.describe()} answers")


def check_variables(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Variables that look as if they were meant for fastplan."""
    known = [name.removeprefix(_PREFIX) for name in VARIABLES]
    for name in sorted(environment):
        if name.startswith(_PREFIX) and name not in VARIABLES:
            near = get_close_matches(name.removeprefix(_PREFIX), known, n=1)
            hint = f": did you mean {_PREFIX}{near[0]}?" if near else ""
            yield Finding("environment", NOTE, f"{name} means nothing{hint}", f"unset {name}")


def _counted(names: tuple[str, ...]) -> str:
    kinds = dict.fromkeys(names)
    return ", ".join(f"{names.count(kind)} x {kind}" for kind in kinds)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
