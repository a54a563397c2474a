"""The JSON Schema says what the reader says."""

import json
from pathlib import Path

import jsonschema
import pytest

from fastplan import spec
from fastplan.spec import spec_fields
from fastplan.spec.schema import schema, schema_text
from fastplan.spec.write import to_plain

from .test_read import SMALLEST
from .test_write import FULL

SHIPPED = Path(spec.__path__[0]) / "schema.json"


def test_shipped_file_is_current() -> None:
    assert SHIPPED.read_text() == schema_text(), "run python -m tests.spec.test_schema"


def test_every_field_is_in_both() -> None:
    found = schema()["properties"]
    assert tuple(found) == spec_fields.MODEL_FIELDS
    table = found["tables"]["items"]["properties"]
    assert tuple(table) == spec_fields.TABLE_FIELDS
    assert tuple(table["cache"]["properties"]) == spec_fields.CACHE_FIELDS
    assert tuple(table["exact"]["properties"]) == spec_fields.EXACT_FIELDS
    assert (
        tuple(found["modules"]["additionalProperties"]["properties"]) == spec_fields.MODULE_FIELDS
    )
    assert tuple(found["topology"]["properties"]) == spec_fields.TOPOLOGY_FIELDS
    assert tuple(found["reservation"]["properties"]) == spec_fields.RESERVATION_FIELDS
    assert tuple(found["search"]["properties"]) == spec_fields.SEARCH_FIELDS
    menu = found["menus"]["additionalProperties"]["items"]["properties"]
    assert tuple(menu) == spec_fields.MENU_FIELDS


@pytest.mark.parametrize("content", [SMALLEST, json.loads(json.dumps(to_plain(FULL)))])
def test_valid_specs_are_valid(content) -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(content, schema())


def test_mistakes_are_seen() -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**SMALLEST, "batchsize": 3}, schema())


if __name__ == "__main__":
    SHIPPED.write_text(schema_text())
