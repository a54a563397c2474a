"""Formats bundles as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastplan.bundle.bundle import Bundle, StoredPlan
from fastplan.bundle.compiled import CODE
from fastplan.bundle.format import ArtifactPart, BundleError
from fastplan.cli.cache_views import KEY_DIGITS
from fastplan.cli.output import table
from fastplan.report.terminal import escape_name
from fastplan.report.units import format_bytes, format_count, format_milliseconds, format_ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleView:
    """A bundle that was read completely."""

    bundle: Bundle
    plans: list[StoredPlan]  # those that can be read
    damage: list[str]
    code_mismatches: list[str]  # why its code is not for this installation
    kernel_mismatches: list[str]  # why its CPU kernels are not for this processor


def view_of(bundle: Bundle, facts: dict[str, str]) -> BundleView:
    """Reads a whole bundle and compares it with the facts of an installation."""
    plans = []
    for part in bundle.header.plans:
        try:
            plans.append(bundle.plan(part))
        except BundleError:
            continue  # `damage` has the reason
    return BundleView(
        bundle=bundle,
        plans=plans,
        damage=bundle.find_damage(),
        code_mismatches=bundle.mismatches(facts) if bundle.has_code else [],
        kernel_mismatches=bundle.kernel_mismatches(facts),
    )


def bundle_json(seen: BundleView) -> dict[str, Any]:
    """Returns the output of `show --json`."""
    header = seen.bundle.header
    return {
        "bundle": seen.bundle.name,
        "size": header.size,
        "created": header.created,
        "model": header.model,
        "facts": header.facts,
        "damage": seen.damage,
        "plans": [
            {
                "key": plan.part.key,
                "name": plan.part.name,
                "size": plan.part.span.size,
                "rating": plan.entry.rating,
                "capacities": plan.entry.capacities,
                "provenance": plan.entry.provenance,
            }
            for plan in seen.plans
        ],
        "artifacts": [
            {"local_ranks": part.slots, "size": part.span.size, "names": part.names}
            for part in header.artifacts
        ],
        "kernels": [
            {"local_ranks": part.slots, "size": part.span.size, "path": part.path}
            for part in header.kernels
        ],
        "suits": {
            "code": not seen.code_mismatches,
            "kernels": not (seen.code_mismatches or seen.kernel_mismatches),
            "differences": seen.code_mismatches + seen.kernel_mismatches,
        },
    }


def lines(seen: BundleView) -> Iterator[str]:
    """Yields the lines of `show`."""
    header = seen.bundle.header
    state = "damaged" if seen.damage else "intact"
    yield f"{escape_name(seen.bundle.name)}: {format_bytes(header.size)}, {state}"
    yield from (f"  {escape_name(problem)}" for problem in seen.damage)
    version = escape_name(header.facts.get("fastplan", "?"))
    yield f"created    {escape_name(header.created)} by fastplan {version}"
    yield f"model      {'unknown' if header.model is None else escape_name(header.model)}"
    yield ""
    if seen.plans:
        yield from table(*_plans(seen.plans))
    else:
        yield "no plans"
    yield ""
    yield from _code(seen)


def _plans(plans: list[StoredPlan]) -> tuple[list[str], list[list[str]], str]:
    titles = ["plan", "created", "tables", "ranks", "torchrec", "rating", "size", "model"]
    rows = []
    for plan in plans:
        made = {name: str(value) for name, value in plan.entry.provenance.items()}
        ranks = str(sum(run[0] for run in plan.entry.capacities))
        row = [plan.part.key[:KEY_DIGITS], made.get("created", "?"), made.get("tables", "?"), ranks]
        row += [made.get("torchrec", "?"), format_milliseconds(plan.entry.rating)]
        rows.append([*row, format_bytes(plan.part.span.size), made.get("model", "")])
    return titles, rows, "<<>><>><"


def _code(seen: BundleView) -> Iterator[str]:
    header = seen.bundle.header
    if not seen.bundle.has_code:
        yield "no compiled code"
        return
    made = (f"{name} {header.facts[name]}" for name in CODE if name in header.facts)
    yield f"code       made with {escape_name(', '.join(made))}"
    for part in header.artifacts:
        ranks = format_ranks(sorted(part.slots)).removeprefix("r")
        yield f"           local ranks {ranks}: {format_bytes(part.span.size)}, {_kinds(part)}"
    if header.kernels:
        size = format_bytes(sum(part.span.size for part in header.kernels))
        processor = escape_name(header.facts.get("cpu", "?"))
        kernels = format_count(len(header.kernels), "CPU kernel")
        yield f"           {kernels}, {size}, for {processor}"
    if seen.bundle.untrusted_because is not None:
        yield f"           never loaded: {seen.bundle.untrusted_because}"
    if seen.code_mismatches:
        yield "           not for this installation:"
        yield from (f"             {escape_name(found)}" for found in seen.code_mismatches)
    elif seen.kernel_mismatches:
        yield "           for this installation, but its CPU kernels are not:"
        yield from (f"             {escape_name(found)}" for found in seen.kernel_mismatches)
    else:
        yield "           for this installation; --trust-code loads it"


def _kinds(part: ArtifactPart) -> str:
    if not part.names:
        return "compile artifacts of unknown number"
    return ", ".join(
        f"{len(keys)} {escape_name(kind)}" for kind, keys in sorted(part.names.items())
    )
