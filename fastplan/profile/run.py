"""Profiles the ids of a model: reads data, stores what it has, goes on, and merges workers."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from glob import escape
from itertools import islice
from multiprocessing import active_children, get_context
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastplan.model.ids import IdStatistics
from fastplan.model.units import shown
from fastplan.profile.curves import statistics_of
from fastplan.profile.sources import (
    Bags,
    Batch,
    Features,
    ProfileError,
    Unit,
    file_units,
    function_batches,
    read_unit,
)
from fastplan.profile.state import Profile, digest_of, read_profile, write_profile
from fastplan.profile.summary import Summary, merge
from fastplan.profile.table import TableProfile, default_limit, whole_bags

Report = Callable[[int, int | None], None]  # units that are done, and of how many
Summaries = dict[str, Summary]  # by table
Digest = Callable[[int], str]  # what the first so many units are

_SAVE_SECONDS = 30.0
_STOP_SECONDS = 30.0  # for workers to finish their batches and store them
_MOST_NAMED = 4  # state files in a message
_stop: Any = None  # in a worker: a shared number that is not 0 when it is to stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to profile.

    Attributes:
        limit: How many ids each table follows at most; None: by the number of tables.
        state: A file to store the profile in, and to go on from if it exists.
        save_seconds: How often to store it. It is also stored after the last unit, and on an
            interrupt.
    """

    limit: int | None = None
    state: str | None = None
    save_seconds: float = _SAVE_SECONDS

    def __post_init__(self) -> None:
        limit = self.limit
        if limit is not None and not (64 <= limit <= 1 << 24 and limit & (limit - 1) == 0):
            raise ProfileError(f"`limit` must be a power of two from 64 to 2^24, not {limit}")


