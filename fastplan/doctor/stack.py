"""Checks torch, FBGEMM and TorchRec: installed, belonging together, and importable."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from fastplan.doctor import NOTE, OK, PROBLEM, Finding
from fastplan.doctor.installed import Package, Stack, module_folder, requirements, version_of
from fastplan.doctor.probe import Outcome
from fastplan.doctor.releases import (
    TESTED,
    TORCH_OF,
    install,
    install_all,
    install_fbgemm,
    minor,
    why_no_builds,
)

PLANNER = "fastplan.torchrec.planner"


def modules_to_try(stack: Stack) -> tuple[str, ...]:
    """Returns the modules to import: all that TorchRec needs, or only torch without TorchRec."""
    if stack.torchrec is not None or module_folder("torchrec") is not None:
        return ("torch", "fbgemm_gpu", "torchrec", PLANNER)
    return ("torch",) if stack.torch is not None else ()


def check_stack(stack: Stack, outcomes: dict[str, Outcome]) -> Iterator[Finding]:
    """Yields findings about the installed packages and the imports of `modules_to_try`."""
    if PLANNER not in modules_to_try(stack):
        why = why_no_builds(stack)
        text = "not installed: only spec files can be planned" + (f" ({why})" if why else "")
        yield Finding("torchrec", NOTE, text, install_all(stack))
    yield from _torch(stack, outcomes.get("torch"))
    yield from _fbgemm(stack, outcomes.get("fbgemm_gpu"))
    found = list(_torchrec(stack, outcomes.get("torchrec")))
    yield from found
    planner = outcomes.get(PLANNER)
    if planner is not None and not any(finding.level == PROBLEM for finding in found):
        if planner.worked:
            yield Finding("planner", OK, "fastplan.EmbeddingShardingPlanner can be used")
        else:
            yield Finding("planner", PROBLEM, *explain(planner, stack))


def _torch(stack: Stack, outcome: Outcome | None) -> Iterator[Finding]:
    if outcome is not None and not outcome.worked:
        yield Finding("torch", PROBLEM, *explain(outcome, stack))
    elif stack.torch is not None:
        yield Finding("torch", OK, f"{stack.torch.version}, {_build(stack.torch)}")
    elif outcome is not None:
        yield Finding("torch", OK, f"{outcome.version}, installed without metadata")


def _fbgemm(stack: Stack, outcome: Outcome | None) -> Iterator[Finding]:
    present, torch = stack.fbgemm, stack.torch
    fix = _fbgemm_fix(stack)
    if len(present) > 1:
        names = " and ".join(map(str, present))
        text = f"{names} overwrite each other's files: only one may be installed"
        yield Finding("fbgemm", PROBLEM, text, fix)
        return
    if outcome is not None and not outcome.worked:
        yield Finding("fbgemm", PROBLEM, *explain(outcome, stack))
        return
    if not present:
        if outcome is not None:
            yield Finding("fbgemm", OK, f"{outcome.version}, installed without metadata")
        elif stack.torchrec is not None:
            yield Finding("fbgemm", PROBLEM, "not installed, and TorchRec needs it", fix)
        return
    own = present[0]
    warning = _compatibility_warning(own, torch, stack) if torch is not None else None
    if warning is not None:
        yield Finding("fbgemm", NOTE, f"{own}: {warning}", fix)
    else:
        yield Finding("fbgemm", OK, f"{own.version}, {_build(own)}")


def _fbgemm_fix(stack: Stack) -> str | None:
    """Returns the shortest command after which FBGEMM loads; None if there is none."""
    return install_fbgemm(stack) or install_all(stack)


def _compatibility_warning(own: Package, torch: Package, stack: Stack) -> str | None:
    """Returns why this FBGEMM may not work with this torch, although it can be imported."""
    release, base = minor(own.version), minor(torch.version)
    if release is None or base is None:
        return "a nightly build without a matching release"
    expected = TORCH_OF.get(release)
    if expected != base:
        made_for = f"it was built for torch {expected}" if expected else "its torch is unknown"
        return f"{made_for}, {torch.version} is installed"
    if (own.build == "cpu") != (torch.build == "cpu"):
        if not stack.driver:
            return None  # nothing can be trained on GPUs here, and plans are the same
        return f"{_build(own)} with {_build(torch)} of torch: tables can't be trained on GPUs"
    exact = {own.build, torch.build}
    if len(exact) > 1 and "cuda" not in exact and None not in exact:
        return f"{_build(own)} with {_build(torch)} of torch"
    return None


def _torchrec(stack: Stack, outcome: Outcome | None) -> Iterator[Finding]:
    version = stack.torchrec.version if stack.torchrec else outcome.version if outcome else None
    if version is None:
        return
    needs = list(_requirements())
    yield from needs
    if outcome is not None and not outcome.worked:
        if not (outcome.missing and any(finding.level == PROBLEM for finding in needs)):
            yield Finding("torchrec", PROBLEM, *explain(outcome, stack))
    else:
        yield _release(version, stack)


def _release(version: str, stack: Stack) -> Finding:
    """Tells how well a TorchRec is known. Any that can be imported can plan."""
    if version.partition("+")[0] not in TESTED:
        text = f"{version}: not one of those that fastplan's tests run with ({', '.join(TESTED)})"
        return Finding("torchrec", NOTE, text)
    expected = TORCH_OF.get(minor(version) or "")
    base = minor(stack.torch.version) if stack.torch else None
    if base is None or base == expected:
        return Finding("torchrec", OK, version)
    return Finding("torchrec", NOTE, f"{version} is for torch {expected}, not {base}")


def _requirements() -> Iterator[Finding]:
    """Yields findings about requirements of TorchRec that pip did not install."""
    missing, other = [], []
    for wanted in requirements("torchrec"):
        if wanted.name.lower().replace("_", "-").startswith("fbgemm-gpu"):
            continue  # the CPU build has a different name
        present = version_of(wanted.name)
        if present is None:
            missing.append(str(wanted))
        elif wanted.exact and present != wanted.exact:
            other.append((wanted, present))
    if missing:
        text = f"needs {', '.join(missing)}, not installed"
        yield Finding("torchrec", PROBLEM, text, install(missing))
    if other:
        pairs = ", ".join(f"{wanted}, not {present}" for wanted, present in other)
        fix = install(str(wanted) for wanted, _ in other)
        yield Finding("torchrec", NOTE, f"requires {pairs}", fix)


def _build(package: Package) -> str:
    if package.build is None:
        return "a build of unknown kind"
    return "the CPU build" if package.build == "cpu" else f"the {package.build} build"


# Modules whose distribution has a different name, or must not be the newest.
_DISTRIBUTIONS = {
    "fbgemm_gpu": "fbgemm-gpu",
    "pkg_resources": "setuptools<81",
    "pyre_extensions": "pyre-extensions",
    "torchmetrics": "torchmetrics==1.0.3",
    "typing_extensions": "typing-extensions",
    "yaml": "PyYAML",
}
_FBGEMM_LIBRARY = re.compile(r"fbgemm_gpu\S*\.(so|dll|dylib|pyd)|'fbgemm' object has no attribute")


def explain(outcome: Outcome, stack: Stack) -> tuple[str, str | None]:
    """Explains a failed import of torch, FBGEMM or TorchRec.

    Returns:
        The reason, and a command line that helps, if there is one.
    """
    text = " ".join(outcome.errors)
    if outcome.missing and (reason := _missing(outcome.missing, stack)):
        return reason
    if found := re.search(r"(GLIBC(?:XX)?_[\d.]+)\S* not found", text):
        return (
            f"the system's C or C++ library is too old ({found[1]} is missing): "
            "use a newer system or container image, or conda's libraries",
            "conda install -c conda-forge libstdcxx-ng" if _conda_helps(found[1]) else None,
        )
    if found := re.search(r"(\S+): cannot allocate memory in static TLS block", text):
        return (
            f"{found[1]} is loaded too late to get thread-local memory",
            f"export LD_PRELOAD={found[1]}",
        )
    if "SIGILL" in text:
        return (
            "this processor lacks instructions of the build (AVX2): use another machine",
            None,
        )
    if _about_fbgemm(text) and stack.torch is not None:
        return _explain_fbgemm(text, stack)
    return outcome.cause, None


def _conda_helps(symbol: str) -> bool:
    """Whether conda has the library and this Python would load it from there."""
    return "GLIBCXX" in symbol and (Path(sys.prefix) / "conda-meta").is_dir()


def _about_fbgemm(text: str) -> bool:
    return bool(_FBGEMM_LIBRARY.search(text))


def _missing(module: str, stack: Stack) -> tuple[str, str | None] | None:
    name = module.partition(".")[0]
    if name in ("torch", "torchrec"):
        return f"the module {module} is missing or incomplete", install_all(stack)
    if name == "fbgemm_gpu":
        return f"the module {module} is missing", _fbgemm_fix(stack)
    if name == "fastplan":
        return None
    package = _DISTRIBUTIONS.get(name, name)
    return f"the module {module} is missing", install([package])


def _explain_fbgemm(text: str, stack: Stack) -> tuple[str, str | None]:
    """Explains why FBGEMM's library does not load."""
    assert stack.torch is not None
    fix = _fbgemm_fix(stack)
    own = ", ".join(map(str, stack.fbgemm)) or "FBGEMM"
    if found := re.search(r"(lib(?:cuda|cudart|nv|cublas|cusparse)\S*\.so\S*): cannot open", text):
        return f"{own} is a CUDA build, but {found[1].rstrip(':')} is missing", fix
    if found := re.search(r"undefined symbol: (\S+)", text):
        return f"{own} was built for a different torch than {stack.torch.version} ({found[1]})", fix
    return f"the library of {own} does not load with {stack.torch}", fix
