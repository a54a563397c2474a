"""No argument that a job passes to the recorder raises an error in the job."""

import enum
import logging
import os
import random
import threading
from fractions import Fraction

import numpy as np
import pytest

from fastplan import ett
from fastplan.ett import recording
from fastplan.ett.arithmetic import job_report
from fastplan.ett.building import load
from fastplan.ett.reading import read, read_job
from tests.ett.processes import run
from tests.ett.runs import Rank, entries


class Unshowable:
    def __repr__(self):
        raise ValueError("no text")


class UnshowableText(str):
    __slots__ = ()

    def __str__(self):
        raise ValueError("no text")


class UnshowableNumber(int):
    def __int__(self):
        raise ValueError("no number")

    __index__ = __str__ = __format__ = __int__


class WithoutClass:
    @property
    def __class__(self):
        raise ValueError("no class")


class Endless(dict):
    def items(self):
        while True:
            yield "key", "value"


class Level(enum.IntEnum):
    HIGH = 3


def circular():
    value = {"list": []}
    value["list"].append(value)
    return value


def deep():
    value = []
    for _ in range(100_000):
        value = [value]
    return value


ODD = {
    "tuple key": lambda: {(1, 2): 3},
    "circular": circular,
    "deep": deep,
    "no text": Unshowable,
    "key without text": lambda: {Unshowable(): Unshowable()},
    "text without text": lambda: UnshowableText("abc"),
    "number without number": lambda: UnshowableNumber(3),
    "without class": WithoutClass,
    "endless": Endless,
    "huge number": lambda: 10**5000,
    "huge text": lambda: "x" * 30_000_000,
    "huge list": lambda: list(range(3_000_000)),
    "huge bytes": lambda: bytes(30_000_000),
    "surrogate": lambda: "\udc80\ud800",
    "nan": lambda: [float("nan"), float("inf"), np.float32("nan")],
    "numpy": lambda: [np.int64(3), np.float64(0.5), np.arange(3), np.bool_(True)],
    "fraction": lambda: [Fraction(10**400), 3j, Level.HIGH, {1, 2}, b"bytes", ...],
}


@pytest.fixture
def started(tmp_path):
    path = ett.start(tmp_path)
    yield path
    ett.stop()


def details_of(path):
    return entries(path, "phase")[-1].get("more")


@pytest.mark.parametrize("kind", ODD)
def test_odd_details_are_no_error_and_the_line_stays_readable(kind, started):
    value = ODD[kind]()
    with ett.phase("publish", before=1, odd=value, after=2):
        pass
    ett.stop()
    assert details_of(started)["before"] == 1
    assert os.path.getsize(started) < 1_000_000
    assert not read(started).problems


@pytest.mark.parametrize("kind", ODD)
def test_odd_names_causes_and_steps_are_no_error(kind, started):
    value = ODD[kind]()
    with ett.phase(value):
        ett.step(1)
    with ett.phase(value, detail=1), ett.phase(value):  # short ones, summed by name
        pass
    ett.step(value)
    ett.checkpoint(value)
    ett.failure(value)
    ett.step(2)
    ett.stop()
    record = read(started)
    assert len(record.failures) == 1
    assert record.steps[-1].last == 2
    assert os.path.getsize(started) < 1_000_000


def test_details_stay_what_they_are_where_json_has_them(started):
    details = {"a": [1, -2.5, None, True, "text"], "b": {"c": {}}, "d": []}
    with ett.phase("plan", **details, number=np.int64(7), share=np.float32(0.5), level=Level.HIGH):
        pass
    assert details_of(started) == {**details, "number": 7, "share": 0.5, "level": 3}


def test_details_may_have_any_name(started):
    with ett.phase("plan", name="other", self="this"):
        pass
    with ett.phase(name="by keyword"):
        pass
    assert entries(started, "phase")[-2]["more"] == {"name": "other", "self": "this"}
    assert entries(started, "phase")[-1]["name"] == "by keyword"


def test_what_is_cut_off_says_so(started):
    with ett.phase("plan", text="x" * 5000, many=list(range(100_000)), nested=deep()):
        pass
    more = details_of(started)
    assert more["text"] == "x" * 1999 + "…"
    assert more["many"][:3] == [0, 1, 2]
    assert more["many"][-1] == "…"
    assert more["…"] == "…"


def test_a_step_that_is_a_truth_value_is_a_number_in_the_file(started):
    ett.step(True)
    ett.stop()
    assert read(started).steps[0].first == 1


def test_a_step_that_is_not_a_number_is_lost_and_logged_once(started, caplog):
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            ett.step("seven")
        ett.step(0)
    ett.stop()
    assert len(caplog.records) == 1
    assert "seven" in caplog.text
    assert entries(started, "lost")[0]["lines"] == 3
    assert any("3 lines were lost" in problem for problem in read(started).problems)


def test_a_log_that_raises_is_no_error_either(started, monkeypatch):
    class Broken(logging.Handler):
        def handle(self, record):
            raise ValueError("no log")

    handler = Broken()
    logging.getLogger("fastplan").addHandler(handler)
    try:
        ett.step("seven")
    finally:
        logging.getLogger("fastplan").removeHandler(handler)
    ett.step(0)
    assert entries(started, "steps")


