"""Builds a wheel for each interpreter and tests it in an empty environment.

    python -m tests.wheels python3.10 python3.12

The wheels are built without a network from the files of the source distribution. They get the
oldest manylinux tag that they can run on, and go to `dist/`. The torch-free tests then run from a
folder in which the checkout can't be imported. An interpreter that is not installed is reported.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import tomllib

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
# What needs neither torch nor TorchRec.
TESTS = (
    *("tests/model", "tests/engine", "tests/files", "tests/spec", "tests/plans", "tests/planning"),
    *("tests/report", "tests/property", "tests/cli/test_plan.py", "tests/cli/test_main.py"),
)


def run(*command: object, cwd: Path = ROOT, **environment: str) -> str:
    """Runs a command and returns what it prints; shows that if the command fails."""
    found = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if found.returncode:
        sys.stderr.write(found.stdout)
        raise SystemExit(f"{' '.join(map(str, command))} ended with {found.returncode}")
    return found.stdout


def environment(interpreter: str, folder: Path, *packages: str) -> Path:
    """Makes a virtual environment with packages, and returns its interpreter."""
    run(interpreter, "-m", "venv", folder)
    python = folder / "bin" / "python"
    pip = (python, "-m", "pip", "-qq", "--disable-pip-version-check", "install")
    if packages:
        run(*pip, *packages)
    return python


def pinned(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


def source_distribution(work: Path) -> Path:
    """Builds the source distribution and returns its unpacked files."""
    run(sys.executable, "setup.py", "-q", "sdist", "--dist-dir", work)
    (archive,) = work.glob("*.tar.gz")
    shutil.copy(archive, DIST)
    with tarfile.open(archive) as packed:
        packed.extractall(work, filter="data")
    return work / archive.name.removesuffix(".tar.gz")


def build(interpreter: str, source: Path, work: Path) -> Path:
    """Builds the wheel of an interpreter without a network and returns the repaired wheel."""
    tools = [f"{name}=={version}" for name, version in pinned("wheels.txt").items()]
    tools = [tool for tool in tools if not tool.startswith("cibuildwheel")]
    python = environment(interpreter, work / "build", *tools)
    command = ("-m", "pip", "-qq", "wheel", "--no-index", "--no-build-isolation", "--no-deps")
    run(python, *command, "--wheel-dir", work / "plain", source)
    (plain,) = (work / "plain").glob("*.whl")
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    run(python, "-m", "auditwheel", "repair", "-w", work / "repaired", plain, PATH=path)
    (repaired,) = (work / "repaired").glob("*.whl")
    return Path(shutil.copy(repaired, DIST))


def test(interpreter: str, wheel: Path, work: Path) -> str:
    """Runs the torch-free tests with an installed wheel, and returns pytest's last line."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    tools = settings["tool"]["cibuildwheel"]["test-requires"]
    python = environment(interpreter, work / "empty", str(wheel), *tools)
    # The tests are copied without the package: they must import the wheel's.
    copy = work / "tests-only"
    shutil.copytree(ROOT / "tests", copy / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    where = run(python, "-c", "import fastplan; print(fastplan.__file__)", cwd=copy)
    assert Path(where.strip()).is_relative_to(work / "empty"), where
    jobs = os.environ.get("FASTPLAN_JOBS", "2")
    printed = run(python, "-m", "pytest", "-q", "-n", jobs, *TESTS, cwd=copy)
    return printed.strip().splitlines()[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("interpreters", nargs="+")
    asked = parser.parse_args().interpreters
    found = {name: path for name in asked if (path := located(name))}
    if not found:
        raise SystemExit(f"none of these interpreters works: {', '.join(asked)}")
    DIST.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        source = source_distribution(Path(folder))
        for number, interpreter in enumerate(found.values()):
            work = Path(folder, str(number))
            work.mkdir()
            started = time.perf_counter()
            wheel = build(interpreter, source, work)
            seconds, size = time.perf_counter() - started, wheel.stat().st_size / 1e6
            print(f"{wheel.name}: built in {seconds:.0f} s, {size:.1f} MB", flush=True)
            print(f"  tests: {test(interpreter, wheel, work)}", flush=True)
    for name in asked:
        if name not in found:
            print(f"left out: {name} is not installed")


def located(interpreter: str) -> str | None:
    """Returns the path of an installed interpreter, also one that pyenv has not selected."""
    names = [interpreter]
    if shutil.which("pyenv"):
        found = subprocess.run(["pyenv", "whence", interpreter], capture_output=True, text=True)
        for version in found.stdout.split():
            names.append(f"{run('pyenv', 'prefix', version).strip()}/bin/{interpreter}")
    return next(filter(works, names), None)


def works(interpreter: str) -> bool:
    """Whether an interpreter starts: a shim may exist without one."""
    if shutil.which(interpreter) is None:
        return False
    return subprocess.run([interpreter, "-c", ""], capture_output=True).returncode == 0


if __name__ == "__main__":
    main()
