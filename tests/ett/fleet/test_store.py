"""The database of a fleet in a folder where other users can put links."""

import os

import pytest

from fastplan.ett.fleet.jobs import FleetError
from fastplan.ett.fleet.store import FleetStore

duckdb = pytest.importorskip("duckdb")


@pytest.mark.parametrize(
    "make", [lambda path, other: os.link(other, path), lambda path, _: os.mkfifo(path)]
)
def test_a_lock_that_is_not_a_file_of_its_own_is_refused(tmp_path, make):
    precious = tmp_path / "precious"
    precious.write_text("do not empty")
    make(tmp_path / "shared.duckdb.lock", precious)
    with pytest.raises(
        FleetError, match=r"\.lock can't be locked: it is no file, or .*; delete it"
    ):
        FleetStore(str(tmp_path / "shared.duckdb")).known()
    assert precious.read_text() == "do not empty"


@pytest.mark.parametrize("suffix", ["", ".wal"])
def test_a_database_is_not_created_where_a_link_leads(tmp_path, suffix):
    path = tmp_path / "shared.duckdb"
    (tmp_path / f"shared.duckdb{suffix}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FleetError, match=f"{suffix} is not a file; name another one with --db"):
        FleetStore(str(path)).known()
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("make", [os.link, os.symlink])
def test_a_database_of_something_else_is_left_as_it_is(tmp_path, make):
    other = tmp_path / "sales.duckdb"
    with duckdb.connect(str(other)) as database:
        database.execute("CREATE TABLE sales (price INTEGER)")
    content = other.read_bytes()
    make(other, tmp_path / "shared.duckdb")
    with pytest.raises(FleetError, match="is a database of something else; name another one with"):
        FleetStore(str(tmp_path / "shared.duckdb")).known()
    assert other.read_bytes() == content