def test_interrupts_pass_and_recording_continues(started):
    class Interrupting:
        def __str__(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), ett.phase("plan", odd=Interrupting()):
        pass
    with ett.phase("after", detail=1):
        pass
    assert entries(started, "phase")[-1]["name"] == "after"


def test_a_phase_may_end_in_another_thread_twice_or_unbegun(started):
    phase = ett.phase("plan", detail=1)
    phase.__exit__(None, None, None)
    phase.__enter__()
    ends = [threading.Thread(target=phase.__exit__, args=(None, None, None)) for _ in range(4)]
    for end in ends:
        end.start()
    for end in ends:
        end.join()
    ett.stop()
    assert not read(started).problems


def test_a_file_that_the_job_closed_is_not_written_to_again(started, tmp_path, caplog):
    """Its number may be another file's by then."""
    ett.step(0)
    file = recording._active._journal._file
    os.close(file)
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    assert other == file
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            with ett.phase("plan", number=number):
                pass
    ett.stop()
    assert os.fstat(other).st_size == 0  # and it is still open
    os.close(other)
    assert len(caplog.records) == 1
    assert "closed" in caplog.text


@pytest.mark.parametrize("rank", [np.int64(3), True, "3", 2.5, -1, 10**30, None])
def test_ranks_of_any_type_are_no_error(rank, tmp_path):
    path = ett.start(tmp_path, rank=rank, world=rank, attempt=rank)
    ett.step(0)
    ett.stop()
    assert path is None or read(path).steps


@pytest.mark.parametrize("directory", [3, b"bytes", "nul\0", "", ["list"], Unshowable()])
def test_directories_of_any_type_are_no_error(directory, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recording, "_directory", None)
    try:
        assert ett.install(directory) in (True, False)
        ett.step(0)
        ett.start(directory)
        ett.step(1)
    finally:
        ett.uninstall()
        ett.stop()


@pytest.mark.parametrize("inside", ["", "runs", "a/b"])
def test_where_a_file_is_in_the_way_nothing_is_installed(inside, tmp_path):
    (tmp_path / "file").write_text("")
    code = f"""
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(message)s")
before = sys.excepthook
from fastplan import ett
print(ett.install({str(tmp_path / "file" / inside)!r}), sys.excepthook is before)
ett.step(1)
"""
    said, returned = run(code).splitlines()
    assert "nothing is recorded" in said
    assert returned == "False True"


def test_installing_makes_no_directory_and_a_good_one_follows_a_bad_one(tmp_path):
    (tmp_path / "file").write_text("")
    code = f"""
from fastplan import ett
print(ett.install({str(tmp_path / "file")!r}), ett.install({str(tmp_path / "runs")!r}))
import os
print(os.path.exists({str(tmp_path / "runs")!r}))
ett.step(1)
"""
    assert run(code).splitlines()[-2:] == ["False True", "False"]
    assert read_job(tmp_path / "runs")[0][0].steps


ATOMS = [
    lambda r: r.randint(-9, 9),
    lambda r: r.choice([True, None, 0.5, float("nan"), 10**40, -(10**6000)]),
    lambda r: r.choice(["", "text", "\x1b[31m", "\n", "\udcff", "é" * 9, "x" * 9999]),
    lambda r: r.choice([Unshowable(), UnshowableText("a"), UnshowableNumber(1), WithoutClass()]),
    lambda r: r.choice([np.int8(3), np.zeros((2, 2)), object, Level.HIGH, Fraction(1, 3), 2j]),
    lambda r: r.choice([b"\xff", range(3), iter("abc"), lambda: 0, NotImplemented, ...]),
]


def drawn(r, depth=0):
    """A value nested at random, which may hold itself."""
    if depth > 6 or r.random() < 0.3:
        return r.choice(ATOMS)(r)
    if r.random() < 0.5:
        value = [drawn(r, depth + 1) for _ in range(r.randint(0, 4))]
        if r.random() < 0.1:
            value.append(value)
        return value if r.random() < 0.7 else tuple(value)
    table = {}
    for _ in range(r.randint(0, 4)):
        key = r.choice([drawn(r, 7), (1, drawn(r, 7))])
        try:
            table[key] = drawn(r, depth + 1)
        except TypeError:  # unhashable
            table[id(key)] = key
    if r.random() < 0.1:
        table["self"] = table
    return table


def test_random_events_never_raise_and_all_can_be_read(tmp_path):
    r = random.Random(17)
    rank = Rank(tmp_path)
    ett.start(tmp_path / "runs")
    for number in range(500):
        with ett.phase(drawn(r), odd=drawn(r)), ett.phase(drawn(r)):
            if r.random() < 0.2:
                ett.step(number)
            for tell in (ett.step, ett.checkpoint, ett.failure):
                if r.random() < 0.1:
                    tell(drawn(r))
            rank.do("plan", 0.001, engine=drawn(r), cache=drawn(r), parts=drawn(r))
    ett.stop()
    rank.recorder.stop()
    for folder in (tmp_path, tmp_path / "runs"):
        records, problems = read_job(folder)
        lost = [problem for record in records for problem in record.problems]
        assert all("lines were lost" in problem for problem in lost + problems)
        job_report(load(folder))
