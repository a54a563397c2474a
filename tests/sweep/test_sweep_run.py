"""Running sweeps: on processes and executors, resumed, broken, interrupted."""

from __future__ import annotations

import os
import signal
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from multiprocessing import active_children
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from fastplan.sweep import pool as sweep_pool
from fastplan.sweep import run as sweep_run
from fastplan.sweep.rows import ResultsFile, Row, SweepResult
from fastplan.sweep.run import run_sweep
from fastplan.sweep.sweep import Sweep, SweepError, cells
from tests.sweep import workers
from tests.sweep.samples import Inline, hardware, model, sweep, tight

UNFIT = {"models": (model(rows=400_000_000),), "skus": (tight(),)}


def answers(result: SweepResult) -> list[tuple[Any, ...]]:
    return [(row.id, row.fits, row.rating) for row in result.rows]


def test_rows_are_in_the_order_of_the_cells_wherever_they_are_made() -> None:
    asked = sweep(
        models=(model("a"), model("b", rows=10)),
        skus=(hardware("x"), hardware("y", price=2.0)),
        batch_sizes=(8, 16, 32),
        precisions=("fp32", "fp16"),
    )
    inline = run_sweep(asked, executor=Inline())
    assert [row.id for row in inline.rows] == [cell.id for cell in cells(asked)]
    assert len(inline.fitting) == len(inline.rows) == 48
    assert (inline.known, inline.prices, inline.global_batch) == (0, {"y": 2.0}, False)
    with ThreadPoolExecutor(2) as threads:
        assert answers(run_sweep(asked, executor=threads)) == answers(inline)
        assert threads.submit(int).result() == 0  # not shut down
    assert answers(run_sweep(asked, executor=2)) == answers(inline)
    assert not active_children()


def test_shards_together_are_the_whole_sweep(tmp_path: Path) -> None:
    asked = sweep(batch_sizes=(8, 16, 32))
    for i in range(4):
        part = run_sweep(asked, results=tmp_path / str(i), executor=Inline(), shard=(i, 4))
        assert [row.id for row in part.rows] == [cell.id for cell in cells(asked, (i, 4))]
    merged = tmp_path / "merged"
    merged.write_bytes(b"".join((tmp_path / str(i)).read_bytes() for i in range(4)))
    nobody = Inline()
    whole = run_sweep(asked, results=merged, executor=nobody)
    assert (nobody.tasks, whole.known) == (0, 6)
    assert answers(whole) == answers(run_sweep(asked, executor=Inline()))


def test_progress_sees_every_row_once() -> None:
    seen: list[Row] = []
    result = run_sweep(sweep(), executor=Inline(), progress=seen.append)
    assert seen == list(result.rows)


def test_a_second_run_takes_the_rows_of_the_first(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    for asked in (sweep(), sweep(**UNFIT)):
        first = run_sweep(asked, results=file, executor=Inline())
        size = file.stat().st_size
        seen: list[Row] = []
        again = Inline()
        second = run_sweep(asked, results=file, executor=again, progress=seen.append)
        assert (again.tasks, second.known, second.rows) == (0, 2, first.rows)
        assert len(seen) == 2
        assert file.stat().st_size == size


def test_with_a_cache_plans_are_looked_up_and_the_rest_is_known(tmp_path: Path) -> None:
    asked = sweep(models=(model(), model("huge", rows=400_000_000)), skus=(tight(),))
    where, file = tmp_path / "plans", tmp_path / "r.jsonl"
    run_sweep(asked, results=file, executor=Inline())
    stored = run_sweep(asked, where, results=file, executor=Inline())
    assert [row.cache for row in stored.rows] == ["miss", "miss", "off", "off"]
    size = file.stat().st_size
    again = Inline()
    hit = run_sweep(asked, where, results=file, executor=again)
    assert [row.cache for row in hit.rows] == ["hit", "hit", "off", "off"]
    assert (again.tasks, hit.known) == (2, 2)
    assert answers(hit) == answers(stored)
    assert file.stat().st_size == size  # nothing new to keep


def test_a_changed_model_is_planned_again(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    run_sweep(sweep(), results=file, executor=Inline())
    changed = run_sweep(sweep(models=(model(rows=99),)), results=file, executor=Inline())
    assert changed.known == 0
    assert len(ResultsFile(file).read()) == 4


def test_failed_cells_are_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, asked = tmp_path / "r.jsonl", sweep(batch_sizes=(13, 14))
    monkeypatch.setattr(sweep_pool, "work", workers.raising)
    failed = run_sweep(asked, results=file, executor=Inline())
    assert [row.fits for row in failed.rows] == [None, None, True, True]
    assert {row.error for row in failed.failed} == {"ConnectionError: the worker is gone"}
    monkeypatch.undo()
    healed = run_sweep(asked, results=file, executor=Inline())
    assert (healed.known, len(healed.fitting)) == (2, 4)
    assert all(row.fits for row in ResultsFile(file).read().values())


def test_of_a_task_that_is_lost_only_the_bad_cell_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweep_pool, "work", workers.raising)
    monkeypatch.setattr(sweep_pool.GivenExecutor, "count", 1)
    monkeypatch.setattr(sweep_run, "_TASKS_PER_WORKER", 1)
    asked = sweep(batch_sizes=(11, 12, 13, 14, 15), world_sizes=(4,))
    counting = Inline()
    result = run_sweep(asked, executor=counting)
    assert [row.fits for row in result.rows] == [True, True, None, True, True]
    assert counting.tasks == 1 + 5


def test_a_killed_worker_costs_its_cell_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_pool, "work", workers.deadly)
    asked = sweep(batch_sizes=(11, 12, 13, 14, 15, 16), world_sizes=(2,))
    result = run_sweep(asked, tmp_path / "plans", results=tmp_path / "r.jsonl", executor=2)
    assert [row.batch for row in result.failed] == [13]
    assert len(result.fitting) == 5
    assert all("worker process died" in (row.error or "") for row in result.failed)
    assert len(ResultsFile(tmp_path / "r.jsonl").read()) == 6
    assert not active_children()


