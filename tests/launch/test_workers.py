"""A worker that is forked behaves as one that is started: what it sees, prints, and how it ends."""

import os
import py_compile
import signal
import subprocess
import sys
import zipapp

import psutil
import pytest

from fastplan.ett.arithmetic import read_report
from fastplan.launch import agent
from fastplan.launch.agent import ForkedProcess, ForkServer, Preloader
from fastplan.launch.agent import _set_subreaper as set_subreaper

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks for another parent")

_SHOW = """
import os, sys
print(sys.argv, sys.path, __name__, __file__, __spec__ and __spec__.name, os.getcwd())
print(sys.flags, sys.stdout.write_through, sorted(os.environ.items()), sys.stdin.read())
print(os.getsid(0) == os.getpid(), len(os.listdir("/proc/self/fd")), os.getppid())
print(type(sys.modules["__main__"]).__name__, sys.modules["__main__"].__dict__ is globals())
"""
_END = """
import atexit, threading
atexit.register(print, "exit function")
threading.Timer(0.01, lambda: print("thread")).start()
"""
_ERROR = """
def fail():
    raise ValueError("boom")
try:
    fail()
except ValueError as error:
    raise RuntimeError("again") from error
"""
_HOOK = """
import sys
sys.excepthook = lambda kind, error, traceback: print("hook", kind.__name__, traceback.tb_lineno)
raise OSError
"""
_SPAWN = """
import multiprocessing
def double(x):
    return 2 * x
if __name__ == "__main__":
    with multiprocessing.get_context("{}").Pool(2) as pool:
        print(pool.map(double, [1, 2, 3]))
"""
PROGRAMS = {
    "show": _SHOW,
    "end": _END,
    "exit": "import sys; sys.exit(7)",
    "exit_text": "import sys; sys.exit('a message')",
    "error": _ERROR,
    "hook": _HOOK,
    "syntax": "def (",
    "interrupt": "raise KeyboardInterrupt",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "terminated": "import os, signal; signal.raise_signal(signal.SIGTERM)",
    "interrupted": "import signal; signal.raise_signal(signal.SIGINT)",
    "aborted": "import os; os.abort()",
    "spawn": _SPAWN.format("spawn"),
    "fork": _SPAWN.format("fork"),
    "forkserver": _SPAWN.format("forkserver"),
}


@pytest.fixture(scope="module")
def server():
    started = ForkServer(sys.executable, ["json", "random"], frozenset(), os.environ)
    assert started.wait() is None
    yield started
    started.close()


def run(start, words, folder, **more):
    """Runs a program and returns its exit code and output, with `start` or without."""
    given, out, err = folder / "in", folder / "out", folder / "err"
    given.write_text("typed")
    env = {**os.environ, "RANK": "3", "TORCHELASTIC_RUN_ID": "job", **more}
    words = [sys.executable, "-u", *words]
    with given.open() as stdin, out.open("w") as stdout, err.open("w") as stderr:
        if start is None:
            process = subprocess.Popen(
                words, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
            )
        else:
            streams = [each.fileno() for each in (stdin, stdout, stderr)]
            process = ForkedProcess(start, words, env, streams)
        code = process.wait(60)
    return code, out.read_text(), err.read_text()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("kind", ["script", "module"])
def test_a_forked_worker_is_like_a_started_one(server, tmp_path, monkeypatch, name, kind):
    (tmp_path / f"{name}_program.py").write_text(PROGRAMS[name])
    monkeypatch.chdir(tmp_path)
    words = {"script": [f"./{name}_program.py", "--a", "b"], "module": ["-m", f"{name}_program"]}
    started = run(None, words[kind], tmp_path)
    forked = run(server, words[kind], tmp_path)
    assert [each.splitlines() for each in forked[1:]] == [each.splitlines() for each in started[1:]]
    assert forked[0] == started[0]
    assert started[0] != 0 or started[1]


def test_a_missing_module_ends_as_python_ends(server, tmp_path):
    code, _, error = run(server, ["-m", "no_such_module"], tmp_path)
    assert (code, run(None, ["-m", "no_such_module"], tmp_path)[0]) == (1, 1)
    assert "No module named no_such_module" in error


