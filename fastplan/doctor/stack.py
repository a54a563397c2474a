"""torch, FBGEMM and TorchRec: whether they are there, belong together and can be imported."""

from __future__ import annotations

from collections.abc import Iterator

from fastplan.doctor.failures import explain
from fastplan.doctor.findings import NOTE, OK, PROBLEM, Finding
from fastplan.doctor.fixes import install, install_all, install_fbgemm, install_torchrec
from fastplan.doctor.installed import Package, Stack, module_folder, requirements, version_of
from fastplan.doctor.probe import Outcome
from fastplan.doctor.releases import RELEASE_OF, TORCH_OF, minor, supported_torchrec
from fastplan.spec.stock import VERSIONS

PLANNER = "fastplan.torchrec.planner"


def modules_to_try(stack: Stack) -> tuple[str, ...]:
    """What to import: all that TorchRec needs, or just torch where there is no TorchRec."""
    if stack.torchrec is not None or module_folder("torchrec") is not None:
        return ("torch", "fbgemm_gpu", "torchrec", PLANNER)
    return ("torch",) if stack.torch is not None else ()


def check_stack(stack: Stack, outcomes: dict[str, Outcome]) -> Iterator[Finding]:
    """Findings from what is installed and from how `modules_to_try` were imported."""
    if PLANNER not in modules_to_try(stack):
        yield Finding(
            "torchrec",
            NOTE,
            "not installed: plans can be made of model files, not of TorchRec models",
            install_all(stack),
        )
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
    fix = install_fbgemm(torch, present) if torch is not None else None
    if len(present) > 1:
        names = " and ".join(map(str, present))
        text = f"{names} overwrite each other's files: only one may be installed"
        yield Finding("fbgemm", PROBLEM, text, fix or install_all(stack))
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
    doubt = _doubt(own, torch) if torch is not None else None
    if doubt is not None:
        yield Finding("fbgemm", NOTE, f"{own}: {doubt}", fix)
    else:
        yield Finding("fbgemm", OK, f"{own.version}, {_build(own)}")


def _doubt(own: Package, torch: Package) -> str | None:
    """What speaks against this FBGEMM with this torch, though it can be imported."""
    release, base = minor(own.version), minor(torch.version)
    if release is None or base is None:
        return "a nightly build, which belongs to no release"
    expected = TORCH_OF.get(release)
    if expected != base:
        made_for = f"it was made for torch {expected}" if expected else "its torch is not known"
        return f"{made_for}, {torch.version} is installed"
    if (own.build == "cpu") != (torch.build == "cpu"):
        return f"{_build(own)} beside {_build(torch)} of torch: tables can't be trained on GPUs"
    exact = {own.build, torch.build}
    if len(exact) > 1 and "cuda" not in exact and None not in exact:
        return f"{_build(own)} beside {_build(torch)} of torch"
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
    elif version.partition("+")[0] not in VERSIONS:
        supported = " and ".join(VERSIONS)
        text = f"{version}: fastplan reproduces the planner of TorchRec {supported}"
        yield Finding("torchrec", PROBLEM, text, _supported(stack))
    else:
        yield _partner(version, stack)


def _supported(stack: Stack) -> str:
    """The least that gives a TorchRec that fastplan supports."""
    base = minor(stack.torch.version) if stack.torch else None
    suitable = supported_torchrec(base)
    fbgemm_fits = [minor(package.version) for package in stack.fbgemm] == [
        RELEASE_OF.get(base or "")
    ]
    return install_torchrec(suitable) if suitable and fbgemm_fits else install_all(stack)


def _partner(version: str, stack: Stack) -> Finding:
    expected = TORCH_OF.get(minor(version) or "")
    base = minor(stack.torch.version) if stack.torch else None
    if base is None or base == expected:
        return Finding("torchrec", OK, version)
    text = f"{version} can be imported, but was made for torch {expected}, not {base}"
    return Finding("torchrec", NOTE, text)


def _requirements() -> Iterator[Finding]:
    """What TorchRec needs and pip was told not to install."""
    missing, other = [], []
    for wanted in requirements("torchrec"):
        if wanted.name.lower().replace("_", "-").startswith("fbgemm-gpu"):
            continue  # the CPU build has another name
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
        yield Finding("torchrec", NOTE, f"asks for {pairs}", fix)


def _build(package: Package) -> str:
    if package.build is None:
        return "a build of unknown kind"
    return "the CPU build" if package.build == "cpu" else f"the {package.build} build"
