"""The text of the file of shipped SKUs: stable, and with one constant per line."""

import json
from typing import Any

_INDENT = "  "
_COSTS = 4  # the level of a constant: skus, name, costs, group


def skus_text(content: dict[str, Any]) -> str:
    """Returns the file's text."""
    return f"{_text(content, 0, False)}\n"


def _text(value: Any, level: int, in_costs: bool) -> str:
    if not isinstance(value, dict) or (in_costs and level > _COSTS):
        return json.dumps(value)
    inner = _INDENT * (level + 1)
    lines = [
        f"{inner}{json.dumps(key)}: {_text(each, level + 1, in_costs or key == 'costs')}"
        for key, each in value.items()
    ]
    return "{\n" + ",\n".join(lines) + f"\n{_INDENT * level}}}"