def test_signals_of_the_agent_reach_the_worker(server, tmp_path):
    script = tmp_path / "wait.py"
    script.write_text("import sys\nprint('up')\nsys.stdin.read()")
    reader, writer = os.pipe()
    with (tmp_path / "out").open("w+") as out:
        words = [sys.executable, "-u", str(script)]
        worker = ForkedProcess(server, words, os.environ, [reader, out.fileno(), out.fileno()])
        assert worker.poll() is None
        os.killpg(worker.pid, signal.SIGTERM)  # as torchrun ends a worker
        assert worker.wait(60) == -signal.SIGTERM
    os.close(reader)
    os.close(writer)


def test_a_worker_has_what_the_server_imported_and_its_own_random_numbers(server, tmp_path):
    script = tmp_path / "draw.py"
    script.write_text(
        "import sys; print('random' in sys.modules); import random; print(random.random())"
    )
    drawn = [run(server, [str(script)], tmp_path)[1].split() for _ in range(2)]
    assert drawn[0][0] == "True"
    assert drawn[0][1] != drawn[1][1]


def test_the_agent_adopts_only_its_workers(server, tmp_path):
    """A process that a dead worker leaves behind belongs to the system, as with torchrun."""
    set_subreaper(False)  # another test of this process may have left it on
    script = tmp_path / "leave.py"
    script.write_text(
        "import os\n"
        "os.read(0, 1)\n"
        "parent = os.getpid()\n"
        "if os.fork() == 0:\n"
        "    while os.getppid() == parent:\n"
        "        pass\n"
        "    os.write(1, str(os.getppid()).encode())\n"
    )
    (waiting, go), (reader, writer) = os.pipe(), os.pipe()
    words = [sys.executable, "-u", str(script)]
    worker = ForkedProcess(server, words, os.environ, [waiting, writer, 2])
    for end in (waiting, writer, go):  # the worker goes on now that it is adopted
        os.close(end)
    assert worker.wait(60) == 0
    with os.fdopen(reader) as file:
        assert int(file.read()) != os.getpid()


def preloader_after(environment, monkeypatch, modules=("json",)):
    monkeypatch.setattr("fastplan.launch.agent.MODULES", modules)
    preloader = Preloader()
    preloader.start(sys.executable, environment)
    return preloader


WORDS = [sys.executable, "-u", "-m", "this"]


def test_another_environment_starts_a_worker_plainly_and_the_next_one_forked(monkeypatch, caplog):
    preloader = preloader_after(os.environ, monkeypatch)
    changed = {**os.environ, "OMP_NUM_THREADS": "17"}
    with open(os.devnull, "r+b") as null:
        streams = [null.fileno()] * 3
        assert preloader.popen(WORDS, changed, streams) is None
        assert "OMP_NUM_THREADS changed" in caplog.text
        worker = preloader.popen(WORDS, changed, streams)
        assert worker.wait(60) == 0
    preloader.close()


def test_an_environment_that_changes_all_the_time_ends_in_plain_starts(monkeypatch, caplog):
    preloader = preloader_after(os.environ, monkeypatch)
    for number in range(6):
        assert preloader.popen(WORDS, {**os.environ, "OWN": str(number)}, [0, 1, 2]) is None
    assert "5 fork servers were not of use" in caplog.text
    preloader.close()


def test_a_worker_records_where_fastplan_ett_says_and_the_server_does_not(tmp_path, monkeypatch):
    preloader = preloader_after(os.environ, monkeypatch, ["fastplan", "fastplan.ett"])
    script = tmp_path / "train.py"
    script.write_text("from fastplan import ett\nett.step(1)")
    words = [sys.executable, "-u", str(script)]
    for rank in range(2):
        own = {"RANK": str(rank), "WORLD_SIZE": "2", "FASTPLAN_ETT": str(tmp_path / "runs")}
        assert preloader.popen(words, {**os.environ, **own}, [0, 1, 2]).wait(60) == 0
    preloader.close()
    names = sorted(path.name.split(".")[1] for path in (tmp_path / "runs").iterdir())
    assert names == ["rank00000", "rank00001"]
    report = read_report(tmp_path / "runs")
    assert (report.attempts[0].world, report.steps) == (2, 1)


