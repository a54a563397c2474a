"""SKUs as tests write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastplan.files.document import document_of
from fastplan.spec.hardware import Hardware, read_hardware

GIB = 1 << 30
SHIPPED = (
    "torchrec",
    "torchrec-cpu",
    "v100-32",
    "a100-40",
    "a100-80",
    "h100",
    "h200",
    "gh200",
    "b200",
    "b300",
    "gb200-nvl72",
    "gb300-nvl72",
    "mi300x",
    "mi355x",
    "l40s",
    "cpu",
)


def one(sku: dict[str, Any], name: str = "mine") -> Hardware:
    [hardware] = read_hardware(document_of({"skus": {name: sku}}, "skus.json"))
    return hardware


def saved(path: Path, value: Any) -> str:
    path.write_text(json.dumps(value, indent=2))
    return str(path)
