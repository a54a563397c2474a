"""A model in another precision, against TorchRec's own of that precision."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
torchrec = pytest.importorskip("torchrec")

from torch.distributed.optim import (  # noqa: E402
    _apply_optimizer_in_backward as apply_optimizer,
)
from torchrec.modules.embedding_configs import DataType  # noqa: E402

from fastplan.planning.plan import plan  # noqa: E402
from fastplan.spec.lower import lower  # noqa: E402
from fastplan.spec.model import ModelSpec, TopologySpec  # noqa: E402
from fastplan.sweep.sweep import in_precision  # noqa: E402
from fastplan.torchrec.models import export_model  # noqa: E402
from tests.sweep.samples import hardware  # noqa: E402

OPTIMIZERS = {
    "none": None,
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
    "rowwise_adagrad": torchrec.optim.RowWiseAdagrad,
}


def build(data_type: DataType, optimizer: type | None) -> object:
    tables = [
        torchrec.EmbeddingBagConfig(
            name=f"t{i}",
            num_embeddings=10_000 * (i + 1),
            embedding_dim=64,
            feature_names=[f"f{i}"],
            data_type=data_type,
        )
        for i in range(4)
    ]
    module = torchrec.EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    if optimizer is not None:
        apply_optimizer(optimizer, module.parameters(), {"lr": 0.1})
    return module


def exported(
    monkeypatch: pytest.MonkeyPatch, data_type: DataType, optimizer: type | None
) -> ModelSpec:
    import tests.sweep.test_sweep_precision as here

    monkeypatch.setattr(here, "made", lambda: build(data_type, optimizer), raising=False)
    return export_model("tests.sweep.test_sweep_precision:made")


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_the_request_is_that_of_a_module_in_that_precision(
    monkeypatch: pytest.MonkeyPatch, optimizer: str, precision: str
) -> None:
    on = {"topology": TopologySpec(hardware=hardware(), world_size=16)}
    full = exported(monkeypatch, DataType.FP32, OPTIMIZERS[optimizer])
    real = exported(monkeypatch, DataType[precision.upper()], OPTIMIZERS[optimizer])
    ours = plan(lower(replace(in_precision(full, precision), **on)))
    theirs = plan(lower(replace(real, **on)))
    assert ours.job.request == theirs.job.request
    assert (ours.key, ours.rating) == (theirs.key, theirs.rating)
    assert ours.key != plan(lower(replace(full, **on))).key
