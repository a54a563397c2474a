"""Drawn models for the stopwatch, in which the network or the lookups take most of a step.

The seeds are fixed: TUNING for trials, EVALUATION for the figures. Nothing was chosen with the
times of the EVALUATION models in sight.
"""

import random

from fastplan.files.document import document_of
from fastplan.spec.model import ModelSpec
from fastplan.spec.read import spec_of

TUNING = tuple(range(100, 106))
EVALUATION = tuple(range(1000, 1012))
HOSTS, RANKS_PER_HOST = 2, 2
# Rows are drawn with equal weight for each order of magnitude, as in most recommenders: a table of
# countries, a table of users.
ROWS = (10, 200_000)
# By style: the share of tables with long bags, the pooling factors of those and of the others, and
# dimensions. They decide whether lookups, ids or outputs take most of the time.
STYLES = {
    "histories": (0.4, (20, 200), (1, 5), (32, 64, 128)),
    "lookups": (1.0, (20, 200), (1, 1), (16, 32, 64)),
    "outputs": (0.1, (20, 50), (1, 3), (64, 128, 256)),
}
BATCHES = (256, 512)


def drawn_model(seed: int) -> ModelSpec:
    """Returns the model of a seed: 6 to 14 tables of one style, for 2 hosts of 2 CPU ranks."""
    draw = random.Random(f"stopwatch {seed}")
    style = draw.choice(sorted(STYLES))
    share, long, short, dims = STYLES[style]
    tables = [
        {
            "name": f"t{number}",
            "rows": _log_uniform(draw, *ROWS),
            "dim": draw.choice(dims),
            "pooling": _log_uniform(draw, *(long if draw.random() < share else short)),
            "optimizer": "rowwise_adagrad",
        }
        for number in range(draw.randint(8, 16))
    ]
    content = {
        "model": f"{style}-{seed}",
        "batch_size": draw.choice(BATCHES),
        "modules": {"sparse": {}},
        "tables": tables,
        "topology": {
            "sku": "torchrec-cpu",
            "world_size": HOSTS * RANKS_PER_HOST,
            "local_world_size": RANKS_PER_HOST,
        },
    }
    return spec_of(document_of(content, f"{seed}.json"))


def _log_uniform(draw: random.Random, low: int, high: int) -> int:
    return round(low * (high / low) ** draw.random())
