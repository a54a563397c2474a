"""Sweeps on a Dask cluster, one of this host's processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fastplan.sweep import pool as sweep_pool
from fastplan.sweep.run import run_sweep
from tests.sweep import workers
from tests.sweep.samples import model, sweep

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=0, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def give_up_at_once(dask_scheduler: Any) -> None:
    dask_scheduler.allowed_failures = 0


def test_a_cluster_gives_the_same_rows(client: Any, tmp_path: Path) -> None:
    asked = sweep(models=(model("a"), model("b", rows=7)), batch_sizes=(8, 16, 24))
    here = run_sweep(asked, executor=2)
    there = run_sweep(asked, tmp_path, executor=client.get_executor())
    assert [(r.id, r.rating, r.key) for r in there.rows] == [
        (r.id, r.rating, r.key) for r in here.rows
    ]
    assert {row.cache for row in there.rows} == {"miss"}
    again = run_sweep(asked, tmp_path, executor=client.get_executor())
    assert {row.cache for row in again.rows} == {"hit"}


def test_a_worker_that_dies_costs_its_cell_and_no_other(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.run_on_scheduler(give_up_at_once)
    monkeypatch.setattr(sweep_pool, "work", workers.deadly)
    result = run_sweep(
        sweep(batch_sizes=(12, 13, 14), world_sizes=(2,)), executor=client.get_executor()
    )
    assert [row.fits for row in result.rows] == [True, None, True]
    assert "KilledWorker" in (result.rows[1].error or "")
