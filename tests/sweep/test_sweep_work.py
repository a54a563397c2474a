"""What a worker makes of a task."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import pytest

from fastplan.cache.plan_cache import Cache
from fastplan.model.job import CannotPlan
from fastplan.model.units import format_size
from fastplan.planning.plan import plan
from fastplan.spec.lower import lower
from fastplan.spec.model import replace
from fastplan.sweep import work as sweep_work
from fastplan.sweep.rows import Row
from fastplan.sweep.sweep import Sweep, cells, pinned, variant
from fastplan.sweep.work import Task, pack_model, reason, work
from tests.interpreter import python
from tests.sweep.samples import hardware, model, sweep, tight


def rows_of(asked: Sweep, cache: Path | None = None) -> list[Row]:
    where = None if cache is None else str(cache)
    return work(Task(pack_model(asked.models[0]), tuple(cells(asked)), where))


def test_a_row_says_what_planning_the_variant_says() -> None:
    asked = sweep(precisions=("fp16",), batch_sizes=(256,))
    for cell, row in zip(cells(asked), rows_of(asked), strict=True):
        planned = plan(lower(variant(pinned(asked.models[0]), cell)))
        assert (row.fits, row.rating, row.key) == (
            True,
            planned.rating,
            planned.key.fingerprint,
        )
        assert (row.id, row.world_size, row.precision) == (cell.id, cell.world_size, "fp16")
        assert (row.cache, row.error, row.warning, row.shortage) == ("off", None, None, None)
        assert row.headroom is not None and 0 < row.headroom < 1
        assert row.seconds > 0


def test_names_in_warnings_are_escaped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked = sweep(models=(model("a\x1b[2J\u202e"),))
    (tmp_path / "file").touch()
    folder = str(tmp_path / "file" / "plans")
    task = Task(pack_model(asked.models[0]), tuple(cells(asked)), None, plans=folder)
    assert all(row.fits for row in work(task))
    (first, *_) = caplog.messages
    assert first.startswith(r"fastplan: the plan of a\x1b[2J\u202e on 2 x h100")
    assert "can't be written" in first


def test_what_does_not_fit_says_by_how_much() -> None:
    huge = model(rows=400_000_000)
    small, large = rows_of(sweep(models=(huge,), skus=(tight(),), world_sizes=(2, 64)))
    assert large.fits
    assert (small.fits, small.rating, small.error, small.tier) == (False, None, None, "hbm")
    assert small.headroom_bytes is not None and small.headroom is not None
    lack = -small.headroom_bytes
    assert small.shortage == f"about {format_size(lack)} more HBM on every rank would be enough"
    assert small.headroom == pytest.approx(-lack / (0.85 * (8 << 30)), rel=0.01)
    # 15 % of the memory is reserved.
    hbm = (8 << 30) + math.ceil(lack / 0.85)
    [enough] = rows_of(sweep(models=(huge,), skus=(tight(hbm=hbm),), world_sizes=(2,)))
    [less] = rows_of(sweep(models=(huge,), skus=(tight(hbm=int(hbm * 0.97)),), world_sizes=(2,)))
    assert (enough.fits, less.fits) == (True, False)


def test_where_more_memory_does_not_help_the_planners_words_are_kept() -> None:
    tables = [replace(table, compute_kernels=("fused_uvm",)) for table in model().tables]
    [row] = rows_of(sweep(models=(model(tables=tuple(tables)),), skus=(tight(),), world_sizes=(2,)))
    assert (row.fits, row.headroom_bytes, row.headroom) == (False, None, None)
    assert row.shortage is not None and "DDR" in row.shortage


def test_a_cell_that_fails_leaves_the_others_alone() -> None:
    asked = sweep(world_sizes=(2, 12, 4))  # hosts have 8 ranks
    first, bad, last = rows_of(asked)
    assert first.fits and last.fits
    assert (bad.fits, bad.rating) == (None, None)
    assert bad.error is not None and "12 ranks do not fill hosts of 8" in bad.error


def test_whatever_is_raised_is_told_in_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr("fastplan.planning.specs.plan_job", broken)
    assert [row.error for row in rows_of(sweep())] == ["ZeroDivisionError: two lines"] * 2


def test_errors_are_told_in_one_line() -> None:
    assert reason(CannotPlan("table t: no\n way")) == "table t: no way"
    assert reason(KeyError()) == "KeyError"
    assert reason(MemoryError("much")) == "MemoryError: much"


def test_plans_are_kept_in_the_cache_and_hit_there(tmp_path: Path) -> None:
    asked = sweep()
    assert [row.cache for row in rows_of(asked, tmp_path)] == ["miss", "miss"]
    again = rows_of(asked, tmp_path)
    assert [row.cache for row in again] == ["hit", "hit"]
    assert [row.rating for row in again] == [row.rating for row in rows_of(asked)]
    assert {row.key for row in again} == set(Cache(tmp_path).store.keys())


def test_a_cache_that_fails_is_told_and_the_cell_is_answered(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for row in rows_of(sweep(), tmp_path / "file"):
        assert (row.fits, row.cache) == (True, "failed")
        assert row.warning


def test_a_task_is_small_and_survives_pickling() -> None:
    many = model(tables=tuple(replace(model().tables[0], name=f"t{i}") for i in range(1000)))
    asked = sweep(models=(many,))
    task = Task(pack_model(many), tuple(cells(asked)), None)
    data = pickle.dumps(task)
    assert len(data) < 50_000
    assert pickle.loads(data) == task


def test_torchrecs_version_is_that_of_who_asks() -> None:
    packed = pack_model(model())
    assert sweep_work._model(packed, "fp32").torchrec is not None
    assert sweep_work._model(pack_model(model(torchrec="1.9.2")), "fp32").torchrec == "1.9.2"


def test_workers_load_no_torch() -> None:
    code = (
        "import sys\n"
        "from tests.sweep.test_sweep_work import rows_of\n"
        "from tests.sweep.samples import sweep\n"
        "import tempfile\n"
        "assert all(row.fits for row in rows_of(sweep(), tempfile.mkdtemp()))\n"
        "assert not {'torch', 'torchrec', 'numba'} & set(sys.modules)"
    )
    python(code)


def test_pods_and_hosts_are_those_of_the_sku() -> None:
    pods = hardware("pods", ranks_per_host=4, pod_size=18)
    [row] = rows_of(sweep(skus=(pods,), world_sizes=(72,)))
    assert (row.fits, row.hosts) == (True, 18)


def test_plans_are_signed_with_the_key_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTPLAN_CACHE_KEY", "a secret that we share")
    asked = sweep()
    (row, *_) = rows_of(asked, tmp_path)
    monkeypatch.delenv("FASTPLAN_CACHE_KEY")
    job = lower(variant(pinned(asked.models[0]), cells(asked)[0]))
    assert plan(job, cache=Cache(tmp_path, key="a secret that we share")).cache.status == "hit"
    assert (
        plan(job, cache=Cache(tmp_path, key="the secret of somebody else")).cache.status == "miss"
    )
    assert row.cache == "miss"
