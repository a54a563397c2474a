"""The JSON Schema of spec files, for editors and other tools: `schema.json` is written from here.

fastplan itself reads specs with `read.py`, which also knows lines and nearest names.
"""

from __future__ import annotations

import json
from typing import Any, get_type_hints

from fastplan.model.request import CostModel, Table
from fastplan.model.vocabulary import FIELD_CHOICES, KERNELS, PROPOSERS, SHARDING_TYPES
from fastplan.spec import spec_fields, stock
from fastplan.spec.cost_model import COST_FIELDS
from fastplan.spec.reservation import POLICIES

_TEXT = {"type": "string"}
_FUNCTION = {"type": "string", "description": "package.module:function, a custom one"}
_FLAG = {"type": "boolean"}
_NUMBER = {"type": "number"}
_FRACTION = {"type": "number", "minimum": 0, "maximum": 1}
_COUNT = {
    "description": "a whole number, or a text such as 40M or 10k",
    "anyOf": [{"type": "integer", "minimum": 0}, _TEXT],
}
_SIZE = {
    "description": "bytes, or a text such as 80GiB",
    "anyOf": [{"type": "integer", "minimum": 0}, _TEXT],
}
_BANDWIDTH = {
    "description": "bytes per millisecond, or a text such as 900GB/s",
    "anyOf": [{"type": "number", "exclusiveMinimum": 0}, _TEXT],
}


def schema() -> dict[str, Any]:
    """The schema of a whole spec file."""
    sections = {
        "model": {**_TEXT, "description": "the model's name"},
        "batch_size": {**_COUNT, "description": "samples per rank; 512 by default"},
        "torchrec": {
            "enum": list(stock.VERSIONS),
            "description": "whose planner to match; the installed one's by default",
        },
        "modules": {"type": "object", "additionalProperties": _module()},
        "tables": {"type": "array", "minItems": 1, "items": _table()},
        "menus": {"type": "object", "additionalProperties": {"type": "array", "items": _menu()}},
        "topology": _topology(),
        "reservation": _reservation(),
        "search": _search(),
        "cost": {
            "anyOf": [
                _FUNCTION,
                _object(
                    {"function": _FUNCTION, **{n: _of(CostModel, n) for n in COST_FIELDS}},
                ),
            ]
        },
        "objective": _FUNCTION,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "fastplan spec",
        **_object(sections, required=("model", "tables")),
    }


def schema_text() -> str:
    """What `schema.json` holds."""
    return json.dumps(schema(), indent=2) + "\n"


