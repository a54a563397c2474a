"""The functions that a job calls: off by default, on by the environment, off after a fork."""

from fastplan.ett.reading import read_job
from tests.ett.processes import run


def test_importing_does_nothing_and_loads_no_torch():
    code = """
import sys, threading, atexit, logging
before = atexit._ncallbacks()
from fastplan import ett
print(atexit._ncallbacks() - before, threading.active_count(), len(sys.meta_path))
print([m for m in ("torch", "torchrec", "numpy", "numba", "fastplan.ett.html") if m in sys.modules])
"""
    finders = run("import sys; print(len(sys.meta_path))")
    assert run(code).splitlines() == [f"0 1 {finders}", "[]"]


def test_nothing_is_recorded_unless_it_is_asked_for(tmp_path):
    code = """
from fastplan import ett
print(ett.install(), ett.start())
with ett.phase("plan"): ett.step(1)
ett.checkpoint(1); ett.failure("no"); ett.stop(); ett.uninstall()
"""
    assert run(code) == "False None"
    assert run(code, FASTPLAN_ETT="0") == "False None"


def test_the_environment_turns_it_on_and_the_process_end_ends_it(tmp_path):
    code = """
from fastplan import ett
with ett.phase("plan", engine="native"): pass
for number in range(5): ett.step(number)
ett.checkpoint(4)
"""
    run(
        code,
        tmp_path,
        RANK="3",
        WORLD_SIZE="8",
        TORCHELASTIC_RESTART_COUNT="2",
        TORCHELASTIC_RUN_ID="the run",
        FASTPLAN_ETT_LAUNCHED="1700000000.5",
    )
    (record,), _ = read_job(tmp_path)
    who = record.identity
    assert (who.rank, who.world, who.attempt, who.run) == (3, 8, 2, "the run")
    assert who.launched == 1_700_000_000_500_000_000
    assert who.process is not None
    assert who.process <= record.t
    assert record.end is not None
    # Imports that take long on a busy machine are recorded, too.
    assert [phase.name for phase in record.phases if phase.name != "imports"] == ["plan"]
    assert record.steps[-1].last == 4
    assert record.checkpoints[0][0] == 4


def test_nonsense_in_the_environment_is_no_error(tmp_path):
    code = "from fastplan import ett; ett.step(1)"
    run(code, tmp_path, RANK="first", WORLD_SIZE="", FASTPLAN_ETT_LAUNCHED="yesterday")
    (record,), _ = read_job(tmp_path)
    assert (record.rank, record.world, record.identity.launched) == (0, 1, None)


def test_start_overrules_the_environment(tmp_path):
    code = f"""
from fastplan import ett
print(ett.start({str(tmp_path / "other")!r}, rank=1, world=2, attempt=7))
ett.step(0)
"""
    path = run(code, tmp_path / "runs", RANK="5")
    (record,), _ = read_job(tmp_path / "other")
    assert str(record.path) == path
    assert (record.rank, record.world, record.identity.attempt) == (1, 2, 7)
    assert not (tmp_path / "runs").exists()


def test_a_forked_child_leaves_its_parents_file_alone(tmp_path):
    code = """
import os
from fastplan import ett
ett.step(0)
with ett.phase("outer"):
    for number in range(1, 50): ett.step(number)
    child = os.fork()
    if child == 0:
        for number in range(1000, 2000): ett.step(number)
        with ett.phase("inner"): pass
        ett.failure("of the child")
        raise SystemExit(0)  # runs what is registered for the end of a process
    os.waitpid(child, 0)
"""
    run(code, tmp_path)
    (record,), _ = read_job(tmp_path)
    assert record.steps[-1].last == 49
    assert record.failures == []
    assert not record.problems


def test_a_forked_child_may_record_itself(tmp_path):
    code = """
import os
from fastplan import ett
ett.step(0)
child = os.fork()
if child == 0:
    ett.start(rank=1)
    ett.step(7)
    raise SystemExit(0)
os.waitpid(child, 0)
ett.step(1)
"""
    run(code, tmp_path)
    records, _ = read_job(tmp_path)
    assert {record.rank: record.steps[-1].last for record in records} == {0: 1, 1: 7}


def test_a_fork_while_another_thread_records_does_not_hang(tmp_path):
    code = """
import os, threading
from fastplan import ett
ett.step(0)
over = threading.Event()
def work():
    while not over.is_set():
        with ett.phase("busy", detail=1): pass
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for number in range(20):
    child = os.fork()
    if child == 0:
        ett.start(rank=1 + number)
        ett.step(0)
        ett.stop()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
over.set()
"""
    run(code, tmp_path)
    records, _ = read_job(tmp_path)
    assert len(records) == 21


def test_a_signal_handler_may_record(tmp_path):
    code = """
import signal
from fastplan import ett
signal.signal(signal.SIGALRM, lambda *_: ett.failure("alarm"))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
for number in range(200_000): ett.step(number)
signal.setitimer(signal.ITIMER_REAL, 0)
"""
    run(code, tmp_path)
    (record,), _ = read_job(tmp_path)
    assert sum(steps.last + 1 - steps.first for steps in record.steps) == 200_000
    assert record.failures


def test_a_million_events_take_no_memory(tmp_path):
    code = """
import resource
from fastplan import ett
def most(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
def work(begin, end):
    for number in range(begin, end):
        with ett.phase("data_wait"): pass
        ett.step(number)
work(0, 10_000)
before = most()
work(10_000, 500_000)
print(most() - before)
"""
    assert int(run(code, tmp_path)) < 4096  # KiB
    (path,) = tmp_path.iterdir()
    assert path.stat().st_size < 20_000
