"""What holds over many random instances."""

from typing import Any


def counts(result: dict[str, Any]) -> str:
    drawn, small, full = (result["counts"][name] for name in ("random", "small", "full"))
    none = drawn["planned by fastplan"] - drawn["planned by TorchRec"]
    return (
        f"Over {drawn['instances']:,} random instances, {drawn['with uneven memory']} with uneven "
        f"memory, no plan was worse than TorchRec's,\n{drawn[BETTER]} were better, and {none} were "
        f"found where TorchRec has none. Over {small['instances']} small ones solved exactly,\n"
        f"bound, optimum and rating were in order and {small['optimal']} of {small['feasible']} "
        f"plans optimal. Of {full[HARD]} nearly full ones that are\nfeasible though not for "
        f"TorchRec, {full[FOUND]} were planned."
    )


BETTER = "better than TorchRec's"
HARD, FOUND = "feasible, but not for TorchRec", "of these planned by fastplan"
