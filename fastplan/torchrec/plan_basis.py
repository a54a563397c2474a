"""What a planner's last plan was made from, as plain data."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

from fastplan.cache.fingerprint import parse_canonical
from fastplan.engine.layout import chosen_space
from fastplan.engine.solve import OutOfRange
from fastplan.model.plan import Basis
from fastplan.model.record import BadRecord
from fastplan.model.request import Cluster
from fastplan.torchrec.caching import CacheUse
from fastplan.torchrec.fallback import NotNative
from fastplan.torchrec.read.space import Space


class BasisDraft:
    """Space, cluster and planner as they are before a search: proposers change while they search.

    Nothing is written down until somebody asks, which takes milliseconds.
    """

    def __init__(self, planner: Any, space: Space, cluster: Cluster) -> None:
        self.space = space
        self.cluster = cluster
        self._planner = SimpleNamespace(
            plan_loader=planner.plan_loader,
            _proposers=[_as_it_is(proposer) for proposer in planner._proposers],
            _partitioner=_as_it_is(planner._partitioner),
            _perf_model=planner._perf_model,
            _timeout_seconds=planner._timeout_seconds,
            _fastplan=SimpleNamespace(
                deterministic=planner._fastplan.deterministic,
                optimization=planner._fastplan.optimization,
            ),
            _storage_reservation=_as_it_is(planner._storage_reservation),
        )

    def request(self) -> bytes:
        """The canonical request. Raises NotNative when a part can't be fingerprinted."""
        return CacheUse(self._planner, None, self.space)._request(self.cluster)


def basis_of(planner: Any) -> tuple[Basis | None, str]:
    """What the planner's last plan was made from; or None, and why that can't be told."""
    state = getattr(planner, "_fastplan", None)
    draft, record = getattr(state, "basis", None), getattr(state, "record", None)
    if state is None or draft is None or record is None:
        run = getattr(planner, "last_run", None)
        return None, (run and run.reason) or "the planner has not searched for a plan"
    if planner._callbacks:
        return None, "callbacks have shaped the plan"
    try:
        canonical = planner.last_run.cache.request or draft.request()
        request, _ = parse_canonical(canonical)
        chosen_space(request, record())
    except (NotNative, OutOfRange, BadRecord) as why:
        return None, str(why)
    basis = Basis(
        canonical=canonical,
        request=request,
        cluster=draft.cluster,
        record=record(),
        certificate=state.certificate(),
    )
    return basis, ""


def _as_it_is(part: Any) -> Any:
    """A copy of a stock part; others say for themselves what they are."""
    stock = type(part).__module__.startswith("torchrec.")
    return copy.copy(part) if stock else part
