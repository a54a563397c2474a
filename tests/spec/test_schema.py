"""The JSON Schema says what the reader says."""

import json
from pathlib import Path

import jsonschema
import pytest
from msgspec.structs import fields

from fastplan import spec
from fastplan.files.document import SpecError, document_of
from fastplan.model.request import Table
from fastplan.spec.ids import IdFields
from fastplan.spec.model import CacheSpec, ModuleSpec, ReservationSpec, TableSpec
from fastplan.spec.read import spec_of
from fastplan.spec.spec_file import (
    MenuFields,
    PartitionerFields,
    ProposerFields,
    SearchFields,
    SpecFile,
    TopologyFields,
    cost_fields,
    exact_fields,
    schema,
)
from fastplan.spec.stock_rules import COST_FIELDS, POLICIES
from fastplan.spec.write import to_plain

from .test_read import SMALLEST
from .test_write import FULL

PARTS = (
    MenuFields,
    TopologyFields,
    ProposerFields,
    PartitionerFields,
    SearchFields,
    cost_fields(),
    exact_fields(),
)
SHIPPED = Path(spec.__path__[0]) / "schema.json"


def schema_text() -> str:
    """The content of the shipped file."""
    return json.dumps(schema(), indent=2) + "\n"


def test_shipped_file_is_current() -> None:
    assert SHIPPED.read_text() == schema_text(), "run python -m tests.spec.test_schema"


def test_every_part_has_the_fields_of_its_struct() -> None:
    found = schema()
    structs = (TableSpec, CacheSpec, IdFields, ModuleSpec, ReservationSpec, *PARTS)
    for struct in structs:
        part = found["$defs"][struct.__name__]
        assert [*part["properties"]] == [each.encode_name for each in fields(struct)]
        assert part["additionalProperties"] is False
    assert [*found["properties"]] == [each.encode_name for each in fields(SpecFile)]
    assert {*found["$defs"]} == {struct.__name__ for struct in structs}


def test_a_spec_has_every_field_of_a_request_that_is_a_number() -> None:
    assert {*exact_fields().__struct_fields__} == {*Table._fields} - {
        "name",
        "path",
        "menu",
        "tower",
    }
    assert {*cost_fields().__struct_fields__} == {"function", *COST_FIELDS}


def test_policies_are_those_that_can_be_reserved_by() -> None:
    found = schema()["$defs"]["ReservationSpec"]["properties"]["policy"]["enum"]
    assert found == [*POLICIES]


@pytest.mark.parametrize("content", [SMALLEST, json.loads(json.dumps(to_plain(FULL)))])
def test_valid_specs_are_valid(content) -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(content, schema())


# Every way of writing a value that docs/spec.md shows.
WRITTEN = """
{"model": "m", "batch_size": "4k", "torchrec": "1.8.0",
 "modules": {"a": {"weighted": true, "cache_load_factor": 0.1, "wire": [2, 2, 2, 2],
                   "sharding_types": "row_wise", "compute_kernels": {"row_wise": "fused"}}},
 "tables": [{"name": "t", "rows": "40M", "dim": 128, "pooling": [3, 1.5], "features": ["a", "b"],
             "sharding_types": ["table_wise"], "compute_kernels": "fused", "optimizer": "adam",
             "cache": {"load_factor": 0.2}, "key_value_cache": "16MiB", "batch_sizes": [1, "2k"],
             "exact": {"rows": 3, "perf_inputs": 2.5, "usage": "base"}, "settings": {"a": [null]},
             "ids": {"ids": "4B", "samples": 9, "unique": [[1, 1], [1e6, 0.2]],
                     "misses": [[1000, 0.3]], "zipf": 1.1}}],
 "menus": {"x": [{"sharding_type": "row_wise", "kernel": "fused", "bandwidth": "900GB/s",
                  "fwd": [1, 1, 1, 0], "bwd": null}]},
 "topology": {"sku": "h100", "hbm": "79GiB", "inter_host_bw": "45GB/s", "rank_hbm": ["1GiB", 2]},
 "reservation": {"policy": "percentage", "percentage": 0.1, "dense": "1GiB"},
 "search": {"proposers": [{"kind": "greedy"}], "partitioner": {"sort_by_perf": true}},
 "cost": {"function": "a.b:c", "pipeline": "none", "prefetch_coefficients": [1, 2, 3]},
 "objective": "a.b:c"}
"""


def test_what_can_be_written_is_valid_and_can_be_read() -> None:
    content = json.loads(WRITTEN)
    jsonschema.validate(content, schema())
    jsonschema.validate({**content, "cost": "a.b:c"}, schema())
    assert spec_of(document_of(content, "m.json")).shard_cost == "a.b:c"


@pytest.mark.parametrize(
    "table",
    [
        {"rows": 0},
        {"rows": True},
        {"dtype": "fp33"},
        {"sharding_types": ["rowwise"]},
        {"pooling": "many"},
        {"pooling": -1},
        {"cache": {"load_factor": 2}},
        {"exact": {"rowz": 1}},
        {"ids": {"ids": 1, "samples": 1, "unique": [1, 1], "misses": [[1, 1]]}},
        {"ids": {"ids": 1, "samples": 1, "misses": [[1, 1]]}},
        {"settings": 3},
        {"polling": 1},
        {"name": 3},
    ],
)
def test_what_cannot_be_read_is_not_valid(table) -> None:
    content = {**SMALLEST, "tables": [{**SMALLEST["tables"][0], **table}]}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, schema())
    with pytest.raises(SpecError):
        spec_of(document_of(content, "m.json"))


def test_mistakes_are_seen() -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**SMALLEST, "batchsize": 3}, schema())


if __name__ == "__main__":
    SHIPPED.write_text(schema_text())