def test_torchruns_own_variables_may_differ(monkeypatch):
    preloader = preloader_after({**os.environ, "RANK": "0", "FASTPLAN_ETT": "a"}, monkeypatch)
    own = {"RANK": "1", "MASTER_PORT": "2", "TORCHELASTIC_RESTART_COUNT": "1", "FASTPLAN_ETT": "b"}
    own["CUDA_VISIBLE_DEVICES"] = "7"
    with open(os.devnull, "r+b") as null:
        assert preloader.popen(WORDS, {**os.environ, **own}, [null.fileno()] * 3).wait(60) == 0
    preloader.close()


@pytest.mark.parametrize(
    "words",
    [["/bin/true"], [sys.executable, "-m", "this"], [sys.executable, "-u", "no_such_file.py"]],
)
def test_anything_but_a_python_program_starts_plainly(monkeypatch, caplog, words):
    preloader = preloader_after(os.environ, monkeypatch)
    assert preloader.popen(words, os.environ, [0, 1, 2]) is None
    assert "without preloaded modules" in caplog.text
    preloader.close()


def archive(folder, **more):
    (folder / "app").mkdir()
    (folder / "app" / "__main__.py").write_text("print('ran')")
    zipapp.create_archive(folder / "app", folder / "program", **more)


def compiled(folder):
    (folder / "source.py").write_text("print('ran')")
    py_compile.compile(folder / "source.py", folder / "program")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (archive, "is a zip archive"),
        (lambda folder: archive(folder, interpreter="/usr/bin/env python3"), "is a zip archive"),
        (compiled, "is compiled Python"),
    ],
)
def test_a_program_without_source_starts_plainly(tmp_path, monkeypatch, caplog, make, why):
    make(tmp_path)
    words = [sys.executable, "-u", str(tmp_path / "program")]
    preloader = preloader_after(os.environ, monkeypatch)
    assert preloader.popen(words, os.environ, [0, 1, 2]) is None
    assert f"{words[2]} {why}" in caplog.text
    preloader.close()
    assert subprocess.check_output(words) == b"ran\n"


def test_compiled_python_of_another_version_starts_plainly(tmp_path):
    """Python says so: it goes by the name, and a fork would take it for source."""
    (tmp_path / "old.pyc").write_bytes(b"\x03\xf3\r\n" + bytes(12))
    words = [sys.executable, "-u", str(tmp_path / "old.pyc")]
    assert agent._why_not_python(words) == f"{words[2]} is compiled Python"
    assert "Bad magic number" in subprocess.run(words, stderr=subprocess.PIPE, text=True).stderr


_CLOSED = """
import os, sys
from fastplan.launch import agent
agent.MODULES = ("json",)
preloader = agent.Preloader()
preloader.start(sys.executable, os.environ)
worker = preloader.popen([sys.executable, "-u", sys.argv[1]], os.environ, [0, 1, 2])
preloader.close()
sys.exit(worker.wait(60))
"""


@pytest.mark.parametrize("closed", [(0,), (1,), (0, 1, 2)])
def test_closed_streams_are_no_sockets_of_workers(tmp_path, closed):
    (tmp_path / "show.py").write_text(
        "import os, sys\n"
        "names = [os.readlink(f'/proc/self/fd/{number}') for number in range(3)]\n"
        "open(sys.path[0] + '/seen', 'w').write(' '.join(names))\n"
    )

    def close():
        for number in closed:
            os.close(number)

    words = [sys.executable, "-c", _CLOSED, str(tmp_path / "show.py")]
    assert subprocess.run(words, preexec_fn=close, timeout=60).returncode == 0
    seen = (tmp_path / "seen").read_text().split()
    assert [seen[number] for number in closed] == [os.devnull] * len(closed)


def test_names_of_modules_and_files_are_logged_with_escapes(monkeypatch, caplog):
    evil, shown = "a\x1b[2J\u202e", r"a\x1b[2J\u202e"
    monkeypatch.setattr("fastplan.launch.agent.MODULES", ("json",))
    preloader = Preloader([evil])
    preloader.start(sys.executable, os.environ)
    assert preloader.popen([sys.executable, "-u", evil], os.environ, [0, 1, 2]) is None
    assert preloader._server.wait() is None
    preloader.close()
    assert f"without preloaded modules: {shown} is not a file" in caplog.text
    assert f"--preload {shown}: ModuleNotFoundError" in caplog.text


