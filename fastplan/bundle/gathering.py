"""Collects the content of a bundle: plans from files and caches, and the results of a start."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace

from fastplan.bundle.bundle import Bundle, open_bundle
from fastplan.bundle.compiled import Code
from fastplan.bundle.format import (
    FORMAT,
    MAX_PLANS,
    Artifacts,
    Blob,
    BundleError,
    Content,
    Kernel,
    PlanId,
)
from fastplan.cache.entry import BadEntry, decode
from fastplan.cache.inventory import entries_with_prefix
from fastplan.cache.plan_cache import Cache, cache_at
from fastplan.cache.stores import MemoryStore, Store, Stored, open_store
from fastplan.model.plan import Plan
from fastplan.plans.foreign import read_any


class NoPlansFound(ValueError):
    """A source has no plans for a bundle; the message says why."""


def collect_plans(places: Iterable[str], keys: Iterable[str] = ()) -> dict[PlanId, Blob]:
    """Collects plans.

    Args:
        places: Plan files, bundles, and directories or URLs of plan caches.
        keys: Keys of plans in caches, or prefixes of keys; by default all.

    Raises:
        NoPlansFound: A place has no plans.
        NoSuchEntry: A cache does not have one of the keys.
        PlanFileError, StoreError, OSError: A place can't be read.
    """
    found: dict[PlanId, Blob] = {}
    for place in places:
        if os.path.isfile(place):
            found.update(_from_file(place))
        elif _is_path(place) and not os.path.exists(os.path.expanduser(place)):
            raise NoPlansFound(f"{place}: no such file or directory")
        else:
            found.update(_from_cache(open_store(place), list(keys)))
    return found


def model_of(places: Iterable[str]) -> str | None:
    """Returns the model of all bundles among these places; None if they differ."""
    bundles = [place for place in places if os.path.isfile(place) and _is_bundle(place)]
    models = {open_bundle(path).header.model for path in bundles}
    return models.pop() if len(models) == 1 else None


def stored_plans(store: Store) -> dict[PlanId, bytes]:
    """Returns every entry of a store, as bytes."""
    return {
        (key, name): data
        for key in dict.fromkeys(stored.key for stored in store.entries())
        for name, data in store.read(key)
    }


def _is_path(place: str) -> bool:
    return "://" not in place and place != "memory:"


def _is_bundle(path: str) -> bool:
    with open(path, "rb") as stream:
        return stream.read(len(FORMAT.magic)) == FORMAT.magic


def _from_file(path: str) -> Iterator[tuple[PlanId, Blob]]:
    if _is_bundle(path):
        try:
            found = open_bundle(path).plans()
        except BundleError as problem:
            raise NoPlansFound(str(problem)) from problem
        for stored in found:
            yield (stored.part.key, stored.part.name), Blob.of(stored.data)
        return
    store = MemoryStore()
    _add_plan(read_any(path), path, cache_at(store))
    for plan, data in stored_plans(store).items():
        yield plan, Blob.of(data)


def _add_plan(plan: Plan, path: str, cache: Cache) -> None:
    basis = plan.basis
    if basis is None or plan.fingerprint is None:
        raise NoPlansFound(
            f"{path}: has the layout but not the request; save it with "
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


def _from_cache(store: Store, keys: list[str]) -> Iterator[tuple[PlanId, Blob]]:
    listed: Iterable[Stored]
    if keys:
        listed = [stored for key in keys for stored in entries_with_prefix(store, key)]
    else:
        listed = list(store.entries())
    if not listed:
        raise NoPlansFound(f"{store.describe()}: it has no plans")
    for stored in listed:
        data = dict(store.read(stored.key)).get(stored.name)
        if data is None:
            continue  # removed after the listing
        try:
            decode(data)
        except BadEntry as problem:
            raise NoPlansFound(
                f"{store.describe()}: entry {stored.key} is bad: {problem}; "
                "`fastplan cache verify --remove` removes such entries"
            ) from None
        yield (stored.key, stored.name), Blob.of(data)


def merge(
    old: Bundle | None, plans: dict[PlanId, bytes], code: Code | None, slot: int, made: Content
) -> Content | None:
    """Merges the results of a start into a bundle, without losing parts that other ranks use.

    A bundle for another model is not used, nor is code from other versions: the facts apply to all
    code in a bundle.

    Args:
        old: The current bundle, if there is one.
        plans: New plans.
        code: The code of the local rank, if there is any.
        slot: The local rank.
        made: The model and facts of this start.

    Returns:
        The new content; None if the bundle has everything already.
    """
    if old is not None and None not in (old.header.model, made.model):
        old = old if old.header.model == made.model else None
    known = old.content() if old is not None else made
    fresh = {plan: Blob.of(data) for plan, data in plans.items()}
    together = {**known.plans, **fresh}
    news = {plan: blob.checksum for plan, blob in together.items()} != {
        plan: blob.checksum for plan, blob in known.plans.items()
    }
    latest = dict(list(together.items())[-MAX_PLANS:])
    base = replace(known, model=made.model or known.model, plans=latest)
    if code is None:
        # Old code keeps its facts.
        return None if not news else base if base.has_code else replace(base, facts=made.facts)
    usable = _usable(base, old, made.facts)
    if _covered(usable, code, slot):
        return base if news else None
    return _replace_code(usable, code, slot)


def _usable(base: Content, old: Bundle | None, facts: dict[str, str]) -> Content:
    """Returns the content without code that can't be used here."""
    keep_code = old is not None and not old.mismatches(facts)
    keep_kernels = old is not None and keep_code and not old.kernel_mismatches(facts)
    return replace(
        base,
        facts=facts,
        artifacts=base.artifacts if keep_code else (),
        kernels=base.kernels if keep_kernels else {},
    )


def _covered(known: Content, code: Code, slot: int) -> bool:
    covering = _find_superset(known, code)
    return covering is not None and slot in covering.slots and {*code.kernels} <= {*known.kernels}


def _find_superset(known: Content, code: Code) -> Artifacts | None:
    """Returns artifacts that include the code; on CPUs, those of another rank do."""
    asked = {(kind, key) for kind, keys in code.names.items() for key in keys}
    for artifacts in known.artifacts:
        if asked <= {(kind, key) for kind, keys in artifacts.names.items() for key in keys}:
            return artifacts
    return None


def _replace_code(known: Content, code: Code, slot: int) -> Content:
    """Replaces the code of a local rank."""
    covering = _find_superset(known, code)
    artifacts = []
    for old in known.artifacts:
        slots = old.slots | {slot} if old is covering else old.slots - {slot}
        if slots:
            artifacts.append(old._replace(slots=slots))
    if covering is None:
        artifacts.append(Artifacts(frozenset({slot}), code.names, Blob.of(code.artifacts)))
    kernels = {}
    for path, kernel in known.kernels.items():
        slots = kernel.slots | {slot} if path in code.kernels else kernel.slots - {slot}
        if slots:
            kernels[path] = kernel._replace(slots=slots)
    for path, data in code.kernels.items():
        if path not in kernels:
            kernels[path] = Kernel(frozenset({slot}), Blob.of(data))
    return replace(known, artifacts=tuple(artifacts), kernels=kernels)
