"""One walk over a module gives what TorchRec's reservation and sharders read from torch."""

import copy

import pytest
import torch
from torch import nn
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import storage_reservations
from torchrec.distributed.planner.storage_reservations import HeuristicalStorageReservation
from torchrec.distributed.planner.types import Topology
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

import fastplan
from fastplan.torchrec.read import cluster
from fastplan.torchrec.read.modules import CachedSharder, ModuleSizes
from tests.parity.compare import quiet

META = torch.device("meta")


def bags(prefix="t", tables=3):
    return EmbeddingBagCollection(
        device=META,
        tables=[
            EmbeddingBagConfig(
                name=f"{prefix}{i}",
                embedding_dim=8,
                num_embeddings=100 + i,
                feature_names=[f"{prefix}f{i}"],
            )
            for i in range(tables)
        ],
    )


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = bags("a")
        self.dense = nn.Sequential(nn.Linear(7, 3, device=META), nn.BatchNorm1d(3, device=META))
        self.second = bags("b")
        self.register_parameter("absent", None)


class Overridden(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(5, device=META))

    def named_parameters(self, *args, **kwargs):
        return iter(())


def shared_parameter():
    model = Model()
    model.second.embedding_bags.b1.weight = model.first.embedding_bags.a1.weight
    return model


def shared_module():
    model = Model()
    model.again = model.first
    return model


def overriding_class():
    model = Model()
    model.own = Overridden()
    return model


def overriding_object():
    model = Model()
    vars(model.dense)["buffers"] = lambda recurse=True: iter(())
    return model


MODELS = [Model, shared_parameter, shared_module, overriding_class, overriding_object]


@pytest.mark.parametrize("build", MODELS)
@pytest.mark.parametrize("multiplier", [6.0, 1.1, 2])
def test_every_known_size_is_torchrecs(build, multiplier):
    model = build()
    sizes = ModuleSizes(model)
    known = 0
    for part in model.modules():
        size = sizes.size(part, multiplier)
        if size is not None:
            assert size == storage_reservations._get_module_size(part, multiplier)
            known += 1
    assert known >= 8


@pytest.mark.parametrize("build", [Model, shared_module])
def test_the_walk_knows_the_modules_that_a_reservation_asks_for(build):
    model = build()
    sizes = ModuleSizes(model)
    assert sizes.size(model.first, 6.0) is not None
    assert sizes.size(model.second, 6.0) is not None
    assert (sizes.size(model, 6.0) is None) == (build is shared_module)


@pytest.mark.parametrize("build", MODELS)
def test_the_reservation_is_torchrecs(build):
    model, sharder = build(), EmbeddingBagCollectionSharder()
    topology = Topology(world_size=3, compute_device="cuda", hbm_cap=10**9)
    with quiet():
        own = fastplan.EmbeddingShardingPlanner(topology=topology, batch_size=64, stats=[])
        reserved = cluster.reserve(own, model, [sharder], [CachedSharder(sharder)])
        reservation = HeuristicalStorageReservation(percentage=0.15)
        expected = reservation.reserve(copy.deepcopy(topology), 64, model, [sharder], None)
    assert [d.storage for d in reserved.devices] == [d.storage for d in expected.devices]
    assert own._storage_reservation._dense_storage == reservation._dense_storage
    assert own._storage_reservation._kjt_storage == reservation._kjt_storage


def test_replaced_sizes_are_used(monkeypatch):
    model, sharder = Model(), EmbeddingBagCollectionSharder()
    monkeypatch.setattr(storage_reservations, "_get_module_size", lambda module, multiplier: 1000)
    topology = Topology(world_size=2, compute_device="cuda", hbm_cap=10**9)
    with quiet():
        own = fastplan.EmbeddingShardingPlanner(topology=topology, batch_size=64, stats=[])
        cluster.reserve(own, model, [sharder], [CachedSharder(sharder)])
    assert own._storage_reservation._dense_storage.hbm == 1000 - 2 * 1000


def sequences():
    tables = [
        EmbeddingConfig(name=f"s{i}", embedding_dim=8, num_embeddings=100, feature_names=[f"sf{i}"])
        for i in range(3)
    ]
    return EmbeddingCollection(device=META, tables=tables)


def with_a_shared_weight():
    module = bags()
    module.embedding_bags.t2.weight = module.embedding_bags.t0.weight
    return module


def with_a_second_parameter():
    module = bags()
    module.embedding_bags.t1.register_parameter("scale", nn.Parameter(torch.empty(1, device=META)))
    return module


def with_an_inner_module():
    module = bags()
    module.embedding_bags.t1.add_module("inner", nn.Linear(2, 2, device=META))
    return module


def with_an_empty_place():
    module = bags()
    module.embedding_bags.add_module("none", None)
    return module


def with_another_kind():
    module = bags()
    module.embedding_bags.add_module("odd", Overridden())
    return module


@pytest.mark.parametrize(
    ("build", "plain"),
    [
        (bags, True),
        (sequences, True),
        (with_a_shared_weight, False),
        (with_a_second_parameter, False),
        (with_an_inner_module, False),
        (with_another_kind, False),
        (with_an_empty_place, False),
    ],
)
def test_the_tables_of_a_module_are_its_sharders(build, plain):
    module = build()
    sharder = EmbeddingCollectionSharder() if plain and build is sequences else None
    sharder = sharder or EmbeddingBagCollectionSharder()
    cached = CachedSharder(sharder)
    expected = sharder.shardable_parameters(module)
    found = cached.shardable_parameters(module)
    assert list(found) == list(expected)
    assert all(found[name] is expected[name] for name in expected)
    assert cached.is_plain(module) == plain


class Renaming(EmbeddingBagCollectionSharder):
    def shardable_parameters(self, module):
        return {f"my_{name}": p for name, p in super().shardable_parameters(module).items()}


def test_a_sharder_with_its_own_rule_is_asked():
    module = bags()
    assert next(iter(CachedSharder(Renaming()).shardable_parameters(module))) == "my_t0"
    sharder = EmbeddingBagCollectionSharder()
    sharder.shardable_parameters = lambda module: {}
    assert CachedSharder(sharder).shardable_parameters(module) == {}
