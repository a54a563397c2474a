"""Writes specs without fields that have their default values."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from fastplan.files.storage import replace_file
from fastplan.model.request import CompiledFunction
from fastplan.spec.hardware import Hardware, find_hardware
from fastplan.spec.model import ModelSpec, TableSpec, TopologySpec
from fastplan.spec.skus import BANDWIDTHS, MULTIPLIERS, SIZES

# Strings that YAML reads as strings without quotes.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_TAKEN = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})
_ONE_OR_MORE = frozenset({"pooling", "poolings", "batch_sizes"})


def spec_text(spec: ModelSpec, format: str = "yaml") -> str:
    """Returns the text of a spec file, with a line per table.

    Args:
        spec: The spec.
        format: `yaml` or `json`.
    """
    content = to_plain(spec)
    return _yaml(content) if format == "yaml" else _json(content)


def write_spec(spec: ModelSpec, path: str | os.PathLike[str]) -> None:
    """Writes a spec file: JSON if its name ends in `.json`, else YAML.

    Args:
        spec: The spec.
        path: The file.

    Raises:
        OSError: The file can't be written.
    """
    file = Path(path)
    text = spec_text(spec, "json" if file.suffix == ".json" else "yaml")
    replace_file(path, [text.encode()])


def to_plain(spec: ModelSpec) -> dict[str, Any]:
    """Returns the spec as JSON values."""
    content: dict[str, Any] = {"model": spec.name, "batch_size": spec.batch_size}
    if spec.torchrec is not None:
        content["torchrec"] = spec.torchrec
    if spec.costs != "torchrec":
        content["costs"] = spec.costs
    if spec.pipeline != "none":
        content["pipeline"] = spec.pipeline
    sections = {
        "topology": _topology(spec.topology, by_name=spec.costs != "torchrec"),
        "reservation": _non_default_fields(spec.reservation),
        "search": _non_default_fields(spec.search),
        "cost": _cost(spec),
        "objective": _name(spec.objective),
        "modules": {path: _non_default_fields(module) for path, module in spec.modules.items()},
        "menus": {
            name: [_value(entry._asdict()) for entry in menu] for name, menu in spec.menus.items()
        },
    }
    content |= {name: section for name, section in sections.items() if section}
    one_module = next(iter(spec.modules)) if len(spec.modules) == 1 else None
    content["tables"] = [_table(table, one_module) for table in spec.tables]
    return content


def _cost(spec: ModelSpec) -> Any:
    numbers = {name: _value(value) for name, value in spec.cost.items()}
    if spec.shard_cost is None:
        return numbers
    name = _name(spec.shard_cost)
    return {"function": name, **numbers} if numbers else name


def _name(function: str | CompiledFunction | None) -> str | None:
    return function if function is None or isinstance(function, str) else function.name


def _table(table: TableSpec, one_module: str | None) -> dict[str, Any]:
    given = _non_default_fields(table, always=("name", "rows", "dim"))
    if table.module == one_module:
        given.pop("module", None)
    elif one_module is not None:
        given["module"] = table.module
    if table.settings:
        given["settings"] = table.settings  # unchanged: 1.0 stays 1.0
    for name in _ONE_OR_MORE & given.keys():
        if len(given[name]) == 1:
            given[name] = given[name][0]
    return given


def _topology(topology: TopologySpec, *, by_name: bool) -> dict[str, Any]:
    """Returns the cluster. `by_name` keeps the SKU's name, because costs rest on its constants."""
    given = {
        name: _value(value)
        for name, value in structs.asdict(topology).items()
        if name != "hardware" and value is not None
    }
    hardware = topology.hardware
    if hardware is None:
        return given
    if _is_known(hardware):
        return {"sku": hardware.name} | given
    names = ("device", *SIZES, *BANDWIDTHS, *MULTIPLIERS)
    sku = _known(hardware.name) if by_name else None
    if sku is not None:
        own = {name: getattr(hardware, name) for name in names}
        changed = {
            name: _value(value) for name, value in own.items() if value != getattr(sku, name)
        }
        return {"sku": sku.name} | changed | given
    hosts = {"local_world_size": hardware.ranks_per_host}
    if hardware.pod_size is not None:
        hosts["pod_size"] = hardware.pod_size
    return hosts | {name: _value(getattr(hardware, name)) for name in names} | given


def _is_known(hardware: Hardware) -> bool:
    return _known(hardware.name) == hardware


def _known(name: str) -> Hardware | None:
    try:
        return find_hardware(name)
    except ValueError:
        return None


def _non_default_fields(part: Any, always: tuple[str, ...] = ()) -> dict[str, Any]:
    """Returns the fields of a struct or dataclass that differ from their defaults."""
    given = {}
    for name, default in _defaults(part.__class__).items():
        value = getattr(part, name)
        if name in always or value != default:
            given[name] = _value(value)
    return given


@cache
def _defaults(kind: Any) -> dict[str, Any]:
    if issubclass(kind, Struct):
        found: Any = structs.fields(kind)
    else:
        found = dataclasses.fields(kind)
    return {
        field.name: field.default_factory() if callable(field.default_factory) else field.default
        for field in found
    }


def _value(value: Any) -> Any:
    if isinstance(value, Struct) or dataclasses.is_dataclass(value):
        return _non_default_fields(value, always=("kind",) if hasattr(value, "kind") else ())
    if isinstance(value, dict):
        return {name: _value(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [_value(each) for each in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return int(value)
    return value


def _json(content: dict[str, Any]) -> str:
    lines = [f"  {json.dumps(name)}: {_json_value(value)}" for name, value in content.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _json_value(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"    {_dumps(each)}" for each in value) + "\n  ]"
    return _dumps(value)


def _dumps(value: Any) -> str:
    return json.dumps(_nonfinite_as_text(value), ensure_ascii=False, allow_nan=False)


def _nonfinite_as_text(value: Any) -> Any:
    """Replaces infinities and NaN, which JSON does not have, by strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {name: _nonfinite_as_text(each) for name, each in value.items()}
    return [_nonfinite_as_text(each) for each in value] if isinstance(value, list) else value


def _yaml(content: dict[str, Any]) -> str:
    lines = []
    for name, value in content.items():
        if name in ("tables",):
            lines += [f"{name}:", *(f"  - {_flow(each)}" for each in value)]
        elif name in ("modules", "menus"):
            lines.append(f"{name}:")
            lines += [f"  {_scalar(key)}: {_flow(each)}" for key, each in value.items()]
        elif isinstance(value, dict):
            lines.append(f"{name}:")
            lines += [f"  {key}: {_flow(each)}" for key, each in value.items()]
        else:
            lines.append(f"{name}: {_flow(value)}")
    return "\n".join(lines) + "\n"


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, float):
        if not math.isfinite(value):
            return {"inf": ".inf", "-inf": "-.inf"}.get(repr(value), ".nan")
        text = repr(value)
        # YAML 1.1 reads 1e-05 as a string.
        return text if "." in text or "e" not in text else text.replace("e", ".0e")
    if isinstance(value, int):
        return str(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _TAKEN:
        return str(value)
    return _quoted(value)


def _quoted(text: str) -> str:
    """Returns a double-quoted string. YAML requires escapes for non-printable characters."""
    return "".join(
        each if each.isprintable() else f"\\U{ord(each):08x}"
        for each in json.dumps(text, ensure_ascii=False)
    )
