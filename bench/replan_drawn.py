"""Random models, clusters and changes: a check of re-planning besides the chosen cases."""

import random
from dataclasses import dataclass

from bench.models import CRITEO_DIM, SYNTHETIC_DIMS
from bench.replan_models import CHANGES, HOST_LOST, Change, State, TableSize

_CLUSTERS = ((2, 4), (2, 8), (3, 4), (4, 4), (4, 8))  # hosts, ranks of each


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A state and the change to apply."""

    name: str
    state: State
    change_name: str
    change: Change


def drawn(number: int) -> Drawn:
    """The case with this number. Every third loses a host; every second has tables of one width."""
    rng = random.Random(f"re-planning {number}")
    hosts, ranks_per_host = rng.choice(_CLUSTERS)
    dims = (CRITEO_DIM,) if number % 2 else SYNTHETIC_DIMS
    largest = rng.uniform(6.5, 7.6)
    tables = tuple(
        TableSize(
            name=f"table_{i:03}",
            rows=int(10 ** rng.uniform(1, largest)),
            dim=rng.choice(dims),
            pooling=round(10 ** rng.uniform(0, 1.7), 1),
        )
        for i in range(rng.randint(20, 120))
    )
    state = State(
        tables=tables,
        hosts=hosts,
        ranks_per_host=ranks_per_host,
        batch_size=rng.choice((512, 2048, 4096)),
    )
    changes = HOST_LOST if number % 3 == 0 else sorted(CHANGES.keys() - HOST_LOST)
    change = rng.choice(changes)
    name = f"drawn {number}: {len(tables)} x {state.ranks}"
    return Drawn(name=name, state=state, change_name=change, change=CHANGES[change])
