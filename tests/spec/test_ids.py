"""Id statistics in specs and in files of their own."""

import json

import pytest

from fastplan.files.document import SpecError, document_of, parse_document
from fastplan.model.ids import Curve, IdStatistics
from fastplan.spec.ids import (
    FORMAT,
    fields_of,
    read_statistics,
    statistics_in,
    statistics_of,
    statistics_text,
    write_statistics,
)
from fastplan.spec.lower import lower
from fastplan.spec.read import on_cluster, read_spec, spec_of, with_statistics
from fastplan.spec.write import spec_text

from .test_read import SMALLEST

SMALL = IdStatistics(
    ids=1000,
    samples=10,
    unique=Curve.of([(1, 1), (1000, 0.5)]),
    misses=Curve.of([(10, 0.9), (500.5, 0.1)]),
)
FULL = IdStatistics(
    ids=10**12,
    samples=10**10,
    unique=Curve.of([(1.0, 1.0), (1e12, 1e-5)]),
    misses=Curve.of([(1.0, 0.987654321), (1e9, 0.0)]),
    hottest=Curve.of([(1.0, 0.1), (100.0, 0.25)]),
    pooling_quantiles=Curve.of([(0.5, 80.0), (1.0, 500.0)]),
    zipf=1.05,
    zipf_error=0.02,
    followed=0.125,
)
BOTH = {"t0": FULL, 'quote " \\ \n': SMALL}


def test_a_file_is_read_as_it_was_written(tmp_path):
    file = tmp_path / "ids.json"
    write_statistics(BOTH, file)
    assert read_statistics(file) == BOTH
    assert len(file.read_text().splitlines()) == 8  # a line per table


def test_fields_are_those_of_the_statistics():
    assert statistics_of(fields_of(FULL)) == FULL
    assert fields_of(SMALL).hottest is None


@pytest.mark.parametrize("format", ["yaml", "json"])
def test_a_spec_carries_them(format):
    spec = with_statistics(spec_of(document_of(SMALLEST, "m.json")), BOTH)
    found = spec_of(parse_document(spec_text(spec, format).encode(), f"m.{format}"))
    assert statistics_of(found.tables[0].ids) == FULL


def test_they_do_not_change_the_request_of_torchrecs_costs():
    plain = on_cluster(spec_of(document_of(SMALLEST, "m.json")), sku="h100", world_size=8)
    assert lower(with_statistics(plain, BOTH)).request == lower(plain).request


def test_a_spec_names_a_file_beside_it(tmp_path):
    (tmp_path / "data").mkdir()
    write_statistics(BOTH, tmp_path / "data" / "ids.json")
    own = json.loads(statistics_text({"t1": SMALL}))["tables"][0]
    tables = [
        *SMALLEST["tables"],
        {"name": "t1", "rows": 3, "dim": 4},
        {"name": "t2", "rows": 3, "dim": 4},
    ]
    tables[2]["ids"] = {name: value for name, value in own.items() if name != "name"}
    spec = {**SMALLEST, "tables": tables, "statistics": "data/ids.json"}
    (tmp_path / "model.json").write_text(json.dumps(spec))
    first, second, third = read_spec(tmp_path / "model.json").tables
    assert statistics_of(first.ids) == FULL
    assert second.ids is None
    assert statistics_of(third.ids) == SMALL


def test_ids_in_the_spec_come_before_those_of_the_file(tmp_path):
    write_statistics(BOTH, tmp_path / "ids.json")
    spec = with_statistics(spec_of(document_of(SMALLEST, "m.json")), {"t0": SMALL})
    text = f"statistics: ids.json\n{spec_text(spec)}"
    (tmp_path / "model.yaml").write_text(text)
    assert statistics_of(read_spec(tmp_path / "model.yaml").tables[0].ids) == SMALL


def refusal(read):
    with pytest.raises(SpecError) as caught:
        read()
    return str(caught.value)


def test_a_file_that_does_not_help_is_told(tmp_path):
    file = tmp_path / "model.json"
    file.write_text(json.dumps({**SMALLEST, "statistics": "ids.json"}))
    assert f"statistics: there is no file {tmp_path / 'ids.json'}" in refusal(
        lambda: read_spec(file)
    )
    write_statistics({"other": SMALL}, tmp_path / "ids.json")
    told = refusal(lambda: read_spec(file))
    assert "no table of 'dlrm' has statistics; there are some of 'other'" in told
    assert "is a statistics file, not a spec" in refusal(lambda: read_spec(tmp_path / "ids.json"))


GOOD = json.loads(statistics_text({"t": FULL}))
TABLE = GOOD["tables"][0]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": "fastplan sharding plan"}, "format: must be 'fastplan id statistics'"),
        ({"version": 2}, "version: must be 1, the only one that can be read, not 2"),
        ({"tables": [TABLE, TABLE]}, "tables[1].name: two tables are called 't'"),
        ({"tables": [{**TABLE, "ids": 0}]}, "tables[0].ids: must be a whole number of at least 1"),
        ({"tables": [{**TABLE, "uniqe": 1}]}, "did you mean `unique`?"),
        ({"tables": [{**TABLE, "misses": [[1, 2]]}]}, "`misses` must be shares between 0 and 1"),
        ({"tables": [{**TABLE, "misses": [[2, 1], [1, 1]]}]}, "`misses`: `x` must be positive"),
        ({"tables": [{**TABLE, "misses": []}]}, "`misses`: must have at least one point"),
        ({"tables": [{**TABLE, "misses": [[1, 1, 1]]}]}, "must be two numbers, x and y"),
        ({"tables": [{**TABLE, "misses": [1, 1]}]}, "must be two numbers, x and y"),
        (
            {"tables": [{**TABLE, "unique": [[x + 1, 1] for x in range(1001)]}]},
            "`unique` must have at most 1000 points, not 1001",
        ),
        ({"tables": [{**TABLE, "pooling_quantiles": [[2, 1]]}]}, "by shares up to 1"),
        ({"tables": [{**TABLE, "zipf": 1e9}]}, "must be at most 100.0"),
    ],
)
def test_mistakes_are_told_with_their_place(change, told):
    assert told in refusal(lambda: statistics_in(document_of({**GOOD, **change}, "ids.json")))


def test_a_spec_tells_the_table_of_a_mistake():
    ids = {name: value for name, value in TABLE.items() if name != "name"}
    spec = {**SMALLEST, "tables": [{**SMALLEST["tables"][0], "ids": {**ids, "unique": [[0, 1]]}}]}
    told = refusal(lambda: spec_of(document_of(spec, "m.json")))
    assert told == "m.json: tables[0].ids: `unique`: `x` must be positive and grow"


def test_a_list_is_no_file():
    assert f"format: must be '{FORMAT}', not a list" in refusal(
        lambda: statistics_in(document_of([1], "ids.json"))
    )