def profile_files(
    features: Features,
    files: Sequence[str],
    settings: Settings | None = None,
    *,
    executor: int | Executor = 1,
    parts: int | None = None,
    progress: Report | None = None,
) -> Summaries:
    """Profiles the columns of files.

    Args:
        features: The columns of each table.
        files: Parquet and npz files, in the order of the stream.
        settings: How to profile.
        executor: Processes on this machine, or an executor such as Dask's `client.get_executor()`,
            whose workers must see the files. Workers profile consecutive parts of the data, each
            with a state file of its own.
        parts: The number of parts for an executor; default: one for each file, 64 at most.
        progress: Called with the number of finished units.

    Returns:
        The sums of each table that has ids.

    Raises:
        ProfileError: A file can't be read, or the stored profile is one of other data.
    """
    settings = settings or Settings()
    if isinstance(executor, int) and executor < 1:
        raise ProfileError(f"`executor` must be at least 1 process, not {executor}")
    units = file_units(files)
    if executor == 1:
        return summaries_of(_profile_units(dict(features), units, settings, progress))
    count = executor if isinstance(executor, int) else parts or min(64, len(files))
    chunks = [units[len(units) * i // count : len(units) * (i + 1) // count] for i in range(count)]
    tasks = [
        (dict(features), chunk, _of_part(settings, i, count))
        for i, chunk in enumerate(chunks)
        if chunk
    ]
    if isinstance(executor, int):
        return _in_processes(executor, tasks, progress)
    futures = [executor.submit(_work, *task) for task in tasks]
    try:
        return _collect(futures, tasks, progress)
    except BaseException:
        for future in futures:
            future.cancel()
        raise


def profile_function(
    features: Features,
    name: str,
    settings: Settings | None = None,
    *,
    part: tuple[int, int] = (0, 1),
    batches: int | None = None,
    progress: Report | None = None,
) -> Summaries:
    """Profiles the batches of a function that yields KeyedJaggedTensors.

    A stored profile goes on after the batches that it has: these are asked for again and skipped,
    so the function must yield the same ones.

    Args:
        features: The features of each table.
        name: package.module:function, called with `part`.
        settings: How to profile.
        part: The number of this worker, and the number of workers.
        batches: The most batches; None: all.
        progress: Called with the number of finished batches.

    Returns:
        The sums of each table that has ids.

    Raises:
        ProfileError: The function can't be used, or the stored profile is one of other data.
    """
    settings = settings or Settings()
    digest = f"{name} {part[0]}/{part[1]}"
    profile = _start(features, settings, lambda _: digest)
    found = islice(function_batches(name, features, part), profile.done, batches)
    _run(profile, ([batch] for batch in found), lambda _: digest, settings, batches, progress)
    return summaries_of(profile)


def stored_summaries(files: Iterable[str]) -> Summaries:
    """Returns the sums of stored profiles, such as those of several workers.

    Args:
        files: The state files; see `Settings`.

    Raises:
        ProfileError: A file is not a usable profile.
    """
    return merge_summaries([summaries_of(read_profile(file)) for file in files])


def summaries_of(profile: Profile) -> Summaries:
    """Returns the sums of each table that has ids."""
    with np.errstate(all="ignore"):  # a profile that somebody made up: see statistics_by_table()
        return {name: table.summary() for name, table in profile.tables.items() if table.ids}


def merge_summaries(parts: Iterable[Summaries]) -> Summaries:
    """Returns the sums of several workers, whose data are independent parts.

    Args:
        parts: The sums of each worker, by table.
    """
    found: dict[str, list[Summary]] = {}
    for part in parts:
        for name, summary in part.items():
            found.setdefault(name, []).append(summary)
    return {name: merge(own) for name, own in found.items()}


def statistics_by_table(summaries: Mapping[str, Summary]) -> dict[str, IdStatistics]:
    """Returns the statistics of each table.

    Args:
        summaries: The sums of each table.

    Raises:
        ProfileError: A stored profile has numbers that no data have.
    """
    found = {}
    for name, summary in summaries.items():
        try:
            with np.errstate(all="ignore"):
                found[name] = statistics_of(summary)
        except (ValueError, OverflowError) as error:
            raise ProfileError(
                f"the profile of table {shown(name)} has numbers that no data have ({error}); "
                "profile the data again"
            ) from error
    return found


def _of_part(settings: Settings, number: int, count: int) -> Settings:
    state = None if settings.state is None else _part_state(settings.state, number, count)
    return Settings(limit=settings.limit, state=state, save_seconds=settings.save_seconds)


def _part_state(state: str, number: int | str, count: int | str) -> str:
    return f"{state}.{number}-of-{count}"


Task = tuple[dict[str, tuple[str, ...]], list[Unit], Settings]


def _in_processes(count: int, tasks: list[Task], progress: Report | None) -> Summaries:
    """Profiles parts in new processes. These end with this function, whatever happens."""
    context = get_context("spawn")
    others = set(active_children())
    stop = context.RawValue("b", 0)  # has no lock, which a killed worker would keep
    pool = ProcessPoolExecutor(
        count, mp_context=context, initializer=_prepare_worker, initargs=(stop,)
    )
    futures: list[Future[Summaries]] = []
    try:
        with _workers_start():
            for task in tasks:  # one by one: another thread may take the signal
                futures.append(pool.submit(_work, *task))
        return _collect(futures, tasks, progress)
    except BaseException:
        stop.value = 1
        left: set[Future[Summaries]] = set(futures)
        with suppress(KeyboardInterrupt):  # a second one waits for nobody
            left = wait(futures, _STOP_SECONDS).not_done
        if left:
            for process in set(active_children()) - others:
                process.kill()
        raise
    finally:
        pool.shutdown()


@contextmanager
def _workers_start() -> Iterator[None]:
    """Delays Ctrl-C for this thread and for the processes that it starts.

    A terminal interrupts workers, too. They would die while they import, with a traceback each.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _prepare_worker(stop: Any) -> None:
    """Leaves interrupts to the parent process, and ends when that ends."""
    from fastplan.sweep.work import prepare_worker

    global _stop
    prepare_worker()
    _stop = stop


def _heed_stop() -> None:
    if _stop is not None and _stop.value:
        raise KeyboardInterrupt


def _collect(
    futures: list[Future[Summaries]], tasks: list[Task], progress: Report | None
) -> Summaries:
    found, done = [], 0
    total = sum(len(units) for _, units, _ in tasks)
    for future, (_, units, _) in zip(futures, tasks, strict=True):
        found.append(future.result())
        done += len(units)
        if progress is not None:
            progress(done, total)
    return merge_summaries(found)


def _work(features: dict[str, tuple[str, ...]], units: list[Unit], settings: Settings) -> Summaries:
    return summaries_of(_profile_units(features, units, settings, None))


def _profile_units(
    features: dict[str, tuple[str, ...]],
    units: Sequence[Unit],
    settings: Settings,
    progress: Report | None,
) -> Profile:
    def digest(begun: int) -> str:
        return digest_of(units[:begun])

    profile = _start(features, settings, digest)
    steps = (read_unit(unit, features) for unit in units[profile.done :])
    _run(profile, steps, digest, settings, len(units), progress)
    return profile


def _start(features: Features, settings: Settings, digest: Digest) -> Profile:
    """Returns an empty profile, or the one that is stored."""
    limit = settings.limit or default_limit(len(features))
    found = None
    if settings.state is not None and os.path.exists(settings.state):
        found = read_profile(settings.state)
    if found is None or not found.begun:
        return Profile({name: TableProfile(limit) for name in features}, limit)
    way_out = "remove it, or choose another file with --state"
    if found.digest != digest(found.begun):
        raise ProfileError(f"{settings.state}: is the profile of other data; {way_out}")
    if [*found.tables] != [*features]:
        missing = next(iter({*found.tables} ^ {*features}), "")
        problem = f"has other tables than the model, such as {shown(missing)}"
        raise ProfileError(f"{settings.state}: {problem}; {way_out}")
    if found.limit != limit:
        problem = f"follows {found.limit} ids per table, not {limit}"
        raise ProfileError(f"{settings.state}: {problem}; {way_out}")
    return found


def _run(
    profile: Profile,
    steps: Iterable[Iterable[Batch]],
    digest: Digest,
    settings: Settings,
    total: int | None,
    progress: Report | None,
) -> None:
    """Adds units to a profile, and stores it from time to time and when it is interrupted."""
    saved = time.monotonic()
    try:
        _heed_stop()
        for batches in steps:
            for batch in islice(batches, profile.batches, None):
                # All tables, before any has ids that would count twice after a restart.
                whole = {name: _whole(name, *bags) for name, bags in batch.items()}
                with _uninterrupted():
                    for name, (ids, lengths) in whole.items():
                        profile.tables[name].add(ids, lengths)
                    profile.batches += 1
                _heed_stop()
            profile.done, profile.batches = profile.done + 1, 0
            if progress is not None:
                progress(profile.done, total)
            if time.monotonic() - saved >= settings.save_seconds:
                _save(profile, digest, settings)
                saved = time.monotonic()
    finally:
        # An error of a later file leaves what came before it.
        _save(profile, digest, settings)


def _save(profile: Profile, digest: Digest, settings: Settings) -> None:
    # A profile of nothing would only forbid to use other data.
    if settings.state is not None and profile.begun:
        profile.digest = digest(profile.begun)
        write_profile(profile, settings.state)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delays Ctrl-C until the end, because half a batch would count twice after a restart."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[tuple[int, FrameType | None]] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: caught.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler if handler is not None else signal.SIG_DFL)
    if caught and callable(handler):
        handler(*caught[0])


def _whole(name: str, ids: NDArray[Any], lengths: NDArray[Any]) -> Bags:
    try:
        return whole_bags(ids, lengths)
    except ValueError as error:
        raise ProfileError(f"table {shown(name)}: {error}") from error


def way_on(state: str | None, processes: int = 1) -> str:
    """Returns where the profile is that an interrupt leaves, and how to go on.

    Args:
        state: The file of `Settings`.
        processes: How many processes profile files; each has a file of its own.
    """
    if state is None:
        return "Nothing was stored"
    names = [state]
    if processes > 1:
        names = [_part_state(state, number, processes) for number in range(processes)]
    files = [name for name in names if os.path.exists(name)]
    if not files:
        return f"Nothing is in {state} yet: run the same command again to begin"
    named = ", ".join(files[:_MOST_NAMED])
    if len(files) > _MOST_NAMED:
        named += f" and {len(files) - _MOST_NAMED} more"
    return f"What was read is in {named}: run the same command again to resume"


def remove_states(state: str) -> None:
    """Removes a stored profile and those of its workers."""
    path = Path(state)
    for each in (path, *path.parent.glob(_part_state(escape(path.name), "*", "*"))):
        each.unlink(missing_ok=True)
