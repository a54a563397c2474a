"""The checks of `fastplan doctor`, in order."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryFile

from fastplan import __version__
from fastplan.cache.stores import GuardedStore, StoreError, default_directory, kind_of, open_store
from fastplan.doctor import NOTE, OK, PROBLEM, Finding
from fastplan.doctor.installed import Stack, module_folder, read_stack, version_of
from fastplan.doctor.native import Progress, check_native
from fastplan.doctor.probe import Outcome, try_imports
from fastplan.doctor.releases import install, pip
from fastplan.doctor.stack import PLANNER, check_stack, modules_to_try

_PYTHON = (3, 10)
_NUMPY = (1, 26)
_PREFIX = "FASTPLAN_"
_NATIVE = "fastplan.engine._native"
_STORE_SECONDS = 15.0

# What the command line is made with.
_REQUIRED = ("click", "jinja2", "msgspec", "platformdirs", "rich")
# By distribution: what they are for.
_EXTRAS = {
    "PyYAML": "model files in YAML",
    "fsspec": "caches at URLs",
    "s3fs": "caches on s3://",
    "numba": "cost models in Python",
}
# For use at run time, for building the core, and for tests.
VARIABLES = (
    "FASTPLAN_CACHE",
    "FASTPLAN_CACHE_KEY",
    "FASTPLAN_ETT",
    "FASTPLAN_ETT_EXPORT",
    "FASTPLAN_ETT_EXPORT_INTERVAL",
    "FASTPLAN_ETT_LABELS",
    "FASTPLAN_ETT_LAUNCHED",
    "FASTPLAN_FLEET",
    "FASTPLAN_PATCH",
    "FASTPLAN_PROOF",
    "FASTPLAN_SHADOW",
    "FASTPLAN_SHADOW_LOG",
    "FASTPLAN_SKUS",
    "FASTPLAN_DEBUG",
    "FASTPLAN_JOBS",
    "FASTPLAN_SANITIZE",
    "FASTPLAN_PARITY_SELF_CHECK",
)


def examine(*, prove: bool = False, progress: Progress | None = None) -> Iterator[Finding]:
    """Yields all findings, each as soon as it is known, because imports take seconds.

    Args:
        prove: Compare many plans of both planners, which takes minutes.
        progress: Called while plans are compared; see `check_native`.
    """
    yield check_python()
    outcomes = try_imports("numpy", _NATIVE)
    yield check_numpy(outcomes.get("numpy"))
    if _NATIVE in outcomes:
        yield check_core(outcomes[_NATIVE])
    stack = read_stack()
    modules = modules_to_try(stack)
    imported = try_imports(*modules) if modules else {}
    yield from check_stack(stack, imported)
    planner = imported.get(PLANNER)
    can_plan = planner is not None and planner.worked
    if can_plan:
        yield from check_native(prove=prove, progress=progress)
    yield check_gpus(stack, imported.get("torch"))
    yield check_required()
    yield check_extras()
    yield check_cache(os.environ)
    yield from check_variables(os.environ)
    yield from check_values(os.environ, can_plan)


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    """Checks the version of Python."""
    text = f"{'.'.join(map(str, version))} on {platform.system()} {platform.machine()}"
    if version[:2] < _PYTHON:
        return Finding(
            "python", PROBLEM, f"{text}: fastplan needs {'.'.join(map(str, _PYTHON))} or later"
        )
    return Finding("python", OK, text)


def check_numpy(outcome: Outcome | None) -> Finding:
    """Checks that numpy can be imported and is new enough."""
    fix = install([f"numpy>={_text(_NUMPY)}"])
    if outcome is None or not outcome.worked:
        missing = outcome is not None and outcome.missing == "numpy"
        cause = outcome.cause if outcome is not None else "it could not be tested"
        return Finding("numpy", PROBLEM, "not installed" if missing else cause, fix)
    if _numbers(outcome.version) < _NUMPY:
        text = f"{outcome.version}: fastplan needs {_text(_NUMPY)} or later"
        return Finding("numpy", PROBLEM, text, fix)
    return Finding("numpy", OK, outcome.version)


def check_core(outcome: Outcome) -> Finding:
    """Checks the native core, which is built for one version of Python."""
    recorded = version_of("fastplan")
    if outcome.worked:
        text = f"fastplan {__version__}, the native core loads"
        if recorded not in (None, __version__):
            text += f"; installed as {recorded}, but changed since then"
        return Finding("core", OK, text)
    folder = module_folder("fastplan")
    built = sorted(path.name for path in (folder / "engine").glob("_native*.*")) if folder else []
    built = [name for name in built if not name.endswith(".pyi")]
    if outcome.missing is None:
        text = f"the native core does not load: {outcome.cause}"
    elif built:
        text = f"the native core exists only for another Python: {', '.join(built)}"
    else:
        text = "the native core is not built"
    # Of a checkout, the index may have another version or none.
    checkout = folder.parent if folder and (folder.parent / "setup.py").exists() else None
    source = f"--editable {shlex.quote(str(checkout))}" if checkout else "fastplan"
    return Finding("core", PROBLEM, text, pip(f"install --force-reinstall --no-deps {source}"))


def check_gpus(stack: Stack, torch: Outcome | None) -> Finding:
    """Checks the GPUs. Planning needs none."""
    usable = torch.gpus if torch is not None else ()
    if usable or (stack.gpus and torch is None):
        return Finding("gpus", OK, _counted(usable or stack.gpus))
    if not stack.gpus:
        return Finding("gpus", OK, "none, and planning needs none")
    build = stack.torch.build if stack.torch else None
    why = "is a CPU build" if build == "cpu" else "can't use them: driver or CUDA release differ"
    return Finding("gpus", NOTE, f"{_counted(stack.gpus)}, but torch {why}")


def check_required() -> Finding:
    """Packages that come with fastplan, unless it was installed without them."""
    versions = {name: version_of(name) for name in _REQUIRED}
    if absent := [name for name, version in versions.items() if not version]:
        return Finding("packages", PROBLEM, f"not installed: {', '.join(absent)}", install(absent))
    return Finding("packages", OK, ", ".join(f"{name} {versions[name]}" for name in _REQUIRED))


def check_extras() -> Finding:
    """Lists optional packages."""
    versions = {name: version_of(name) for name in _EXTRAS}
    there = [f"{name} {version}" for name, version in versions.items() if version]
    absent = [f"{name} ({_EXTRAS[name]})" for name, version in versions.items() if not version]
    parts = [", ".join(there)] if there else []
    if absent:
        parts.append(f"not installed: {', '.join(absent)}")
    return Finding("extras", OK, "; ".join(parts))


def check_cache(environment: Mapping[str, str]) -> Finding:
    """Checks that plans can be stored in FASTPLAN_CACHE or the platform's cache directory."""
    try:
        where = environment.get("FASTPLAN_CACHE") or os.fspath(default_directory())
        kind = kind_of(where)
        if kind == "memory":
            return Finding("cache", OK, "memory: of each process")
        if kind != "directory":
            return _check_url(where)
        path = Path(open_store(where).describe())
    except (StoreError, ValueError) as error:
        return Finding("cache", PROBLEM, str(error))
    except ImportError as error:
        return Finding("cache", PROBLEM, str(error), install([error.name]) if error.name else None)
    nearest = next(place for place in (path, *path.parents) if os.path.exists(place))
    state = "" if nearest == path else ", created when the first plan is stored"
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
    """Yields variables with fastplan's prefix that fastplan does not use."""
    known = [name.removeprefix(_PREFIX) for name in VARIABLES]
    for name in sorted(environment):
        if name.startswith(_PREFIX) and name not in VARIABLES:
            near = get_close_matches(name.removeprefix(_PREFIX), known, n=1)
            hint = f": did you mean {_PREFIX}{near[0]}?" if near else ""
            yield Finding(
                "environment", NOTE, f"{name} is not a fastplan variable{hint}", f"unset {name}"
            )


