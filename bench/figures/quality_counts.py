"""Counts over many random instances."""

from typing import Any


def counts(result: dict[str, Any]) -> str:
    drawn, small, full = (result["counts"][name] for name in ("random", "small", "full"))
    none = drawn["planned by fastplan"] - drawn["planned by TorchRec"]
    return (
        f"On {drawn['instances']:,} random instances, {drawn['with uneven memory']} of them with "
        f"uneven memory, no plan was worse than TorchRec's,\n{drawn[BETTER]} were better, and "
        f"{none} were found where TorchRec found none. {small['instances']} small instances were\n"
        f"solved exactly: bound, optimum and rating were always in this order, and "
        f"{small['optimal']} of {small['feasible']} plans were\noptimal. fastplan planned "
        f"{full[FOUND]} of {full[HARD]} nearly full instances that are feasible but that TorchRec\n"
        f"can't plan."
    )


BETTER = "better than TorchRec's"
HARD, FOUND = "feasible, but not for TorchRec", "of these planned by fastplan"
