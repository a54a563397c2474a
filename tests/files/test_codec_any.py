"""Any value and any damage is read, or gives an error that names its place."""

import json
import random
from typing import Annotated

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import defstruct

from fastplan.files.codec import decode
from fastplan.files.document import SpecError, document_of, parse_document
from fastplan.files.kinds import (
    Text,
    any_number,
    bandwidth,
    choice,
    number,
    size,
    whole,
)
from tests.files.test_codec import KERNELS, Cache, File, Table

KINDS = {
    "text": Text,
    "texts": tuple[Text, ...],
    "whole": Annotated[int, whole()],
    "number": Annotated[float, number()],
    "any number": Annotated[float, any_number()],
    "flag": bool,
    "size": Annotated[int, size()],
    "sizes": tuple[Annotated[int, size()], ...],
    "bandwidth": Annotated[float, bandwidth()],
    "choice": Annotated[str, choice(KERNELS)],
    "table": Table,
    "tables": tuple[Table, ...],
    "mapping": dict[Text, Cache],
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


STRUCTS = {name: defstruct("X", [("x", kind)]) for name, kind in KINDS.items()}


@given(VALUES, st.sampled_from(sorted(STRUCTS)))
@settings(
    max_examples=800,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],  # on a busy machine
)
def test_any_value_is_read_or_gives_a_spec_error(value, kind):
    try:
        decode(document_of({"x": value}, "m"), STRUCTS[kind])
    except SpecError as error:
        assert error.place.startswith("x")
        assert "\n" not in str(error)
        assert "Expected `" not in error.problem  # as msgspec's own errors have


@pytest.mark.parametrize("name", ["m.yaml", "m.json"])
def test_any_damage_to_a_file_is_found_or_harmless(name):
    rng = random.Random(11)
    tables = [{"name": f"t{i}", "rows": 100, "dim": 8, "pooling": [1.5]} for i in range(3)]
    dump = yaml.safe_dump if name == "m.yaml" else json.dumps
    original = dump({"tables": tables}, indent=1).encode()
    for _ in range(500):
        data = bytearray(original)
        data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            decode(parse_document(bytes(data), name), File)
        except SpecError as error:
            assert error.line is not None
            assert str(error).startswith(f"{name}:{error.line}: ")
