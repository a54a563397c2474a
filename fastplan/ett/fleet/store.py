"""The database of a fleet: what was read, in a file of DuckDB that several commands may write.

DuckDB lets one process open a file for writing. So a command reads recordings without the database,
and puts what it has read into small files next to it, each complete or absent. Whoever holds the
lock moves them into the database. A command that is killed loses only what it has not put there.
"""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import msgspec

from fastplan.ett.fleet.jobs import FleetError, FleetJob, usable_time
from fastplan.ett.fleet.places import Known
from fastplan.files.storage import replace_file

SCHEMA = 1
_MEMORY = ":memory:"
_STAGED = ".jsonl"
_POLL = 0.05  # seconds
_PATIENCE = 600.0
_COLUMNS = """{place: 'VARCHAR', kind: 'VARCHAR', modified: 'BIGINT', size: 'BIGINT',
 files: 'BIGINT', settled: 'BOOLEAN', read_at: 'DOUBLE', jobs: 'JSON[]'}"""
_DECODER = msgspec.json.Decoder(FleetJob)

Waiting = Callable[[str], None]


class FleetStore:
    """A database of read places.

    Args:
        path: Its file, or `:memory:`. Next to it are a lock and a directory of staged files.
        waiting: Called with a message when another command holds the lock.

    Raises:
        FleetError: DuckDB is not installed, or the file can't be used.
    """

    def __init__(self, path: str, waiting: Waiting | None = None) -> None:
        self._duckdb = load_duckdb()
        self._path = path
        self._waiting = waiting
        self._memory: Any = None
        if path == _MEMORY:
            self._memory = self._connect()
            return
        self._staging = Path(f"{path}.staged")
        try:
            self._staging.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FleetError(
                f"{path} can't be used: {error.strerror}; name another file with --db"
            ) from error
        if self._staging.is_symlink():  # its files would be read and deleted where it leads
            raise FleetError(
                f"{self._staging} is a link: remove it, or name another file with --db"
            )

    def known(self) -> dict[str, Known]:
        """Returns what is known about every place, with staged places moved in first."""
        with self._database() as database:
            self._merge(database)
            rows = database.execute(
                "SELECT place, kind, modified, size, files, settled FROM places"
            ).fetchall()
        return {place: Known(*rest) for place, *rest in rows}

    def stage(self, lines: bytes) -> None:
        """Keeps read places, as JSON lines, until they are merged. It survives a kill."""
        if not lines:
            return
        if self._memory is not None:
            # The connection reads files only.
            from tempfile import TemporaryDirectory

            with TemporaryDirectory(prefix="fastplan-fleet-") as folder:
                path = Path(folder) / f"lines{_STAGED}"
                path.write_bytes(lines)
                _insert(self._memory, [str(path)])
            return
        name = f"{time.time_ns():020}-{secrets.token_hex(4)}{_STAGED}"
        replace_file(str(self._staging / name), [lines])

    def jobs(self, roots: Iterable[str]) -> list[FleetJob]:
        """Returns the jobs below some roots, in the order of their begin.

        Args:
            roots: Directories, files or URLs, as `places.clean_root` returns them.
        """
        tests, values = [], []
        for root in roots:
            tests.append("(place = ? OR starts_with(place, ?))")
            values += [root, root.rstrip("/") + "/"]
        where = " OR ".join(tests) or "false"
        with self._database() as database:
            self._merge(database)
            rows = database.execute(
                f"SELECT row FROM jobs WHERE {where} ORDER BY begun, source", values
            ).fetchall()
        try:
            return [_job(text) for (text,) in rows]
        except (msgspec.DecodeError, RecursionError) as error:  # another user may have written it
            raise FleetError(_unusable(self._path, error)) from error

    def forget(self, places: Iterable[str]) -> None:
        """Deletes places and their jobs."""
        gone = list(places)
        with self._database() as database:
            self._merge(database)
            for table in ("places", "jobs"):
                database.execute(
                    f"DELETE FROM {table} WHERE place IN (SELECT unnest(?::VARCHAR[]))", [gone]
                )

    def _merge(self, database: Any) -> None:
        """Moves staged files into the database, the oldest first."""
        if self._memory is not None:
            return
        # Others may write there too: a pipe would be waited for, and a link read where it leads.
        staged = sorted(
            str(each) for each in self._staging.glob(f"*{_STAGED}") if _is_regular(each)
        )
        if staged:
            _insert(database, staged)
            # After a kill here they are merged again, which changes nothing.
            for path in staged:
                with suppress(FileNotFoundError):
                    os.unlink(path)

    @contextmanager
    def _database(self) -> Iterator[Any]:
        if self._memory is not None:
            yield self._memory
            return
        with _lock(f"{self._path}.lock", self._path, self._waiting):
            database = self._connect()
            try:
                yield database
            except self._duckdb.Error as error:
                raise FleetError(_unusable(self._path, error)) from error
            finally:
                database.close()

    def _connect(self) -> Any:
        for path in (self._path, f"{self._path}.wal"):  # DuckDB creates both, also through links
            if os.path.lexists(path) and not os.path.isfile(path):
                raise FleetError(f"{path} is not a file; name another one with --db")
        try:
            database = self._duckdb.connect(self._path)
            database.execute("SET memory_limit = '400MB'")
            database.execute("SET threads = 2")
            _create(database, self._path)
        except self._duckdb.Error as error:
            raise FleetError(_unusable(self._path, error)) from error
        return database


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False  # somebody else has merged it


