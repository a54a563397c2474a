"""Fields of small specs, and how reading them is refused."""

import pytest

from fastplan.spec.document import document_of, parse_document
from fastplan.spec.fields import Fields
from fastplan.spec.nodes import SpecError

TABLE = ("name", "rows", "dim", "pooling", "kernels", "weighted", "cache")
KERNELS = ("dense", "fused", "fused_uvm", "fused_uvm_caching")


def fields_of(value, known=None, place=""):
    document = document_of(value, "m")
    return Fields(document, document.root, place, known=value if known is None else known)


def parsed(text, known, name="m.yaml"):
    document = parse_document(text.encode(), name)
    return Fields(document, document.root, "", known=known)


def refusal(read, *arguments, **options):
    with pytest.raises(SpecError) as caught:
        read(*arguments, **options)
    return caught.value


def problem(value, method, **options):
    return refusal(getattr(fields_of({"x": value}), method), "x", **options).problem
