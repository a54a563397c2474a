"""Files as text, and what tests ask of the documents they become."""

import pytest

from fastplan.files.document import SpecError, below, parse_document

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


def refusal(text, name="m.yaml", **options):
    with pytest.raises(SpecError) as caught:
        parse_document(text, name, **options)
    return caught.value


def value_of(text, name="m.yaml"):
    return parse_document(text, name).root


def lines_of(document):
    """The lines of a document and of everything in it, by place."""
    found = {}

    def walk(value, steps, place):
        found[place] = document.line(steps)
        entries = value.items() if isinstance(value, dict) else ()
        for step, each in enumerate(value) if isinstance(value, list) else entries:
            walk(each, (*steps, step), below(place, step))

    walk(document.root, (), "")
    return found
