"""A fleet as Parquet, for other tools: a row per job, phases and labels as maps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from tempfile import TemporaryDirectory

import msgspec

from fastplan.ett.fleet.jobs import FleetJob
from fastplan.ett.fleet.store import load_duckdb
from fastplan.files.storage import replace_file

_COLUMNS = """{source: 'VARCHAR', kind: 'VARCHAR', job: 'VARCHAR', begin: 'DOUBLE',
 seconds: 'DOUBLE', time_to_start_s: 'DOUBLE', times_to_recover_s: 'DOUBLE[]', train_s: 'DOUBLE',
 ett: 'DOUBLE', failures: 'BIGINT', attempts: 'BIGINT', ranks: 'BIGINT', steps: 'BIGINT',
 lost_steps: 'BIGINT', phases: 'MAP(VARCHAR, DOUBLE)', start: 'MAP(VARCHAR, DOUBLE)',
 within: 'MAP(VARCHAR, DOUBLE)', labels: 'MAP(VARCHAR, VARCHAR)', notes: 'VARCHAR[]'}"""


def write_parquet(jobs: Sequence[FleetJob], path: str) -> None:
    """Writes jobs to a file, which is replaced as a whole.

    Raises:
        FleetError: DuckDB is not installed.
    """
    duckdb = load_duckdb()
    with TemporaryDirectory(prefix="fastplan-fleet-") as folder:
        lines, made = os.path.join(folder, "jobs.jsonl"), os.path.join(folder, "jobs.parquet")
        with open(lines, "wb") as file:
            file.write(msgspec.json.Encoder().encode_lines(jobs))
        database = duckdb.connect()
        try:
            database.execute(
                f"""CREATE TABLE jobs AS SELECT * FROM read_json(?, format = 'newline_delimited',
                columns = {_COLUMNS}, maximum_object_size = 33554432)""",
                [lines],
            )
            # DuckDB takes no parameter here; the name is this function's own.
            quoted = made.replace("'", "''")
            database.execute(f"COPY jobs TO '{quoted}' (FORMAT parquet, COMPRESSION zstd)")
        finally:
            database.close()
        with open(made, "rb") as file:
            replace_file(path, [file.read()])
