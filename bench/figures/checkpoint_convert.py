"""What converting a large checkpoint takes."""

from typing import Any

from bench.checkpoint_convert import RANKS


def memory(result: dict[str, Any]) -> str:
    return (
        f"Converting {result['written'] / 1e9:.0f} GB, in {result['tables']} chunks of "
        f"{result['written'] / 1e9 / result['tables']:.2g} GB, to {RANKS} row-wise shards per "
        f"table took {result['peak_bytes'] / 1e6:.0f} MB of memory, of which imports took "
        f"{result['imported_bytes'] / 1e6:.0f} MB, and {result['cpu_seconds']:.0f} s of CPU time "
        "(n = 1)."
    )