def default_database() -> str:
    """Returns the file of FASTPLAN_FLEET, or one in the user's cache directory."""
    given = os.environ.get("FASTPLAN_FLEET")
    return given or _cached_database()


def _cached_database() -> str:
    from platformdirs import user_cache_dir

    return os.path.join(user_cache_dir("fastplan"), "fleet.duckdb")


def load_duckdb() -> Any:
    """Returns the module duckdb.

    Raises:
        FleetError: It is not installed.
    """
    try:
        return import_module("duckdb")
    except ImportError as error:
        raise FleetError(
            f"a fleet needs duckdb ({error}); install it with `pip install 'fastplan[fleet]'`"
        ) from error


def _create(database: Any, path: str) -> None:
    tables = {
        name for (name,) in database.execute("SELECT table_name FROM duckdb_tables()").fetchall()
    }
    if tables and "schema" not in tables:  # others may have made it a link to any database
        raise FleetError(f"{path} is a database of something else; name another one with --db")
    database.execute("CREATE TABLE IF NOT EXISTS schema (version INTEGER)")
    row = database.execute("SELECT max(version) FROM schema").fetchone()
    if row[0] not in (None, SCHEMA):
        raise FleetError(
            f"{path} has the schema {row[0]}, and this version of fastplan knows {SCHEMA}; "
            "name another file with --db"
        )
    if row[0] is None:
        database.execute(
            f"""BEGIN; INSERT INTO schema VALUES ({SCHEMA});
            CREATE TABLE places (place VARCHAR, kind VARCHAR, modified BIGINT, size BIGINT,
              files BIGINT, settled BOOLEAN, read_at DOUBLE);
            CREATE TABLE jobs (place VARCHAR, source VARCHAR, begun DOUBLE, row VARCHAR);
            COMMIT"""
        )


def _insert(database: Any, files: list[str]) -> None:
    """Replaces places by those of staged files; the one that was read last wins."""
    database.execute("BEGIN")
    try:
        database.execute(
            f"""CREATE OR REPLACE TEMP TABLE staged AS
            SELECT * FROM read_json(?, format = 'newline_delimited', columns = {_COLUMNS},
              maximum_object_size = 33554432, ignore_errors = true)
            WHERE place IS NOT NULL
            QUALIFY row_number() OVER (PARTITION BY place ORDER BY read_at DESC) = 1""",
            [files],
        )
        # A slower command may have read an older state.
        database.execute(
            """DELETE FROM staged USING places
            WHERE staged.place = places.place AND staged.read_at < places.read_at"""
        )
        for table in ("places", "jobs"):
            database.execute(f"DELETE FROM {table} WHERE place IN (SELECT place FROM staged)")
        database.execute(
            """INSERT INTO places
            SELECT place, kind, modified, size, files, settled, read_at FROM staged"""
        )
        database.execute(
            """INSERT INTO jobs
            SELECT place, row ->> 'source', TRY_CAST(row ->> 'begin' AS DOUBLE), row::VARCHAR
            FROM (SELECT place, unnest(jobs) AS row FROM staged) WHERE row IS NOT NULL"""
        )
        database.execute("DROP TABLE staged; COMMIT")
    except Exception:
        database.execute("ROLLBACK")
        raise


def _job(text: str) -> FleetJob:
    job = _DECODER.decode(text)
    if job.begin is None or None not in map(usable_time, (job.begin, job.begin + job.seconds)):
        return job
    return msgspec.structs.replace(job, begin=None)


@contextmanager
def _lock(path: str, shown: str, waiting: Waiting | None) -> Iterator[None]:
    """Holds an advisory lock, which the system releases when this process ends in any way."""
    import fcntl

    with _open_lock(path) as file:
        since = time.monotonic()
        told = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                file.seek(0)
                owner = file.read(20).strip() or "unknown"
                if time.monotonic() - since > _PATIENCE:
                    raise FleetError(
                        f"{shown} has been locked for {_PATIENCE / 60:.0f} minutes by process "
                        f"{owner}; end that process, or name another file with --db"
                    ) from None
                if waiting is not None and not told:
                    told = True
                    waiting(f"waiting for process {owner}, which writes to {shown}")
                time.sleep(_POLL)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _open_lock(path: str) -> TextIO:
    try:
        return open(path, "a+", encoding="ascii", errors="replace", opener=_open_only_name)
    except OSError as error:
        raise FleetError(
            f"{path} can't be locked: {error.strerror}; name another file with --db"
        ) from error


def _open_only_name(path: str, flags: int) -> int:
    """Opens a file by its only name: a link must not create or empty files elsewhere."""
    file = os.open(path, flags | os.O_NOFOLLOW, 0o666)
    found = os.fstat(file)
    if stat.S_ISREG(found.st_mode) and found.st_nlink < 2:
        return file
    os.close(file)
    raise FleetError(
        f"{path} can't be locked: it is no file, or a second name of one (a hard link); "
        "delete it, or name another file with --db"
    )


def _unusable(path: str, error: Exception) -> str:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    # Any other name is the user's own, perhaps of a file with something else.
    own = os.path.realpath(path) == os.path.realpath(_cached_database())
    way_out = "delete it, and everything is read again" if own else "choose another --db"
    return f"{path} can't be used: {reason}; {way_out}"