def test_a_worker_has_the_variables_that_imports_have_set(tmp_path, monkeypatch):
    (tmp_path / "setting.py").write_text(
        "import os\nos.environ['SET_BY_IMPORT'] = os.environ['CHANGED'] = 'new'"
    )
    (tmp_path / "show.py").write_text(
        "import os\nprint(*(os.environ[name] for name in ('SET_BY_IMPORT', 'CHANGED', 'RANK')))"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHANGED", "old")
    preloader = preloader_after(os.environ, monkeypatch, ["setting"])
    assert preloader._server.wait() is None
    assert run(preloader._server, ["show.py"], tmp_path)[:2] == (0, "new new 3\n")
    preloader.close()


def test_a_function_of_a_module_is_called_once_for_all_workers(tmp_path, monkeypatch):
    (tmp_path / "warm.py").write_text(
        "import functools\n"
        "@functools.cache\n"
        "def slow():\n"
        "    open('calls', 'a').write('called ')\n"
        "    return 42\n"
    )
    (tmp_path / "train.py").write_text("from warm import slow\nprint(slow())")
    monkeypatch.chdir(tmp_path)
    preloader = preloader_after(os.environ, monkeypatch, ["warm:slow"])
    assert preloader._server.wait() is None
    assert [run(preloader._server, ["train.py"], tmp_path)[1] for _ in range(2)] == ["42\n"] * 2
    assert (tmp_path / "calls").read_text() == "called "
    preloader.close()


def test_a_module_that_starts_a_thread_is_named(tmp_path, monkeypatch, caplog):
    (tmp_path / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    monkeypatch.chdir(tmp_path)
    preloader = preloader_after(os.environ, monkeypatch, ["threaded"])
    assert preloader.popen(WORDS, os.environ, [0, 1, 2]) is None
    assert "1 threads were started by imports" in caplog.text
    preloader.close()


def test_a_server_that_was_killed_is_replaced(monkeypatch, caplog):
    preloader = preloader_after(os.environ, monkeypatch)
    with open(os.devnull, "r+b") as null:
        streams = [null.fileno()] * 3
        assert preloader.popen(WORDS, os.environ, streams).wait(60) == 0
        preloader._server._process.kill()
        preloader._server._process.wait()
        assert preloader.popen(WORDS, os.environ, streams) is None
        assert "the fork server has ended" in caplog.text
        assert preloader.popen(WORDS, os.environ, streams).wait(60) == 0
    preloader.close()


def test_the_server_ends_with_the_agent(monkeypatch):
    preloader = preloader_after(os.environ, monkeypatch)
    process = preloader._server._process
    assert preloader._server.wait() is None
    preloader._server.channel.close()  # as the kernel does when the agent is killed
    assert process.wait(60) == 0
    preloader.close()


def test_a_module_of_the_user_that_fails_is_reported(monkeypatch, caplog):
    monkeypatch.setattr("fastplan.launch.agent.MODULES", ("no_such_default",))
    preloader = Preloader(["no_such_module"])
    preloader.start(sys.executable, os.environ)
    with open(os.devnull, "r+b") as null:
        assert preloader.popen(WORDS, os.environ, [null.fileno()] * 3).wait(60) == 0
    assert "--preload no_such_module: ModuleNotFoundError" in caplog.text
    assert "no_such_default" not in caplog.text
    preloader.close()


def test_a_worker_that_a_signal_makes_torchrun_forget_is_ended(monkeypatch, tmp_path):
    """torchrun's handler raises, here between the request and the number of the new worker."""

    class Stop(Exception):
        pass

    def stop(number, frame):
        raise Stop

    def send_and_be_stopped(*arguments):
        send(*arguments)
        signal.raise_signal(signal.SIGTERM)

    script = tmp_path / "train.py"
    script.write_text("import time\ntime.sleep(600)")
    before = {child.pid for child in psutil.Process().children()}
    preloader, send = Preloader(), agent.server.send
    preloader._modules = ["json"]
    preloader.start(sys.executable, os.environ)
    kept = signal.signal(signal.SIGTERM, stop)
    try:
        assert preloader._server.wait() is None
        monkeypatch.setattr(agent.server, "send", send_and_be_stopped)
        with open(os.devnull, "r+") as none, pytest.raises(Stop):
            preloader.popen([sys.executable, "-u", str(script)], os.environ, 3 * [none.fileno()])
        assert len(preloader._server.workers) == 1
    finally:
        signal.signal(signal.SIGTERM, kept)
        preloader.end_lost_workers()
    assert {child.pid for child in psutil.Process().children()} <= before