class Broken(Inline):
    """Breaks for good at its second task."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.tasks:
            future: Future[Any] = Future()
            future.set_exception(BrokenExecutor("no workers left"))
            return future
        return super().submit(fn, *args, **kwargs)


def test_an_executor_that_breaks_stops_the_sweep_and_rows_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    with pytest.raises(SweepError, match="failed; finished cells are kept: no workers"):
        run_sweep(sweep(), results=file, executor=Broken())
    assert len(ResultsFile(file).read()) == 1
    closed = ThreadPoolExecutor(1)
    closed.shutdown()
    with pytest.raises(SweepError, match=r"the executor failed.*after shutdown"):
        run_sweep(sweep(), executor=closed)


class Interrupt:
    """Interrupts at the n-th row."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, row: Row) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


class OneThread(ThreadPoolExecutor):
    """Runs one task after another; the n-th ends when the one after it has been cancelled."""

    def __init__(self, held: int) -> None:
        super().__init__(1)
        self.held = held
        self.tasks = 0
        self.cancelled = Event()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.tasks += 1
        future = super().submit(self._run, self.tasks, fn, *args, **kwargs)
        if self.tasks > self.held:
            future.add_done_callback(lambda _: self.cancelled.set())
        return future

    def _run(self, number: int, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        rows = fn(*args, **kwargs)
        if number == self.held:
            assert self.cancelled.wait(60)
        return rows


def test_an_interrupt_keeps_what_is_done_and_the_next_run_goes_on(tmp_path: Path) -> None:
    file, asked = tmp_path / "r.jsonl", sweep(batch_sizes=(1, 2, 3, 4, 5))
    with pytest.raises(KeyboardInterrupt), OneThread(held=4) as thread:
        run_sweep(asked, results=file, executor=thread, progress=Interrupt(3))
    kept = len(ResultsFile(file).read())
    assert kept in (3, 4)  # the fourth was running, or not yet started
    result = run_sweep(asked, results=file, executor=Inline())
    assert (result.known, len(result.fitting)) == (kept, 10)


def test_an_interrupt_ends_the_processes(tmp_path: Path) -> None:
    asked = sweep(batch_sizes=(1, 2, 3, 4, 5))
    with pytest.raises(KeyboardInterrupt):
        run_sweep(asked, results=tmp_path / "r", executor=1, progress=Interrupt(2))
    assert len(ResultsFile(tmp_path / "r").read()) >= 2
    assert not active_children()


def test_a_results_file_that_cannot_be_written_stops_before_any_work(tmp_path: Path) -> None:
    counting = Inline()
    with pytest.raises(OSError):
        run_sweep(sweep(), results=tmp_path / "no" / "r.jsonl", executor=counting)
    assert counting.tasks == 0


def test_relative_caches_are_those_of_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_sweep(sweep(), "plans", executor=Inline())
    assert (tmp_path / "plans").is_dir()
    assert sweep_run._where("s3://bucket/plans") == "s3://bucket/plans"
    assert sweep_run._where("~/x") == os.path.expanduser("~/x")
    with pytest.raises(SweepError, match="`cache`: a cache must be"):
        run_sweep(sweep(), "", executor=Inline())


def test_a_directory_of_another_host_is_refused_before_anything_is_planned() -> None:
    assert sweep_run._where("file:///shared/my%20plans") == "/shared/my plans"
    with pytest.raises(SweepError, match=r"`cache`: .* is on other"):
        run_sweep(sweep(), "file://other/plans", executor=Inline())


@pytest.mark.parametrize("count", [-1, -8])
def test_less_than_one_process_is_refused(count: int) -> None:
    with pytest.raises(SweepError, match="at least 1 process"):
        run_sweep(sweep(), executor=count)


def test_tasks_are_small_and_of_one_model() -> None:
    asked: Sweep = sweep(models=(model("a"), model("b")), batch_sizes=tuple(range(1, 51)))
    left = cells(asked)
    tasks = list(sweep_run._tasks(asked, left, 2, (None,)))
    assert [cell for task in tasks for cell in task.cells] == left
    assert max(len(task.cells) for task in tasks) <= 8
    assert all(len({cell.model for cell in task.cells}) == 1 for task in tasks)
    assert all(len(task.cells) == 1 for task in sweep_run._tasks(asked, left[:5], 2, (None,)))


class Interrupting(Inline):
    """An interrupt comes once, while a task is handed over or its rows are fetched."""

    def __init__(self, moment: str) -> None:
        super().__init__()
        self._moment = moment

    def _interrupt(self, moment: str) -> None:
        if moment == self._moment:
            self._moment = ""
            signal.raise_signal(signal.SIGINT)

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(fn, *args, **kwargs)
        result = future.result

        def fetch(timeout: float | None = None) -> Any:
            self._interrupt("fetched")
            return result(timeout)

        future.result = fetch  # type: ignore[method-assign]
        self._interrupt("handed over")
        return future


@pytest.mark.parametrize("moment", ["handed over", "fetched"])
def test_an_interrupt_loses_no_row_that_is_done(tmp_path: Path, moment: str) -> None:
    executor, file = Interrupting(moment), tmp_path / "r.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run_sweep(sweep(world_sizes=(1, 2, 4, 8)), results=file, executor=executor)
    assert len(ResultsFile(file).read()) == executor.tasks > 0
