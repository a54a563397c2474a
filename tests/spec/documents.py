"""Specs as text, and what tests ask of the nodes they become."""

import pytest

from fastplan.spec.document import parse_document
from fastplan.spec.nodes import SpecError, below

MODEL = b"""\
# a model
defaults: &defaults
  dim: 128
  kernels: [fused, dense]
tables:
  - <<: *defaults
    name: users
    rows: 40M
  - name: "item\\u0020ids"
    rows: 1_000
    weighted: yes
    pooling:
      - 1.5
      - .inf
"""


def plain(node):
    if isinstance(node.value, dict):
        return {key: plain(item) for key, item in node.value.items()}
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    return node.value


def refusal(text, name="m.yaml", **options):
    with pytest.raises(SpecError) as caught:
        parse_document(text, name, **options)
    return caught.value


def value_of(text, name="m.yaml"):
    return plain(parse_document(text, name).root)


def lines_of(node):
    """The lines of a node and of all below it, by place."""
    found = {}

    def walk(node, place):
        found[place] = node.line
        if isinstance(node.value, dict):
            for key, item in node.value.items():
                walk(item, below(place, key))
        elif isinstance(node.value, list):
            for i, item in enumerate(node.value):
                walk(item, below(place, i))

    walk(node, "")
    return found
