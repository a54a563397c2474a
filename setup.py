"""Builds the native core, fastplan.engine._native, from cpp/.

Switches, read from the environment:
  FASTPLAN_DEBUG=1      no optimisation, debug symbols, assertions on
  FASTPLAN_SANITIZE=1   address and undefined-behaviour sanitizers
  FASTPLAN_JOBS=n       compile n sources at a time (default 2)
"""

import os
import sys
from glob import glob

from pybind11.setup_helpers import ParallelCompile, Pybind11Extension
from setuptools import setup
from setuptools.command.build_ext import build_ext

SOURCES = sorted(glob("cpp/*/*.cpp"))
HEADERS = sorted(glob("cpp/*/*.h"))

# The plan must match TorchRec's to the last bit: a fused multiply-add or a reordered sum
# would change it, so neither contraction, nor fast-math, nor march=native.
FLAGS = ["-fvisibility=hidden", "-ffp-contract=off", "-Wall", "-Wextra", "-pthread"]
# Beside each object the compiler lists the headers that went into it.
FLAGS += ["-MMD"]
# Where the linker puts a function must not decide how fast it is: the knapsack of the packing bound
# took a third longer at an unlucky address.
ALIGNMENT = ["-falign-functions=64", "-falign-loops=32"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer"]
LINK_FLAGS = ["-pthread"]


def enabled(switch: str) -> bool:
    return os.environ.get(switch, "0") not in ("", "0")


if enabled("FASTPLAN_SANITIZE"):
    variant, link_flags = "sanitize", [*LINK_FLAGS, *SANITIZERS]
    # -fno-wrapv: Python's own build flags make signed overflow defined, which would hide it.
    flags = [*FLAGS, *SANITIZERS, "-fno-sanitize-recover=all", "-fno-wrapv"]
    flags += ["-g1", "-O1", "-UNDEBUG"]
elif enabled("FASTPLAN_DEBUG"):
    variant, link_flags = "debug", LINK_FLAGS
    flags = [*FLAGS, "-g", "-O0", "-UNDEBUG"]
else:
    variant, link_flags = "release", LINK_FLAGS
    flags = [*FLAGS, *ALIGNMENT, "-O2", "-DNDEBUG"]


class BuildExt(build_ext):
    """Keeps objects per variant and interpreter, so that only what changed is compiled."""

    def finalize_options(self) -> None:
        super().finalize_options()
        tag = sys.implementation.cache_tag
        self.build_temp = os.path.join("build", f"objects-{variant}-{tag}")


def included(target: str) -> list[str]:
    """Returns the headers that went into an object; all of them if the list is missing."""
    try:
        with open(os.path.splitext(target)[0] + ".d") as listed:
            names = listed.read().replace("\\\n", " ").split()
    except OSError:
        return HEADERS
    return [name for name in names if name.startswith("cpp/")]


def outdated(target: str, source: str) -> bool:
    inputs = [source, "setup.py", *included(target)]
    if not all(map(os.path.exists, [target, *inputs])):
        return True
    return os.path.getmtime(target) < max(map(os.path.getmtime, inputs))


native = Pybind11Extension(
    "fastplan.engine._native",
    SOURCES,
    include_dirs=["cpp"],
    depends=[*HEADERS, "setup.py"],
    cxx_std=20,
    extra_compile_args=flags,
    extra_link_args=link_flags,
)

with ParallelCompile("FASTPLAN_JOBS", default=2, needs_recompile=outdated):
    setup(ext_modules=[native], cmdclass={"build_ext": BuildExt})
