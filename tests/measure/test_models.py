"""Modules that are built from specs."""

import pytest
import torch
from torchrec import EmbeddingBagCollection, EmbeddingCollection, JaggedTensor, KeyedTensor

from fastplan.measure.settings import MeasureError
from fastplan.measure.step import build, dense_optimizers, tensors
from tests.measure.samples import several_modules, spec


def test_modules_are_where_the_spec_has_them():
    module = build(several_modules(2), None).module
    found = {
        path: part for path, part in module.named_modules() if "Collection" in repr(type(part))
    }
    assert {path: type(part) for path, part in found.items()} == {
        "sparse.ebc": EmbeddingBagCollection,
        "weighted": EmbeddingBagCollection,
        "sequence.ec": EmbeddingCollection,
    }
    assert found["weighted"].is_weighted()
    assert not found["sparse.ebc"].is_weighted()


def test_tables_are_as_the_spec_has_them():
    module = build(several_modules(2), None).module
    (first, *_), (weighted, _) = (
        module.get_submodule(path).embedding_bag_configs() for path in ("sparse.ebc", "weighted")
    )
    assert (first.name, first.num_embeddings, first.embedding_dim) == ("t0", 60_000, 64)
    assert weighted.feature_names == ["t0:0", "t0:1"]
    weight = module.get_submodule("weighted").embedding_bags["t0"].weight
    assert weight.dtype == torch.float16
    assert weight.device.type == "meta"
    (optimizer,) = weight._optimizer_classes
    assert optimizer.__name__ == "SGD"


def test_a_module_may_be_the_root():
    content = {"name": "t", "rows": 10, "dim": 8, "module": ""}
    given = spec(modules={"": {}}, tables=[content])
    assert isinstance(build(given, None).module, EmbeddingBagCollection)


def test_real_models_are_taken_without_their_dense_parts():
    from fastplan.torchrec.models import export_model

    target = "tests.measure.real_models:build"
    built = build(export_model(target, world_size=2), target)
    assert isinstance(built.module.get_submodule("sparse.bags"), EmbeddingBagCollection)
    assert not hasattr(built.module, "dense")


def test_copies_get_the_optimizer_of_their_table():
    given = several_modules(2)
    parameters = {
        f"{table.module}.embedding_bags.{table.name}.weight": torch.nn.Parameter(torch.ones(2, 2))
        for table in given.tables
    }
    copies = [("sparse.ebc", "t0"), ("sparse.ebc", "t1"), ("weighted", "t0")]
    found = dense_optimizers(given, copies, parameters)
    assert sorted(type(each).__name__ for each in found) == ["RowWiseAdagrad", "SGD"]
    assert sum(len(group["params"]) for each in found for group in each.param_groups) == 3
    with pytest.raises(MeasureError, match="t3"):
        dense_optimizers(given, [("sparse.ebc", "t3")], {})


def test_all_tensors_of_an_output_are_found():
    leaf = torch.ones(2, 3, requires_grad=True)
    values = leaf * 2
    keyed = KeyedTensor(keys=["a"], length_per_key=[3], values=values)
    jagged = {"a": JaggedTensor(values=values, lengths=torch.tensor([1, 1]))}
    for output in (values, keyed, jagged, (keyed, None), [jagged]):
        (found,) = tensors(output)
        assert found is values
    assert tensors(torch.ones(2)) == []
