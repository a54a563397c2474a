"""Planners that are used again while their inputs change agree with TorchRec's, plan by plan."""

from collections import Counter

import pytest

from .reuse import Sequence
from .subject import SELF_CHECK

SEQUENCES = [Sequence(seed) for seed in range(100)]


MIXED = [Sequence(seed, is_mixed=True) for seed in range(60)]


@pytest.mark.parametrize("sequence", [*SEQUENCES, *MIXED], ids=str)
def test_every_plan_of_a_sequence_equals_torchrec(sequence: Sequence) -> None:
    assert sequence.difference(Counter()) is None


@pytest.mark.skipif(SELF_CHECK, reason="TorchRec's planner has no engines")
def test_the_sequences_visit_every_way_to_plan() -> None:
    counts: Counter[str] = Counter()
    for sequence in SEQUENCES[:40]:
        sequence.difference(counts)
    assert counts["plans"] > 100
    assert min(counts["engine native"], counts["engine mixed"], counts["errors"]) > 20
