"""Every number and text of a spec has a limit, and an error that names field and value."""

import json
from typing import Any

import pytest

from fastplan.cli.main import main
from fastplan.files.document import SpecError, document_of
from fastplan.model.limits import MOST_TEXT
from fastplan.spec.ids import CURVES
from fastplan.spec.read import read_spec, spec_of
from fastplan.spec.spec_file import schema

TABLE = {"name": "t", "rows": 1000, "dim": 64}
SPEC: dict[str, Any] = {
    "model": "m",
    "tables": [TABLE],
    "topology": {"sku": "a100-80", "world_size": 2},
}

IDS = {"ids": 1, "samples": 1, "unique": [[1, 1]], "misses": [[1, 1]]}


def problem(spec: dict[str, Any]) -> str:
    with pytest.raises(SpecError) as caught:
        spec_of(document_of(spec, "m.json"))
    return str(caught.value)


def with_field(place: str, value: Any) -> dict[str, Any]:
    """The spec with a value at `tables.cache.passes` or the like; lists have one entry."""
    spec: dict[str, Any] = json.loads(json.dumps(SPEC))
    *above, last = place.split(".")
    holder: Any = spec
    for step in above:
        if step in ("tables", "proposers"):
            holder = holder.setdefault(step, [{"kind": "greedy"}])[0]
        elif step == "menus":
            holder = holder.setdefault(step, {}).setdefault(
                "own", [{"sharding_type": "table_wise", "kernel": "fused", "bandwidth": 1.0}]
            )[0]
        else:
            holder = holder.setdefault(step, dict(IDS) if step == "ids" else {})
    if last in CURVES:
        value = [[value, value]]
    many = last in ("wire", "fwd", "bwd", "prefetch_coefficients")
    holder[last] = [value] * (3 if last == "prefetch_coefficients" else 4) if many else value
    if place.startswith("tables.cache.") and last in ("expected_lookups", "miss_rate"):
        holder.setdefault("expected_lookups", 1.0)
        holder.setdefault("miss_rate", 0.1)
    return spec


def numeric_fields() -> list[str]:
    """All places of the schema that take a number or a list of numbers."""
    found = []

    whole = schema()

    def walk(part: Any, place: tuple[str, ...]) -> None:
        if "$ref" in part:
            part = whole["$defs"][part["$ref"].rpartition("/")[2]]
        options = part.get("anyOf", [part])
        kinds = [kind for o in options for kind in [o.get("type")]]
        if any({"number", "integer"} & {*(k if isinstance(k, list) else [k])} for k in kinds):
            found.append(".".join(place))
            return
        for option in options:
            if option is not part:
                walk(option, place)
            for item in option.get("prefixItems", [option.get("items")])[:1]:
                if isinstance(item, dict):
                    walk(item, place)
            for name, inner in option.get("properties", {}).items():
                walk(inner, (*place, name))
            more = option.get("additionalProperties")
            if isinstance(more, dict):
                walk(more, (*place, "own") if place == ("modules",) else place)

    walk(whole, ())
    return sorted(set(found))


def test_the_fields_are_found():
    fields = numeric_fields()
    for place in ("tables.pooling", "modules.own.wire", "menus.fwd", "cost.input_element_size"):
        assert place in fields
    assert len(fields) > 90


@pytest.mark.parametrize("place", numeric_fields())
@pytest.mark.parametrize("value", [1e308, -1e308])
def test_no_number_is_without_limits(place, value):
    told = problem(with_field(place, value))
    assert place.split(".")[-1] in told
    assert "1e+308" in told


def test_a_number_beyond_its_limit_is_told_with_the_limit():
    told = problem(with_field("tables.pooling", 1e10))
    assert told == "m.json: tables[0].pooling: must be at most 1000000000.0, not 10000000000.0"


