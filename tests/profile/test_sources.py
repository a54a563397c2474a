"""Parquet and npz files and functions: the same ids, and what is told of others."""

import numpy as np
import pytest

from fastplan.files.document import document_of
from fastplan.profile.sources import (
    ProfileError,
    features_of,
    file_units,
    function_batches,
    read_unit,
)
from fastplan.spec.read import spec_of

from .samples import FEATURES, Jagged, batches, columns, write_npz, write_parquet

pytest.importorskip("pyarrow")


def joined(found):
    """The ids and lengths of each table, over all batches."""
    tables = {}
    for batch in found:
        for name, (ids, lengths) in batch.items():
            tables.setdefault(name, []).append((ids, lengths))
    return {
        name: tuple(np.concatenate(part).tolist() for part in zip(*own, strict=True))
        for name, own in tables.items()
    }


def read_all(files, features=FEATURES):
    return joined(batch for unit in file_units(files) for batch in read_unit(unit, features))


def expected(seeds):
    return joined(
        {
            "user": found["user"],
            "item": (
                np.concatenate([found["clicks"][0], found["views"][0]]),
                found["clicks"][1] + found["views"][1],
            ),
        }
        for found in map(columns, seeds)
    )


def test_columns_of_npz_files_are_bags(tmp_path):
    files = [write_npz(tmp_path / f"{seed}.npz", seed) for seed in (1, 2)]
    assert read_all(files) == expected([1, 2])


def test_row_groups_of_parquet_files_are_units(tmp_path):
    file = write_parquet(tmp_path / "a.parquet", 1)
    assert [unit.group for unit in file_units([file])] == [0, 1, 2, 3]
    found, wanted = read_all([file]), expected([1])
    assert found["user"] == wanted["user"]
    assert found["item"][1] == wanted["item"][1]
    assert sorted(found["item"][0]) == sorted(wanted["item"][0])


def test_functions_yield_jagged_tensors():
    here = "tests.profile.samples"
    assert joined(function_batches(f"{here}:batches", FEATURES)) == expected(range(4))
    assert joined(function_batches(f"{here}:by_module", FEATURES, (1, 2))) == expected([1, 3])
    assert [batch.keys() for batch in batches(3, 4)] == [["user", "clicks", "views"]]


def test_nulls_are_bags_without_ids_and_numbers_are_bags_of_one(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    table = {"user": [5, None, 7], "clicks": [[1, 2], None, []]}
    parquet.write_table(pa.table(table), tmp_path / "a.parquet")
    found = read_all([str(tmp_path / "a.parquet")])
    assert found == {"user": ([5, 7], [1, 0, 1]), "item": ([1, 2], [2, 0, 0])}


def test_bags_of_one_size_are_rows_of_a_matrix(tmp_path):
    np.savez(tmp_path / "a.npz", user=np.arange(6).reshape(2, 3))
    assert read_all([str(tmp_path / "a.npz")]) == {"user": ([0, 1, 2, 3, 4, 5], [3, 3])}


def test_columns_are_found_by_the_features_of_the_spec():
    tables = [
        {"name": "a", "rows": 9, "dim": 4},
        {"name": "b", "rows": 9, "dim": 4, "features": ["x", "y"], "pooling": [1, 2]},
    ]
    spec = spec_of(document_of({"model": "m", "tables": tables}, "m.json"))
    assert features_of(spec) == {"a": ("a",), "b": ("x", "y")}


def refusal(read):
    with pytest.raises(ProfileError) as caught:
        read()
    return str(caught.value)


def test_files_that_can_not_be_used_are_named(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"PK nothing")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 nothing PAR1")
    np.savez(tmp_path / "c.npz", other=np.arange(3))
    np.savez(tmp_path / "d.npz", user=np.array([object()]))
    write_parquet(tmp_path / "e.parquet", 1)
    for name, features, told in [
        ("a.npz", FEATURES, "can't be read"),
        ("b.parquet", FEATURES, "can't be read"),
        ("c.npz", FEATURES, "no column of a table (user, clicks, views, ...), but 'other'"),
        ("d.npz", FEATURES, "can't be read: Object arrays cannot be loaded"),
        ("e.parquet", {"t": ("other",)}, "column 'other' has double, not ids"),
        ("f.csv", FEATURES, "neither a .parquet nor an .npz file"),
        ("g.npz", FEATURES, "can't be read: No such file"),
    ]:
        message = refusal(lambda name=name, own=features: read_all([str(tmp_path / name)], own))
        assert name in message and told in message


def test_half_a_file_is_told(tmp_path):
    file = tmp_path / "a.npz"
    write_npz(file, 1)
    file.write_bytes(file.read_bytes()[:-200])
    assert "can't be read" in refusal(lambda: read_all([str(file)]))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("tests.profile.samples:missing", "has no 'missing'"),
        ("tests.profile.samples:FEATURES", "is a dict, not a function"),
        ("tests.profile.samples:nothing_useful", "yields list, not KeyedJaggedTensors"),
        ("no name", "must be package.module:function"),
    ],
)
def test_functions_that_can_not_be_used_are_told(name, told):
    assert told in refusal(lambda: [*function_batches(name, FEATURES)])


def test_batches_of_different_sizes_by_feature_are_told(monkeypatch):
    tensor = Jagged({"user": (np.arange(2), np.array([2, 0, 0])), "clicks": ([], np.array([0]))})
    tensor.variable_stride_per_key = lambda: True
    monkeypatch.setattr("tests.profile.samples.batches", lambda *_: [tensor])
    told = refusal(lambda: [*function_batches("tests.profile.samples:batches", FEATURES)])
    assert "features with batches of different sizes" in told


def test_features_of_one_table_must_have_batches_of_one_size(monkeypatch):
    batch = {
        "a": Jagged({"clicks": (np.arange(2), np.array([2]))}),
        "b": Jagged({"views": (np.arange(2), np.array([1, 1]))}),
    }
    monkeypatch.setattr("tests.profile.samples.batches", lambda *_: [batch])
    told = refusal(lambda: [*function_batches("tests.profile.samples:batches", FEATURES)])
    assert "features of table 'item' have batches of different sizes" in told


@pytest.mark.parametrize(
    ("field", "byte"),
    [(6, 255), (8, 1), (10, 99)],
    ids=["an unknown version", "a password", "an unknown compression"],
)
def test_a_damaged_archive_is_told(tmp_path, field, byte):
    file = tmp_path / "a.npz"
    write_npz(file, 0)
    data = bytearray(file.read_bytes())
    data[data.index(b"PK\x01\x02") + field] = byte
    file.write_bytes(data)
    with pytest.raises(ProfileError, match="can't be read"):
        read_all([str(file)])
