"""Which key-value parameters the storage estimate reads.

Up to 1.8 those of the estimator's constraint; since 1.9 those of the option, if it has any.
"""

from __future__ import annotations

from typing import Any

from torchrec.distributed.planner.enumerators import EmbeddingEnumerator

# Both came with the same release.
_OPTION_FIRST = hasattr(EmbeddingEnumerator, "_get_stash_weights")


def key_value_params(option_params: Any, constraint: Any) -> Any:
    """Returns the parameters of the estimate, given those of the option and the constraint."""
    if _OPTION_FIRST and option_params is not None:
        return option_params
    return constraint.key_value_params if constraint is not None else None
