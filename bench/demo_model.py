"""The demo's model, for use on the command line."""

from typing import Any

from bench.models import criteo as criteo_model


def criteo() -> tuple[Any, None, Any]:
    """Module, TorchRec's default sharders, constraints."""
    module, constraints = criteo_model()
    return module, None, constraints