def _counted(names: tuple[str, ...]) -> str:
    kinds = dict.fromkeys(names)
    return ", ".join(f"{names.count(kind)} x {kind}" for kind in kinds)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


_SUBJECT = "environment"
_OFF = ("", "0")


def check_values(environment: Mapping[str, str], planner_works: bool) -> Iterator[Finding]:
    """Yields variables with wrong values.

    Args:
        environment: The variables.
        planner_works: Whether the planner can be imported.
    """
    yield from _cache_key(environment.get("FASTPLAN_CACHE_KEY", ""))
    yield from _skus(environment.get("FASTPLAN_SKUS", ""))
    yield from _patch(environment.get("FASTPLAN_PATCH", ""), planner_works)
    yield from _proof(environment.get("FASTPLAN_PROOF", ""))
    yield from _shadow(environment.get("FASTPLAN_SHADOW", ""))
    yield from _ett(environment.get("FASTPLAN_ETT", ""))
    yield from _check_launched(environment.get("FASTPLAN_ETT_LAUNCHED", ""))


def _cache_key(value: str) -> Iterator[Finding]:
    if not value:
        return
    from fastplan.cache.entry import parse_key

    try:
        parse_key(value)
    except ValueError as error:
        text = f"FASTPLAN_CACHE_KEY: {error}: planners with a cache can't be made"
        fix = "export FASTPLAN_CACHE_KEY=$(openssl rand -hex 16)"
        yield Finding(_SUBJECT, PROBLEM, text, fix)


