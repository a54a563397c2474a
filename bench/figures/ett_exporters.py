"""What exporters cost a job."""

from typing import Any


def cost(result: dict[str, Any]) -> str:
    """The cost of a step with and without exporters, and of an export."""
    plain, exporting = result["costs"].values()
    export = result["export_ms"]
    return (
        f"A step costs {exporting['median'] / 1000:.2f} us with all three "
        f"({exporting['least'] / 1000:.2f} to {exporting['most'] / 1000:.2f}) and "
        f"{plain['median'] / 1000:.2f} us without "
        f"({plain['least'] / 1000:.2f} to {plain['most'] / 1000:.2f}),\n"
        f"n = {result['repetitions']}. An export to all three takes {export['median']:.0f} ms of "
        f"CPU in its own thread ({export['least']:.0f} to {export['most']:.0f}), for a\n"
        f"recording of 4,000 lines and a collector that does not answer."
    )
