"""Eight processes on one directory, some of them killed, lose nothing and tear nothing."""

import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fastplan.cache.entry import decode
from fastplan.cache.stores import DirectoryStore
from tests.cache.hammer import UNLIMITED
from tests.cache.samples import key

PROCESSES = 8
OPERATIONS = 1000


def hammer(root, seed, max_bytes):
    """Runs a process, for some seeds through a few kills, and returns the writes it reported."""
    draw = random.Random(seed)
    kills = draw.randint(1, 3) if seed % 2 else 0
    reports = []
    left = OPERATIONS
    for life in range(kills + 1):
        own_seed = seed + PROCESSES * life
        die_after = draw.randint(20, 100) if life < kills else 0
        # It must not come to its end before it is killed, however late that is.
        most_writes = die_after and die_after + 50
        numbers = own_seed, left, max_bytes, most_writes
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.cache.hammer", root, *map(str, numbers)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        step = 0
        for count, line in enumerate(process.stdout, 1):
            number, name, step = line.split()
            reports.append((int(number), name, own_seed, int(step)))
            if count == die_after:
                process.kill()
        errors = process.stderr.read()
        assert process.wait() == (-signal.SIGKILL if life < kills else 0), errors
        left = max(left - int(step) - 1, OPERATIONS // 2)
    return reports


def size(root):
    return sum(file.stat().st_size for file in root.rglob("*") if file.is_file())


@pytest.fixture
def torture(tmp_path):
    def run(max_bytes):
        with ThreadPoolExecutor(PROCESSES) as pool:
            runs = pool.map(lambda seed: hammer(str(tmp_path), seed, max_bytes), range(PROCESSES))
            return [report for reports in runs for report in reports]

    return run


def test_no_written_entry_is_lost_or_torn(torture, tmp_path):
    reports = torture(max_bytes=UNLIMITED)
    assert len(reports) > PROCESSES * OPERATIONS / 4
    store = DirectoryStore(tmp_path)
    last = {(number, name): step for number, name, _, step in reports if name != "any"}
    for number, name, _, _ in reports:
        made = {found: decode(data) for found, data in store.read(key(number))}[name]
        assert made.key == key(number)
        # A process killed between a write and its report may have written once more.
        if name != "any":
            assert made.provenance["step"] >= last[number, name]


def test_the_size_stays_bounded_while_many_write_and_sweep(torture, tmp_path):
    limit = 800_000
    reports = torture(max_bytes=limit)
    assert len(reports) * 1000 > 3 * limit
    store = DirectoryStore(tmp_path, max_bytes=limit)
    assert limit / 2 < size(tmp_path) < 2 * limit
    store.sweep()
    assert size(tmp_path) <= limit