def _skus(value: str) -> Iterator[Finding]:
    # SKU files are read with msgspec; a missing one is a finding by itself.
    if value and version_of("msgspec"):
        from fastplan.spec.hardware import HardwareError, known_hardware

        try:
            known_hardware()
        except HardwareError as error:
            yield Finding(_SUBJECT, PROBLEM, str(error), "unset FASTPLAN_SKUS")


def _patch(value: str, planner_works: bool) -> Iterator[Finding]:
    if value in _OFF:
        return
    if value not in ("1", "init"):
        text = f"FASTPLAN_PATCH must be 1, init or 0, not {value!r}: `import fastplan` fails"
        yield Finding(_SUBJECT, PROBLEM, text, "export FASTPLAN_PATCH=1")
    elif not planner_works:
        text = f"FASTPLAN_PATCH={value} needs TorchRec, which can't be imported: it has no effect"
        yield Finding(_SUBJECT, PROBLEM, text, "unset FASTPLAN_PATCH")


def _proof(value: str) -> Iterator[Finding]:
    if value not in ("", "auto", "skip", "force"):
        text = f"FASTPLAN_PROOF is {value!r}: it must be auto, skip or force, and is ignored"
        yield Finding(_SUBJECT, PROBLEM, text, "unset FASTPLAN_PROOF")


def _shadow(value: str) -> Iterator[Finding]:
    if value not in (*_OFF, "1", "torchrec"):
        text = f"FASTPLAN_SHADOW must be 1, torchrec or 0, not {value!r}: nothing is compared"
        yield Finding(_SUBJECT, PROBLEM, text, "export FASTPLAN_SHADOW=1")


def _ett(value: str) -> Iterator[Finding]:
    if value in _OFF:
        return
    path = Path(os.path.abspath(value))
    nearest = next(place for place in (path, *path.parents) if os.path.exists(place))
    try:
        with TemporaryFile(dir=nearest):
            return
    except OSError as error:
        text = f"FASTPLAN_ETT={value} records nothing: {nearest}: {error.strerror}"
    yield Finding(_SUBJECT, PROBLEM, text, "export FASTPLAN_ETT=DIR")


def _check_launched(value: str) -> Iterator[Finding]:
    try:
        float(value or 0)
    except ValueError:
        text = f"FASTPLAN_ETT_LAUNCHED must be seconds since 1970, not {value!r}: it is ignored"
        yield Finding(_SUBJECT, NOTE, text, "export FASTPLAN_ETT_LAUNCHED=$(date +%s)")
