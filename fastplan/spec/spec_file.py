"""A spec file as structs, in addition to those in `model`, and its JSON Schema.

Annotations are not strings here, because msgspec would have to evaluate those at every start.
"""

from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Struct, UnsetType, defstruct
from msgspec.json import schema_components

from fastplan.files.kinds import Text, any_number, bandwidth, choice, number, whole, with_problem
from fastplan.model.limits import MOST, MOST_BATCH, MOST_RANKS
from fastplan.model.request import CostModel, Table
from fastplan.model.units import LARGEST
from fastplan.model.vocabulary import FIELD_CHOICES, PIPELINES, PROPOSERS, SIZE_FIELDS
from fastplan.spec import stock
from fastplan.spec.model import (
    COST_MODELS,
    Kernel,
    ModuleSpec,
    ReservationSpec,
    ShardingType,
    Size,
    TableSpec,
)
from fastplan.spec.skus import DeviceFields

_FUNCTION = {"type": "string", "description": "package.module:function of a custom function"}
_NO_NUMBERS = ("name", "path", "menu", "tower")  # these fields of request.Table

ProposerKind = Annotated[str, choice(PROPOSERS)]
Version = Annotated[str, choice(stock.VERSIONS)]
Ranks = Annotated[int, whole(1, MOST_RANKS)]
Weight = Annotated[float, number()]
Weights = Annotated[
    tuple[Weight, Weight, Weight, Weight],
    with_problem("must be four numbers: weights of input read, lookup, output write and rows"),
]


class MenuFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An option of a menu."""

    sharding_type: ShardingType
    kernel: Kernel
    bandwidth: Annotated[float, bandwidth()]
    fwd: Weights = (1.0, 1.0, 1.0, 0.0)
    bwd: Weights | None = None


class TopologyFields(DeviceFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cluster: named hardware, and fields that override it."""

    sku: Text | None = None
    world_size: Ranks | None = None
    local_world_size: Ranks | None = None
    pod_size: Ranks | None = None
    rank_hbm: tuple[Size, ...] | None = None
    rank_ddr: tuple[Size, ...] | None = None
    rank_ssd: tuple[Size, ...] | None = None


class ProposerFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A proposer, without the state that it has during a search."""

    kind: ProposerKind
    use_depth: bool = True
    threshold: Annotated[int, whole(0, MOST["threshold"])] = 0
    max_proposals: Annotated[int, whole(0, MOST["max_proposals"])] = 10_000
    bins_per_device: Annotated[int, whole(1, MOST["bins_per_device"])] = 100


class PartitionerFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The partitioner."""

    memory_balanced: bool = False
    sort_by_perf: bool = False
    balance_modules: bool = False
    max_search_count: Annotated[int, whole(0, MOST["max_search_count"])] = 10
    tolerance: Annotated[float, number(0, MOST["tolerance"])] = 0.02


class SearchFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the search."""

    proposers: tuple[ProposerFields, ...] | UnsetType = UNSET
    partitioner: PartitionerFields | None = None
    timeout_seconds: Annotated[float, number(0, MOST["timeout_seconds"])] = 0.0
    deterministic: bool = False


class SpecFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A spec file."""

    model: Text
    tables: tuple[TableSpec, ...]
    batch_size: Annotated[int, whole(1, MOST_BATCH)] = 512
    statistics: Text | None = None  # a file with the `ids` of tables, relative to this one
    torchrec: Version | None = None
    modules: dict[Text, ModuleSpec] = msgspec.field(default_factory=dict)
    menus: dict[Text, tuple[MenuFields, ...]] = msgspec.field(default_factory=dict)
    topology: TopologyFields | None = None
    reservation: ReservationSpec = ReservationSpec()
    search: SearchFields | None = None
    cost: Any = None  # the name of a function, or `cost_fields`
    objective: Text | None = None
    costs: Annotated[str, choice(COST_MODELS)] = "torchrec"
    pipeline: Annotated[str, choice(PIPELINES)] = "none"


@cache
def cost_fields() -> type[Struct]:
    """Returns the struct of `cost` if that is a mapping."""
    return _numbers("CostFields", CostModel, (), [("function", Text | None, None)])


@cache
def exact_fields() -> type[Struct]:
    """Returns the struct of a table's `exact`."""
    return _numbers("ExactFields", Table, _NO_NUMBERS, [])


def _numbers(name: str, owner: Any, leave_out: tuple[str, ...], more: list[Any]) -> type[Struct]:
    """Returns a struct with the fields of a part of the request, by their declared types."""
    declared: list[tuple[str, Any, Any]] = [*more]
    for field, kind in get_type_hints(owner).items():
        if field not in leave_out:
            declared.append((field, _number_kind(field, kind) | UnsetType, UNSET))
    return defstruct(name, declared, frozen=True, kw_only=True, forbid_unknown_fields=True)


def _number_kind(name: str, kind: Any) -> Any:
    if kind is float:
        return Annotated[float, any_number()]
    if kind is int:
        is_size = name.endswith(SIZE_FIELDS)
        return Annotated[
            int, whole(1, MOST_RANKS) if is_size else whole(0, MOST.get(name, LARGEST))
        ]
    if kind is str:
        return Annotated[str, choice(FIELD_CHOICES[name])]
    if get_origin(kind) is not tuple:
        return kind
    _, *others = get_args(kind)
    if others == [...]:
        return tuple[Annotated[int, whole()], ...]
    entries = (Annotated[float, number()],) * (1 + len(others))
    return Annotated[tuple[entries], with_problem(f"must be {len(entries)} numbers")]  # type: ignore[valid-type]


def schema() -> dict[str, Any]:
    """Returns the JSON Schema of spec files, for editors and other tools."""
    structs = (SpecFile, cost_fields(), exact_fields())
    (_, cost, exact), parts = schema_components(structs, ref_template="#/$defs/{name}")
    root = parts.pop("SpecFile")
    root["properties"]["cost"] = {"anyOf": [_FUNCTION, cost]}
    root["properties"]["objective"] = _FUNCTION
    root["properties"]["tables"]["minItems"] = 1
    parts["CostFields"]["properties"]["function"] = _FUNCTION
    parts["TableSpec"]["properties"]["exact"] = exact
    parts["SearchFields"]["properties"]["proposers"]["minItems"] = 1
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **root,
        "title": "fastplan spec",
        "$defs": dict(sorted(parts.items())),
    }
    found: dict[str, Any] = _as_written(whole)
    return found


def _as_written(part: Any) -> Any:
    """Adds the forms that people may write: strings with units, and one value for a list."""
    if isinstance(part, list):
        return [_as_written(each) for each in part]
    if not isinstance(part, dict):
        return part
    part = {name: _as_written(each) for name, each in part.items()}
    if "examples" in part and "type" in part:
        part["type"] = [part["type"], "string"]
    item = part.get("items") if part.get("type") == "array" else None
    if not item or "$ref" in item or item.get("type") == "array":
        return part
    return {"anyOf": [item, part]}
