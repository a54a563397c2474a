"""Breaks the code in one small way at a time, and checks that the tests notice.

    python -m tests.mutants                 all mutants
    python -m tests.mutants NAME...         some of them
    python -m tests.mutants --list          what there is

Everything happens in a copy of the tree. A mutant is killed when one of its tests fails, survives
when they all pass, and does not apply when its text or its tests are gone or the code does not
build. A survivor asks for a test, not for another mutant.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutant import Mutant
from tests.mutant_list import MUTANTS

ROOT = Path(__file__).parent.parent
_OBJECTS = "build/objects-release-*"  # with them, only what includes the change is compiled
# What pytest's exit codes mean here; any other says that the tests did not run.
_PASSED, _FAILED = 0, 1


class DoesNotApply(Exception):
    """Why a mutant can't be judged."""


def mutated(text: str, mutant: Mutant) -> str:
    """The text with the mutant in it. Raises DoesNotApply unless there is one place for it."""
    count = text.count(mutant.old)
    if count != 1:
        raise DoesNotApply(f"{mutant.file} has the old text {count} times")
    return text.replace(mutant.old, mutant.new)


def copy_tree(target: Path) -> None:
    """The working tree without what git ignores, but with the native core and its objects."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    files = [ROOT / name for name in listed.split("\0") if name]
    files += ROOT.glob("fastplan/engine/_native*.so")
    files += [file for folder in ROOT.glob(_OBJECTS) for file in folder.rglob("*.[od]")]
    for file in files:
        if file.exists():
            copy = target / file.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, copy)  # with its time, which says what has to be compiled


def run(tree: Path, *words: str) -> tuple[int, str]:
    """The exit code and the output of Python with these arguments in a tree."""
    path = os.pathsep.join(filter(None, (str(tree), os.environ.get("PYTHONPATH"))))
    # A mutant of the same second and size would be taken for the compiled original.
    environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


def build(tree: Path) -> None:
    code, output = run(tree, "setup.py", "--quiet", "build_ext", "--inplace")
    if code:
        raise DoesNotApply(f"the core does not build: {_last_line(output)}")


def notices(tree: Path, tests: Sequence[str]) -> bool:
    """Whether one of the tests fails. Raises DoesNotApply where they can't be run."""
    code, output = run(tree, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests)
    if code not in (_PASSED, _FAILED):
        raise DoesNotApply(f"the tests don't run: {_last_line(output)}")
    return code == _FAILED


def judge(base: Path, mutant: Mutant) -> str:
    """What becomes of a mutant in a copy of `base`."""
    with tempfile.TemporaryDirectory(prefix="fastplan-mutant-") as folder:
        tree = Path(folder, "tree")
        shutil.copytree(base, tree)
        file = tree / mutant.file
        try:
            file.write_text(mutated(file.read_text(), mutant))
            if mutant.native:
                build(tree)
            return "killed" if notices(tree, mutant.tests) else "survived"
        except (DoesNotApply, OSError) as why:
            return f"does not apply: {why}"


def _last_line(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1] if lines else "no output"


def _chosen(names: list[str]) -> list[Mutant]:
    known = {mutant.name: mutant for mutant in MUTANTS}
    for name in names:
        if name not in known:
            sys.exit(f"no mutant is called {name!r}; --list names them all")
    return [known[name] for name in names] or list(MUTANTS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="name the mutants and their files")
    arguments = parser.parse_args()
    mutants = _chosen(arguments.names)
    if arguments.list:
        for mutant in mutants:
            print(f"{mutant.name:<32} {mutant.file}")
        return 0
    with tempfile.TemporaryDirectory(prefix="fastplan-mutants-") as folder:
        base = Path(folder)
        copy_tree(base)
        if any(mutant.native for mutant in mutants):
            build(base)
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        print(f"{'(no mutant)':<32} ", end="", flush=True)
        if notices(base, tests):
            print("the tests fail already: mend that first")
            return 1
        print("the tests pass")
        counts = {"killed": 0, "survived": 0, "does not apply": 0}
        for mutant in mutants:
            print(f"{mutant.name:<32} ", end="", flush=True)
            began = time.monotonic()
            found = judge(base, mutant)
            counts[found.split(":")[0]] += 1
            print(f"{found} ({time.monotonic() - began:.0f} s)")
    missed = counts["does not apply"]
    print(
        f"{counts['killed']} killed, {counts['survived']} survived"
        + (f", {missed} did not apply" if missed else "")
    )
    return int(counts["killed"] < len(mutants))


if __name__ == "__main__":
    sys.exit(main())
