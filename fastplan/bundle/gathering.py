"""Plans for a bundle, from wherever they are: plan files, plan caches, other bundles."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from fastplan.bundle.bundle import open_bundle
from fastplan.bundle.content import Blob, PlanId
from fastplan.bundle.format import MAGIC, BadBundle
from fastplan.cache.entry import BadEntry, decode
from fastplan.cache.inventory import entries_with_prefix
from fastplan.cache.plan_cache import PlanCache
from fastplan.cache.stores import MemoryStore, Store, Stored, open_store
from fastplan.model.plan import Plan
from fastplan.plans.foreign import read_any


class NoPlan(ValueError):
    """Nothing there that a bundle could hold; says why."""


def gather(places: Iterable[str], keys: Iterable[str] = ()) -> dict[PlanId, Blob]:
    """All plans in these places: a plan file, a bundle, or the directory or URL of a plan cache.

    `keys`, or how they begin, choose among the plans of caches. Raises NoPlan, NoSuchEntry, and
    PlanFileError, StoreError and OSError as the places do.
    """
    found: dict[PlanId, Blob] = {}
    for place in places:
        if os.path.isfile(place):
            found.update(_of_file(place))
        elif _is_path(place) and not os.path.exists(os.path.expanduser(place)):
            raise NoPlan(f"{place}: there is no such file or directory")
        else:
            found.update(_of_cache(open_store(place), list(keys)))
    return found


def model_of(places: Iterable[str]) -> str | None:
    """The model that all bundles among these places are for; None if they don't agree."""
    bundles = [place for place in places if os.path.isfile(place) and _is_bundle(place)]
    models = {open_bundle(path).header.model for path in bundles}
    return models.pop() if len(models) == 1 else None


def stored_plans(store: Store) -> dict[PlanId, bytes]:
    """Every entry of a store, unread."""
    return {
        (key, name): data
        for key in dict.fromkeys(stored.key for stored in store.entries())
        for name, data in store.read(key)
    }


def _is_path(place: str) -> bool:
    return "://" not in place and place != "memory:"


def _is_bundle(path: str) -> bool:
    with open(path, "rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def _of_file(path: str) -> Iterator[tuple[PlanId, Blob]]:
    if _is_bundle(path):
        try:
            found = open_bundle(path).plans()
        except BadBundle as problem:
            raise NoPlan(str(problem)) from problem
        for stored in found:
            yield (stored.part.key, stored.part.name), Blob.of(stored.data)
        return
    store = MemoryStore()
    _keep(read_any(path), path, PlanCache(store))
    for plan, data in stored_plans(store).items():
        yield plan, Blob.of(data)


def _keep(plan: Plan, path: str, cache: PlanCache) -> None:
    basis = plan.basis
    if basis is None or plan.fingerprint is None:
        raise NoPlan(
            f"{path}: tells where tables lie, but not what the plan was made for; save it with "
            "`fastplan plan -o` or `fastplan.save_plan(..., planner=planner)`"
        )
    facts: dict[str, str | int] = {
        "tables": len(basis.record.table),
        "ranks": len(basis.cluster.rank_hbm),
        "model": plan.name,
    }
    facts |= {name: plan.notes[name] for name in ("torchrec", "engine") if name in plan.notes}
    kept = basis.record, basis.cluster, basis.canonical, facts, basis.certificate
    cache.put(plan.fingerprint, *kept)


def _of_cache(store: Store, keys: list[str]) -> Iterator[tuple[PlanId, Blob]]:
    listed: Iterable[Stored]
    if keys:
        listed = [stored for key in keys for stored in entries_with_prefix(store, key)]
    else:
        listed = list(store.entries())
    if not listed:
        raise NoPlan(f"{store.describe()}: there are no plans")
    for stored in listed:
        data = dict(store.read(stored.key)).get(stored.name)
        if data is None:
            continue  # removed since it was listed
        try:
            decode(data)
        except BadEntry as problem:
            raise NoPlan(
                f"{store.describe()}: entry {stored.key} is bad: {problem}; "
                "`fastplan cache verify --remove` removes such entries"
            ) from None
        yield (stored.key, stored.name), Blob.of(data)
