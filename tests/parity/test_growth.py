"""Work that grows with the model and no faster: counted, not timed. Results equal TorchRec's."""

from typing import Any

import pytest
from torch import nn
from torchrec.distributed.planner import enumerators
from torchrec.modules.embedding_tower import EmbeddingTower, EmbeddingTowerCollection

from fastplan.torchrec.read.holder import _towers_of_tables

from .models import META, bag_collection, make_sharder, sequence_collection
from .small import SELF_CHECK, assert_agree, assert_engine, small, small_tables, small_topology


def tower(*tables: Any, collection: Any = bag_collection) -> EmbeddingTower:
    return EmbeddingTower(collection(list(tables)), nn.Linear(4, 4, device=META))


def towers(count: int) -> EmbeddingTowerCollection:
    """Towers of two tables, the last of which both have the same name as a table before."""
    tables = small_tables(2 * count)
    pairs = [tower(*tables[i : i + 2]) for i in range(0, 2 * count, 2)]
    return EmbeddingTowerCollection([*pairs, tower(tables[0], collection=sequence_collection)])


def test_each_table_is_in_the_tower_that_torchrec_finds() -> None:
    module = towers(5)
    found = _towers_of_tables(module)
    assert len(found) == 10
    for name, index in found.items():
        assert enumerators._get_tower_index(name, module) == index


@pytest.mark.skipif(SELF_CHECK, reason="counts calls of fastplan")
def test_towers_are_searched_once_for_all_of_their_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    stock = enumerators._get_tower_index
    monkeypatch.setattr(
        "fastplan.torchrec.read.holder._towers_of_tables",
        lambda module: asked.append("all") or _towers_of_tables(module),
    )
    monkeypatch.setattr(
        "fastplan.torchrec.read.holder.enumerators",
        type("Enumerators", (), {"_get_tower_index": lambda *a: asked.append("one") or stock(*a)}),
    )
    tables = small_tables(12)
    module = EmbeddingTowerCollection([tower(*tables[i : i + 2]) for i in range(0, 12, 2)])

    def build() -> Any:
        built = small(module, topology=small_topology(4, local_world_size=2))
        built.sharders[:] = [make_sharder("tower_collection", None, None)]
        return built

    _, planner = assert_agree(build)
    assert_engine(planner, "native")
    assert asked == ["all"]
