"""Everything that differs between the TorchRec versions fastplan reproduces."""

from __future__ import annotations

from typing import Any

from fastplan.spec.stock import VERSIONS


class UnsupportedTorchRec(ImportError):
    """The installed TorchRec is not one whose plans fastplan reproduces."""


def installed() -> str:
    """The version of the TorchRec that this process imports."""
    try:
        import torchrec
    except ModuleNotFoundError as error:
        if error.name != "torchrec":
            raise
        raise UnsupportedTorchRec(
            f"TorchRec is not installed. Install one of {', '.join(VERSIONS)} "
            "(`pip install torchrec==1.8.0 --no-deps` next to torch and fbgemm-gpu)."
        ) from error
    return str(getattr(torchrec, "__version__", "unknown")).split("+")[0]


def check(version: str) -> str:
    """Returns the version, or raises UnsupportedTorchRec naming the supported ones."""
    if version not in VERSIONS:
        raise UnsupportedTorchRec(
            f"fastplan reproduces the planner of TorchRec {' and '.join(VERSIONS)}; "
            f"TorchRec {version} is installed. Install one of these, or keep TorchRec's planner."
        )
    return version


VERSION = check(installed())
IS_1_9 = VERSION.startswith("1.9")

# Devices whose rank has an index of its own in a placement.
INDEXED_DEVICES = frozenset({"cuda", "mtia", "tpu"} if IS_1_9 else {"cuda", "mtia"})

if IS_1_9:
    from torchrec.distributed.planner.types import PlannerContextFingerprintError

    UNHASHABLE_CONTEXT: tuple[type[Exception], ...] = (PlannerContextFingerprintError,)
else:
    UNHASHABLE_CONTEXT = ()


def key_value_params(option_params: Any, constraint: Any) -> Any:
    """The key-value parameters that storage is estimated with: 1.9 asks the option first."""
    if IS_1_9 and option_params is not None:
        return option_params
    return constraint.key_value_params if constraint is not None else None


def extra_option_arguments(enumerator: Any, name: str, module: Any) -> dict[str, Any]:
    """Arguments of ShardingOption that only the newer version has."""
    if not IS_1_9:
        return {}
    return {"stash_weights": enumerator._get_stash_weights(name, module)}
