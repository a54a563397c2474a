"""Mutants of what a restart depends on, and of the record that measures it."""

from __future__ import annotations

from tests.mutant import Mutant

RESTART = (
    Mutant(
        name="lost-workers-are-not-known",
        file="fastplan/launch/agent.py",
        old="                self.workers.append(pid)\n",
        new="",
        tests=("tests/launch/test_workers.py",),
    ),
    Mutant(
        name="signals-interrupt-a-fork",
        file="fastplan/launch/agent.py",
        old="            with _delayed_signals():",
        new="            with suppress():",
        tests=("tests/launch/test_workers.py",),
    ),
    Mutant(
        name="cause-is-who-noticed",
        file="fastplan/ett/causes.py",
        old="own = [failure for failure in failures if not is_lost_peer(failure[2])]",
        new="own = failures",
        tests=("tests/ett/test_causes.py",),
    ),
    Mutant(
        name="interval-without-recovery",
        file="fastplan/ett/interval.py",
        old="return mean * math.exp(lost) * math.expm1(segment)",
        new="return mean * math.expm1(segment)",
        tests=("tests/ett/test_interval.py",),
    ),
    Mutant(
        name="interval-by-young",
        file="fastplan/ett/interval.py",
        old="return max(self._best_without_upload(), self.upload)",
        new="return max(self.young, self.upload)",
        tests=("tests/ett/test_interval.py",),
    ),
    Mutant(
        name="agent-keeps-adopting",
        file="fastplan/launch/agent.py",
        old="            _set_subreaper(False)",
        new="            pass",
        tests=("tests/launch/test_workers.py",),
    ),
    Mutant(
        name="worker-undoes-what-imports-set",
        file="fastplan/launch/server.py",
        old="        if _ENVIRONMENT.get(name) != value:",
        new="        if True:",
        tests=("tests/launch/test_workers.py",),
    ),
    Mutant(
        name="server-forks-with-threads",
        file="fastplan/launch/server.py",
        old="    if threads:",
        new="    if len(threads) > 1:",
        tests=("tests/launch/test_workers.py",),
    ),
    Mutant(
        name="traceback-with-the-servers-frames",
        file="fastplan/launch/server.py",
        old="        error.__traceback__ = _own_frames(error.__traceback__)\n",
        new="",
        tests=("tests/launch/test_workers.py",),
    ),
    Mutant(
        name="summed-phases-count-inner-ones-twice",
        file="fastplan/ett/reading.py",
        old="        own -= inner_end - inner_begin",
        new="        pass",
        tests=("tests/ett/test_reading.py",),
    ),
)
