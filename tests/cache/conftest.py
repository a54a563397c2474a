"""Stores to test with."""

import itertools

import pytest

from fastplan.cache.stores import DirectoryStore, GuardedStore, MemoryStore, RemoteStore
from fastplan.cache.stores import folder as folder_module

_numbers = itertools.count()


@pytest.fixture(scope="session")
def s3_options():
    """Options for a store on a local S3 server with a bucket named "bucket"."""
    moto = pytest.importorskip("moto.server")
    s3fs = pytest.importorskip("s3fs")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {
        "key": "user",
        "secret": "secret",
        "client_kwargs": {"endpoint_url": f"http://{host}:{port}", "region_name": "eu-west-1"},
    }
    s3fs.S3FileSystem(**options).mkdir("bucket")
    yield options
    server.stop()


@pytest.fixture(params=["directory", "directory by path", "memory", "fsspec", "s3", "guarded"])
def store(request, tmp_path, monkeypatch):
    """A store of each kind, empty."""
    if request.param == "directory by path":
        monkeypatch.setattr(folder_module, "_DESCRIPTORS", False)
    if request.param.startswith("directory"):
        return DirectoryStore(tmp_path / "plans")
    if request.param == "memory":
        return MemoryStore()
    if request.param == "fsspec":
        return RemoteStore(f"memory://plans{next(_numbers)}")
    if request.param == "s3":
        options = request.getfixturevalue("s3_options")
        return RemoteStore(f"s3://bucket/plans{next(_numbers)}", **options)
    return GuardedStore(MemoryStore(), timeout=60.0)
