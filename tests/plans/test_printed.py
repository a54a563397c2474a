"""A plan that TorchRec has printed is read back; other text is not taken for one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fastplan.plans.checks import PlanFileError
from fastplan.plans.foreign import read_any
from tests.plans.samples import damaged

# What TorchRec 1.9's dry run has saved for a model with tables of every sharding type.
SAMPLE = Path(__file__).parent / "data" / "dry_run_sharding_plan.txt"


def read(text: str | bytes, tmp_path: Path):
    path = tmp_path / "A100_sharding_plan.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_any(path)


def test_every_table_of_a_dry_run_is_read():
    plan = read_any(SAMPLE)
    assert (plan.layout.device, plan.layout.ranks_per_host, plan.ranks) == ("cuda", 2, 4)
    assert plan.notes == {"source_format": "torchrec-text"}
    found = {
        (table.path, table.name): (table.sharding_type, table.kernel, table.shape)
        for table in plan.layout.tables
    }
    assert found == {
        ("copies", "small"): ("data_parallel", "dense", None),
        ("deep.item", "host rows"): ("table_row_wise", "fused", (333, 256)),
        ("deep.item", "host columns"): ("table_column_wise", "fused", (333, 256)),
        ("deep.item", "grid"): ("grid_shard", "fused", (333, 256)),
        ("user", "copied"): ("data_parallel", "dense", None),
        ("user", "whole"): ("table_wise", "fused", (1001, 256)),
        ("user", "columns"): ("column_wise", "fused", (1001, 256)),
        ("user", "rows"): ("row_wise", "fused", (1001, 256)),
    }
    shards = {table.name: table.shards.tolist() for table in plan.layout.tables}
    assert shards["small"] == [[0, 0, 0, 0, rank] for rank in range(4)]
    assert shards["grid"] == [
        [0, 0, 167, 128, 0],
        [167, 0, 166, 128, 1],
        [0, 128, 167, 128, 2],
        [167, 128, 166, 128, 3],
    ]
    assert shards["rows"] == [[251 * i, 0, 251 - 3 * (i == 3), 256, i] for i in range(4)]
    assert all(not table.settings for table in plan.layout.tables)


def test_lost_spaces_and_other_line_ends_do_not_matter(tmp_path):
    text = SAMPLE.read_text()
    expected = [table.shards.tolist() for table in read(text, tmp_path).layout.tables]
    stripped = "\n".join(line.rstrip() for line in text.split("\n"))
    for changed in (stripped, text.replace("\n", "\r\n"), text + "\n\n"):
        assert [t.shards.tolist() for t in read(changed, tmp_path).layout.tables] == expected


@pytest.mark.parametrize("name", ["a | b", "<b>", "module: x", "  lead", "ü", "\x1b[31m"])
def test_any_name_on_one_line_is_read(name, tmp_path):
    wide = max(len(name), len("param"))
    rows = [["param", "sharding type", "compute kernel", "ranks"]]
    rows.append(["-" * wide, "-" * 13, "-" * 14, "-" * 6])
    rows.append([name.ljust(wide), "data_parallel", "dense".ljust(14), "[0, 1]"])
    text = "module: \n\n" + "\n".join(" | ".join(row) for row in rows) + "\n\n\n"
    plan = read(text, tmp_path)
    assert [(table.path, table.name) for table in plan.layout.tables] == [("", name)]


@pytest.mark.parametrize(
    ("old", "new", "place", "text"),
    [
        ("module: user", "module: copies", "line", "module 'copies' occurs twice"),
        ("[0, 1]      \nhost columns", "[0, x]      \nhost columns", "line", "list of numbers"),
        ("------- | -", "------= | -", "line", "a line of dashes"),
        ("module: user", "modulo: user", "line", "a line of a plan as TorchRec prints it"),
        ("whole   | [0, 0]", "while   | [0, 0]", "line", "is not listed"),
        ("host columns | table_col", "host rows    | table_col", "line", "occurs twice"),
        ("rank:2/cuda:0\ncol", "rank:b/cuda:0\ncol", "modules.user.whole.shards[0].placement", ""),
        ("[753, 0]", "[752, 0]", "modules.user.rows.shards", "overlap"),
        ("shard sizes |   pl", "shard width |   pl", "line", "a line of a plan"),
    ],
)
def test_the_error_says_where_and_what(old, new, place, text, tmp_path):
    changed = SAMPLE.read_text().replace(old, new)
    assert changed != SAMPLE.read_text()
    with pytest.raises(PlanFileError) as caught:
        read(changed, tmp_path)
    assert text in caught.value.problem
    if place == "line":
        pairs = zip(changed.split("\n"), SAMPLE.read_text().split("\n"), strict=True)
        place = f"line {next(i for i, (one, other) in enumerate(pairs, 1) if one != other)}"
    assert caught.value.place == place


def test_what_is_not_text_is_refused(tmp_path):
    with pytest.raises(PlanFileError, match="is not text"):
        read(b"module: \xff", tmp_path)


def test_a_damaged_text_is_refused_or_is_a_plan(tmp_path):
    draw = random.Random(5)
    data = SAMPLE.read_bytes()
    refused = 0
    for _ in range(600):
        try:
            read(damaged(draw, data), tmp_path)
        except PlanFileError:
            refused += 1
    assert refused > 300
