"""The store on fsspec, on its memory file system and on a local S3 server."""

import sys
from datetime import datetime, timezone

import pytest

from fastplan.cache.stores import RemoteStore, StoreError
from tests.cache.samples import data, key

fsspec = pytest.importorskip("fsspec")


def test_what_another_process_wrote_to_s3_is_seen_at_once(s3_options):
    reader = RemoteStore("s3://bucket/shared", **s3_options)
    writer = RemoteStore("s3://bucket/shared/", skip_instance_cache=True, **s3_options)
    assert reader.read(key(1)) == []
    assert list(reader.keys()) == []
    writer.write(key(1), "a", data(1))
    assert reader.read(key(1)) == [("a", data(1))]
    writer.write(key(1), "b", data(2))
    assert reader.read(key(1)) == [("a", data(1)), ("b", data(2))]
    assert list(reader.keys()) == [key(1)]
    writer.delete(key(1), "a")
    assert reader.read(key(1)) == [("b", data(2))]


def test_a_bucket_that_is_not_there_is_not_made(s3_options):
    store = RemoteStore("s3://no-such-bucket/plans", **s3_options)
    assert store.read(key(1)) == []
    with pytest.raises(StoreError, match="s3://no-such-bucket/plans does not exist: create it"):
        store.write(key(1), "a", data(1))


def test_a_server_that_is_down_is_a_failure_and_no_miss():
    pytest.importorskip("s3fs")
    store = RemoteStore(
        "s3://bucket/plans",
        key="user",
        secret="secret",
        client_kwargs={"endpoint_url": "http://127.0.0.1:9", "region_name": "us-east-1"},
        config_kwargs={"retries": {"max_attempts": 0}},
    )
    with pytest.raises(StoreError, match="s3://bucket/plans: reading failed"):
        store.read(key(1))


def test_folders_are_made_where_a_file_system_needs_them(tmp_path):
    store = RemoteStore(f"file://{tmp_path}")
    store.write(key(1), "a", data(1))
    store.write(key(1), "a", data(2))
    assert store.read(key(1)) == [("a", data(2))]
    assert (tmp_path / key(1)[:2] / key(1) / "a.plan").read_bytes() == data(2)


def test_foreign_files_are_ignored(tmp_path):
    store = RemoteStore(f"file://{tmp_path}")
    store.write(key(1), "a", data(1))
    folder = tmp_path / key(1)[:2] / key(1)
    (folder / "README.md").write_text("hello")
    (folder / "b.plan").mkdir()
    (folder / "B.plan").write_text("hello")
    (tmp_path / "c.plan").write_text("hello")
    (tmp_path / key(2)).mkdir()
    (tmp_path / key(2) / "c.plan").write_text("hello")
    assert store.read(key(1)) == [("a", data(1))]
    assert list(store.keys()) == [key(1)]


def test_an_entry_deleted_between_listing_and_reading_is_left_out(monkeypatch):
    store = RemoteStore("memory://vanishing")
    store.write(key(1), "a", data(1))
    store.write(key(1), "b", data(2))
    fs = fsspec.filesystem("memory")
    whole = fs.cat_file

    def cat_file(path, **options):
        if path.endswith("a.plan"):
            raise FileNotFoundError(path)
        return whole(path, **options)

    monkeypatch.setattr(fs, "cat_file", cat_file)
    assert store.read(key(1)) == [("b", data(2))]


def test_without_fsspec_the_error_names_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(StoreError, match=r"s3://bucket/plans needs fsspec: pip install fsspec"):
        RemoteStore("s3://bucket/plans").read(key(1))


def test_without_a_driver_the_error_names_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(StoreError, match=r"gs://bucket/plans needs a driver: pip install gcsfs"):
        RemoteStore("gs://bucket/plans").read(key(1))


def test_an_unknown_protocol_is_a_store_error():
    with pytest.raises(StoreError, match="nowhere"):
        RemoteStore("nowhere://plans").read(key(1))


@pytest.mark.parametrize("url", ["sftp://me:secret@host/plans", "abfs://plans?sig=secret"])
def test_a_message_does_not_give_the_secrets_away(url):
    assert "secret" not in RemoteStore(url).describe()


@pytest.mark.parametrize(
    ("time", "used"),
    [
        ({"LastModified": datetime(2024, 1, 1, tzinfo=timezone.utc)}, 1704067200.0),
        ({"created": datetime(2024, 1, 1)}, 1704067200.0),
        ({"updated": "2024-01-01T00:00:00.000Z"}, 1704067200.0),
        ({"updated": "yesterday"}, None),
        ({"mtime": 1704067200}, 1704067200.0),
        ({"mtime": None}, None),
        ({"mtime": float("nan")}, None),
        ({"mtime": float("inf")}, None),
        ({"mtime": 10**400}, None),
        ({}, None),
    ],
)
def test_the_time_of_an_entry_is_read_in_every_drivers_way(monkeypatch, time, used):
    store = RemoteStore("memory://times")
    path = f"/times/{key(1)[:2]}/{key(1)}/a.plan"
    monkeypatch.setattr(
        fsspec.filesystem("memory"), "find", lambda *_, **__: {path: {"size": 7, **time}}
    )
    assert list(store.entries()) == [(key(1), "a", 7, used)]