def test_a_spec_at_its_limits_can_be_read_and_is_planned_or_refused(tmp_path, capsys):
    spec = with_field("tables.pooling", 1e9)
    spec["tables"][0] |= {"poolings": 1e9, "batch_sizes": 1 << 40}
    (tmp_path / "m.json").write_text(json.dumps(spec))
    assert main(("plan", str(tmp_path / "m.json"), "--no-cache")) in (1, 2)
    told = "".join(capsys.readouterr())
    assert "Error:" not in told and "--debug" not in told


LONG = "x" * (MOST_TEXT + 1)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"model": LONG}, "model"),
        ({"tables": [{**TABLE, "name": LONG}]}, "tables[0].name"),
        ({"tables": [{**TABLE, "module": LONG}]}, "tables[0].module"),
        ({"tables": [{**TABLE, "features": ["f", LONG]}]}, "tables[0].features[1]"),
        ({"tables": [{**TABLE, "tower": LONG}]}, "tables[0].tower"),
        ({"tables": [{**TABLE, "settings": {"a": [LONG]}}]}, "tables[0].settings"),
        ({"tables": [{**TABLE, "settings": {LONG: 1}}]}, "tables[0].settings"),
        ({"modules": {LONG: {}}}, "modules"),
        ({"menus": {LONG: []}}, "menus"),
        ({"topology": {"sku": LONG}}, "topology.sku"),
        ({"cost": f"{LONG}:f"}, "cost"),
    ],
)
def test_no_text_is_longer_than_the_limit(change, place):
    told = problem(SPEC | change)
    assert told.startswith(f"m.json: {place}: must be at most {MOST_TEXT} characters")
    assert len(told) < 300


def test_a_name_at_the_limit_is_planned(tmp_path, capsys):
    spec = SPEC | {"tables": [{**TABLE, "name": LONG[1:]}]}
    (tmp_path / "m.json").write_text(json.dumps(spec))
    assert main(("plan", str(tmp_path / "m.json"), "--no-cache")) == 0


def test_a_huge_name_costs_no_more_than_reading_it(tmp_path):
    file = tmp_path / "m.json"
    file.write_text(json.dumps(SPEC | {"tables": [{**TABLE, "name": "x" * 20_000_000}]}))
    with pytest.raises(SpecError, match=r"tables\[0\].name: must be at most .* not 'xxx") as caught:
        read_spec(file)
    assert len(str(caught.value)) < 300 + len(str(file))


def test_long_places_are_shortened():
    told = str(SpecError("m.json", 3, "modules." + "y" * 4000 + ".passes", "is wrong"))
    assert len(told) < 300 and told.endswith(".passes: is wrong")


SECRETS = {
    "passwd": "root:x:0:0:root:/root:/bin/bash\nsecret:x:1:1::/:/bin/sh\n",
    "list.yaml": "- secret\n- other\n",
    "settings.yaml": "name: secret\nsecret: yes\n",
    "settings.json": '{"secret": 1}',
    "twice.yaml": "secret: 1\nsecret: 2\n",
    "tag.yaml": "a: !secret 0\n",
    "broken.yaml": "a: *secret\n",
    "value.yaml": "like: h100\nhbm: secret\n",
}


@pytest.mark.parametrize("name", SECRETS)
def test_errors_do_not_show_the_content_of_a_file_that_a_spec_names(tmp_path, capsys, name):
    (tmp_path / name).write_text(SECRETS[name])
    spec = tmp_path / "model.json"
    spec.write_text(json.dumps(SPEC | {"topology": {"sku": str(tmp_path / name)}}))
    sweep = tmp_path / "sweep.json"
    sweep.write_text(json.dumps({"models": ["ok.json"], "skus": [f"./{name}"]}))
    (tmp_path / "ok.json").write_text(json.dumps(SPEC))
    for words in (("plan", str(spec)), ("precompute", str(sweep), "--dry-run")):
        assert main(words) == 1
        told = capsys.readouterr().err
        assert name in told and "secret" not in told and "bash" not in told
