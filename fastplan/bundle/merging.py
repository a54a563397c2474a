"""A bundle with what one more start has found out: nothing that serves others gets lost."""

from __future__ import annotations

from dataclasses import replace

from fastplan.bundle.bundle import Bundle
from fastplan.bundle.compiled import Code
from fastplan.bundle.content import Artifacts, Blob, Content, Kernel, PlanId
from fastplan.bundle.format import MAX_PLANS


def merged(
    old: Bundle | None, plans: dict[PlanId, bytes], code: Code | None, slot: int, made: Content
) -> Content | None:
    """The bundle with these new plans and the local rank's code; None when it has them all.

    `made` has the model and facts of this start, and nothing else. A bundle for another model is
    not taken over, nor is code that was made with other versions: facts are of all code in it.
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
        # Old code keeps its facts, whatever this start runs on.
        return None if not news else base if base.has_code else replace(base, facts=made.facts)
    usable = _usable(base, old, made.facts)
    if _covered(usable, code, slot):
        return base if news else None
    return _with_code(usable, code, slot)


def _usable(base: Content, old: Bundle | None, facts: dict[str, str]) -> Content:
    """Without the code that can't be used here."""
    keep_code = old is not None and not old.mismatches(facts)
    keep_kernels = old is not None and keep_code and not old.kernel_mismatches(facts)
    return replace(
        base,
        facts=facts,
        artifacts=base.artifacts if keep_code else (),
        kernels=base.kernels if keep_kernels else {},
    )


def _covered(known: Content, code: Code, slot: int) -> bool:
    covering = _covering(known, code)
    return covering is not None and slot in covering.slots and {*code.kernels} <= {*known.kernels}


def _covering(known: Content, code: Code) -> Artifacts | None:
    """Artifacts that have all that the code has; so have those of another rank on CPUs."""
    asked = {(kind, key) for kind, keys in code.names.items() for key in keys}
    for artifacts in known.artifacts:
        if asked <= {(kind, key) for kind, keys in artifacts.names.items() for key in keys}:
            return artifacts
    return None


def _with_code(known: Content, code: Code, slot: int) -> Content:
    """The local rank's code in place of what it had."""
    covering = _covering(known, code)
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
