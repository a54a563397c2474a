"""What identifies the TorchRec of this process, and this fastplan."""

from __future__ import annotations

import hashlib
import marshal
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torchrec

import fastplan
from fastplan.torchrec.support.watch import Watch, sources


def torchrec_version() -> str:
    """Returns the version that TorchRec states, without a local part."""
    return str(getattr(torchrec, "__version__", "unknown")).split("+")[0]


def torchrec_digest(watch: Watch) -> str:
    """Returns a hash of the source that decides plans, and of its constants in this process."""
    digest = hashlib.sha256()  # which processors have instructions for
    for module in sources():
        digest.update(f"{module.__name__}\n".encode())
        digest.update(_text(module))
    digest.update("\n".join(watch.constants()).encode())
    return digest.hexdigest()[:32]


def own_digest() -> str:
    """Returns a hash of this fastplan and of the Python that runs it."""
    digest = hashlib.blake2b(f"{sys.version_info[:2]}".encode(), digest_size=16)
    [folder] = map(Path, fastplan.__path__)
    for file in sorted([*folder.rglob("*.py"), *folder.rglob("*.so")]):
        digest.update(f"{file.relative_to(folder)}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _text(module: ModuleType) -> bytes:
    """Returns the source of a module, or its code if the source is not installed."""
    if module.__file__ is not None:
        try:
            return Path(module.__file__).read_bytes()
        except OSError:
            pass
    loader: Any = getattr(module, "__loader__", None)
    code = loader.get_code(module.__name__) if hasattr(loader, "get_code") else None
    return b"" if code is None else marshal.dumps(code)
