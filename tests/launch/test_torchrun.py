"""torchrun with preloaded workers behaves as torchrun: restarts, logs, error files, signals."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.ett.processes import environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks for another parent")

TORCHRUN = ["-m", "torch.distributed.run"]
# The agent of `fastplan run`, but with a fork server that has little to import.
PRELOADED = [
    "-c",
    "import sys; from fastplan.launch import __main__ as launch, agent; "
    "agent.MODULES = ('json',); launch.main(sys.argv[1:])",
]
FAILING = """
import json, os, sys, time
from pathlib import Path
from torch.distributed.elastic.multiprocessing.errors import record

NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT",
         "TORCHELASTIC_MAX_RESTARTS", "OMP_NUM_THREADS", "OWN")

@record
def main():
    rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
    print("out of", rank, attempt, sys.argv[1:])
    print("err of", rank, attempt, file=sys.stderr)
    seen = {name: os.environ.get(name) for name in NAMES}
    Path(sys.argv[1], f"seen.{attempt}.{rank}").write_text(json.dumps(seen))
    if rank == "1":
        raise ValueError("rank 1 failed on purpose")
    time.sleep(600)

if __name__ == "__main__":
    main()
"""
WAITING = """
import os, sys, time
from pathlib import Path
Path(sys.argv[1], f"up.{os.environ['RANK']}").write_text(str(os.getpid()))
time.sleep(600)
"""


def words_for(launcher, script, folder, *more):
    options = ["--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", *more]
    return [sys.executable, "-W", "ignore", *launcher, *options, str(script), str(folder)]


def run_failing(launcher, folder):
    folder.mkdir()
    script = folder / "train.py"
    script.write_text(FAILING)
    logs = folder / "logs"
    options = ["--max-restarts=1", f"--log-dir={logs}", "--redirects=3", "--monitor-interval=0.1"]
    ended = subprocess.run(
        words_for(launcher, script, folder, *options),
        capture_output=True,
        text=True,
        timeout=240,
        env=environment(OWN="passed on"),
    )
    seen = {path.name: json.loads(path.read_text()) for path in sorted(folder.glob("seen.*"))}
    written = {
        "/".join(path.parts[-3:]): path.read_text().replace(str(folder), "FOLDER")
        for path in sorted(logs.rglob("*.log"))
    }
    report = ended.stderr.partition("FAILED")[2]
    return ended.returncode, seen, written, re.sub(r"\d+", "N", report.partition("====\n")[0])


def test_a_failing_job_restarts_logs_and_ends_as_under_torchrun(tmp_path):
    plain = run_failing(TORCHRUN, tmp_path / "plain")
    ours = run_failing(PRELOADED, tmp_path / "ours")
    assert ours[:2] == plain[:2]
    assert ours[0] == 1
    assert sorted(ours[1]) == ["seen.0.0", "seen.0.1", "seen.1.0", "seen.1.1"]
    assert ours[2] == plain[2]
    assert "rank 1 failed on purpose" in "".join(ours[2].values())
    assert "ValueError: rank N failed on purpose" in ours[3]  # from the error file
    assert tree_of(tmp_path) == []


def tree_of(folder):
    """The processes that know a folder by their command line or environment."""
    found = []
    for process in psutil.process_iter():
        try:
            known = [*process.cmdline(), *process.environ().values()]
        except psutil.Error:
            continue
        if process.pid != os.getpid() and any(str(folder) in word for word in known):
            found.append(process.pid)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_agent_leaves_what_torchrun_leaves(tmp_path, number):
    script = tmp_path / "train.py"
    script.write_text(WAITING)
    process = subprocess.Popen(
        words_for(PRELOADED, script, tmp_path),
        env=environment(OWN=str(tmp_path)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # A test that runs in the background of a shell ignores SIGINT, and so would the workers.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        files = [tmp_path / f"up.{rank}" for rank in range(2)]
        wait_until(lambda: all(file.exists() and file.read_text() for file in files))
        workers = [int(file.read_text()) for file in files]
        assert {psutil.Process(pid).ppid() for pid in workers} == {process.pid}
        os.kill(process.pid, number)
        assert process.wait(120) != 0
        if number == signal.SIGKILL:  # torchrun can't end its workers either
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: tree_of(tmp_path) == [])
    finally:
        for pid in tree_of(tmp_path):
            os.kill(pid, signal.SIGKILL)
        process.wait()


def wait_until(done):
    end = time.monotonic() + 120
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)
