"""Runs a script that ends with its parent, as the processes of a lost host do.

torchrun starts its workers as sessions of their own, which outlive it when it is killed.
"""

import ctypes
import runpy
import signal
import sys

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
