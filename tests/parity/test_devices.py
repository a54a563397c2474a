"""Devices that TorchRec does not know by name."""

from typing import Any

import pytest
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.estimator.estimator import EmbeddingPerfEstimator
from torchrec.distributed.planner.estimator.types import HardwarePerfConfig
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.types import Topology

from .small import assert_agree, assert_engine, small, small_topology
from .subject import ESTIMATES_NATIVELY


class XpuConfig(HardwarePerfConfig):
    """Says how fast the unknown device is, which is all that TorchRec lacks."""

    name = "xpu"
    device_bw = 1.0e8


def xpu() -> Topology:
    topology = small_topology()
    topology._compute_device = "xpu"
    return topology


def with_bandwidth() -> dict[str, Any]:
    topology = xpu()
    estimators = [
        EmbeddingPerfEstimator(topology=topology, config=XpuConfig()),
        EmbeddingStorageEstimator(topology=topology),
    ]
    enumerator = EmbeddingEnumerator(topology=topology, batch_size=512, estimator=estimators)
    return {"topology": topology, "enumerator": enumerator}


def test_an_unknown_device_with_a_known_bandwidth_is_planned_natively() -> None:
    record, planner = assert_agree(lambda: small(**with_bandwidth()))
    if not ESTIMATES_NATIVELY and record["error"] is not None:
        pytest.skip("TorchRec itself refuses the device")
    assert record["error"] is None
    assert_engine(planner, "native")


def test_an_unknown_device_without_one_is_refused_in_torchrecs_words() -> None:
    record, _ = assert_agree(lambda: small(topology=xpu()))
    assert "kernel" in record["error"]["text"]
