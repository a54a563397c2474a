"""Why an import failed, as far as the error's text tells, and what helps."""

from __future__ import annotations

import re

from fastplan.doctor.fixes import install, install_all, install_fbgemm
from fastplan.doctor.installed import Stack
from fastplan.doctor.probe import Outcome

# Modules whose distribution has another name, or must not be the newest.
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
    """What the failure of torch, FBGEMM or TorchRec means, and a command line that helps."""
    text = " ".join(outcome.errors)
    if outcome.missing and (told := _missing(outcome.missing, stack)):
        return told
    if found := re.search(r"(GLIBC(?:XX)?_[\d.]+)\S* not found", text):
        return (
            f"the system's C or C++ library is too old ({found[1]} is missing): "
            "use a newer system or container image, or conda's libraries",
            "conda install -c conda-forge libstdcxx-ng" if "GLIBCXX" in found[1] else None,
        )
    if found := re.search(r"(\S+): cannot allocate memory in static TLS block", text):
        return (
            f"{found[1]} is loaded too late to get thread-local memory",
            f"export LD_PRELOAD={found[1]}",
        )
    if "SIGILL" in text:
        return "this processor lacks instructions the build uses (AVX2): use another machine", None
    if _about_fbgemm(text) and stack.torch is not None:
        return _fbgemm(text, stack)
    return outcome.cause, None


def _about_fbgemm(text: str) -> bool:
    return bool(_FBGEMM_LIBRARY.search(text))


def _missing(module: str, stack: Stack) -> tuple[str, str | None] | None:
    name = module.partition(".")[0]
    if name in ("torch", "torchrec"):
        return f"the module {module} is missing or incomplete", install_all(stack)
    if name == "fbgemm_gpu" and stack.torch is not None:
        return f"the module {module} is missing", install_fbgemm(stack.torch, stack.fbgemm)
    if name == "fastplan":
        return None
    package = _DISTRIBUTIONS.get(name, name)
    return f"the module {module} is missing", install([package])


def _fbgemm(text: str, stack: Stack) -> tuple[str, str | None]:
    """FBGEMM's library does not load."""
    assert stack.torch is not None
    fix = install_fbgemm(stack.torch, stack.fbgemm) or install_all(stack)
    own = ", ".join(map(str, stack.fbgemm)) or "FBGEMM"
    if found := re.search(r"(lib(?:cuda|cudart|nv|cublas|cusparse)\S*\.so\S*): cannot open", text):
        return f"{own} is a CUDA build, and {found[1].rstrip(':')} is not there", fix
    if found := re.search(r"undefined symbol: (\S+)", text):
        return f"{own} was built for another torch than {stack.torch.version} ({found[1]})", fix
    return f"the library of {own} does not load with {stack.torch}", fix