def _object(properties: dict[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    content: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    return content | ({"required": list(required)} if required else {})


def _one_or_more(item: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [item, {"type": "array", "items": item, "minItems": 1}]}


def _of(owner: Any, name: str) -> dict[str, Any]:
    """The schema of a field of the request, by its declared type."""
    if name in FIELD_CHOICES:
        return {"enum": list(FIELD_CHOICES[name])}
    kind = get_type_hints(owner)[name]
    known = {float: _NUMBER, int: {"type": "integer"}, bool: _FLAG}
    return known.get(kind) or {"type": "array", "items": _NUMBER}


def _table() -> dict[str, Any]:
    types = _one_or_more({"enum": list(SHARDING_TYPES)})
    properties = {
        "name": _TEXT,
        "rows": _COUNT,
        "dim": _COUNT,
        "module": {**_TEXT, "description": "path of the module that holds it"},
        "dtype": {"enum": list(stock.DTYPE_SIZES)},
        "features": _one_or_more(_TEXT),
        "pooling": {**_one_or_more(_NUMBER), "description": "values looked up, by feature"},
        "poolings": _one_or_more(_NUMBER),
        "batch_sizes": _one_or_more(_COUNT),
        "weighted": _FLAG,
        "sharding_types": types,
        "compute_kernels": _one_or_more({"enum": list(KERNELS)}),
        "min_partition": _COUNT,
        "output_dtype": {"enum": list(stock.OUTPUT_BITS)},
        "optimizer": {"enum": list(stock.OPTIMIZERS)},
        "cache": _object(
            {
                "load_factor": _FRACTION,
                "prefetch": _FLAG,
                "passes": _COUNT,
                "expected_lookups": _NUMBER,
                "miss_rate": _NUMBER,
            }
        ),
        "key_value_cache": _SIZE,
        "virtual": _FLAG,
        "buckets": _COUNT,
        "tower": _TEXT,
        "menu": {**_TEXT, "description": "one of `menus`, in place of TorchRec's rules"},
        "exact": _object({name: _of(Table, name) for name in spec_fields.EXACT_FIELDS}),
        "settings": {"type": "object", "description": "carried to the plan as it is"},
    }
    return _object(properties, required=("name", "rows", "dim"))


def _module() -> dict[str, Any]:
    kernels = _one_or_more({"enum": list(KERNELS)})
    return _object(
        {
            "kind": {"enum": list(stock.KINDS)},
            "weighted": _FLAG,
            "cache_load_factor": _FRACTION,
            "prefetch": _FLAG,
            "passes": _COUNT,
            "wire": {"type": "array", "items": _NUMBER, "minItems": 4, "maxItems": 4},
            "sharding_types": _one_or_more({"enum": list(SHARDING_TYPES)}),
            "compute_kernels": _object(dict.fromkeys(SHARDING_TYPES, kernels)),
            "pooled": _FLAG,
        }
    )


def _menu() -> dict[str, Any]:
    four = {"type": "array", "items": _NUMBER, "minItems": 4, "maxItems": 4}
    properties = {
        "sharding_type": {"enum": list(SHARDING_TYPES)},
        "kernel": {"enum": list(KERNELS)},
        "bandwidth": _BANDWIDTH,
        "fwd": four,
        "bwd": {"anyOf": [four, {"type": "null"}]},
    }
    return _object(properties, required=("sharding_type", "kernel", "bandwidth"))


def _topology() -> dict[str, Any]:
    sizes = {"type": "array", "items": _SIZE}
    properties: dict[str, Any] = {
        "sku": {**_TEXT, "description": "a name of `fastplan skus`, or a file"},
        "device": {"enum": list(stock.DEVICES)},
        "world_size": _COUNT,
        "local_world_size": _COUNT,
        "pod_size": _COUNT,
    }
    properties |= dict.fromkeys(spec_fields.CAPACITIES, _SIZE)
    properties |= dict.fromkeys(spec_fields.BANDWIDTHS, _BANDWIDTH)
    properties |= dict.fromkeys(spec_fields.MULTIPLIERS, _NUMBER)
    return _object(properties | dict.fromkeys(("rank_hbm", "rank_ddr", "rank_ssd"), sizes))


def _reservation() -> dict[str, Any]:
    sizes = ("reserved", "dense", "kjt", "margin", "base", "overhead")
    return _object(
        {
            "policy": {"enum": list(POLICIES)},
            "percentage": _FRACTION,
            **dict.fromkeys(sizes, _SIZE),
        }
    )


def _search() -> dict[str, Any]:
    proposer = _object(
        {
            "kind": {"enum": list(PROPOSERS)},
            "use_depth": _FLAG,
            "threshold": _COUNT,
            "max_proposals": _COUNT,
            "bins_per_device": _COUNT,
        },
        required=("kind",),
    )
    partitioner = _object(
        {
            "memory_balanced": _FLAG,
            "sort_by_perf": _FLAG,
            "balance_modules": _FLAG,
            "max_search_count": _COUNT,
            "tolerance": _NUMBER,
        }
    )
    return _object(
        {
            "proposers": {"type": "array", "items": proposer, "minItems": 1},
            "partitioner": partitioner,
            "timeout_seconds": _NUMBER,
            "deterministic": _FLAG,
        }
    )
