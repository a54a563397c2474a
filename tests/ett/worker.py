"""One rank of a real job under torchrun: rank 1 is killed once, and all of it starts again.

The second attempt has the dense part only, which is enough to restore and to go on.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable

from fastplan import ett

ett.install()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint import save  # noqa: E402

TABLES = 6
STEPS = 6
SAVED = 2
KILLED = 4


def sharded(kind: str) -> Callable[[], torch.Tensor]:
    """The sparse part, planned by TorchRec or by fastplan."""
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
    from torchrec.distributed.model_parallel import DistributedModelParallel
    from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology

    tables = [
        EmbeddingBagConfig(
            name=f"t{i}", embedding_dim=16, num_embeddings=100, feature_names=[f"f{i}"]
        )
        for i in range(TABLES)
    ]
    sparse = EmbeddingBagCollection(device=torch.device("meta"), tables=tables)
    if kind == "fastplan":
        import fastplan

        EmbeddingShardingPlanner = fastplan.EmbeddingShardingPlanner
    topology = Topology(world_size=dist.get_world_size(), compute_device="cpu")
    plan = EmbeddingShardingPlanner(topology=topology).collective_plan(sparse)
    parallel = DistributedModelParallel(sparse, plan=plan)
    batch = KeyedJaggedTensor(
        keys=[f"f{i}" for i in range(TABLES)],
        values=torch.arange(TABLES * 4),
        lengths=torch.ones(TABLES * 4, dtype=torch.int32),
    )
    return lambda: parallel(batch).wait().values()


def main(kind: str, folder: str) -> None:
    dist.init_process_group("gloo")
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if attempt == 0:
        # torchrun may end this rank before it has noticed that the other one is gone.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    features = sharded(kind) if attempt == 0 else lambda: torch.ones(4, TABLES * 16)
    dense = torch.nn.Linear(TABLES * 16, 1)
    optimizer = torch.optim.SGD(dense.parameters(), lr=0.1)
    double = twice = lambda x: 2 * x
    if attempt == 0:
        double = torch.compile(twice, backend="eager", dynamic=False)
    first = 0
    if attempt > 0:
        dcp.load(dense.state_dict(), checkpoint_id=f"{folder}/saved")
        first = SAVED + 1
    for number in range(first, STEPS):
        double(dense(features())).sum().backward()
        double(torch.ones(2 + number % 2))  # compiled twice
        optimizer.step()
        dist.barrier()
        ett.step(number)
        if number == SAVED and attempt == 0:
            save(dense.state_dict(), checkpoint_id=f"{folder}/saved")
        if number == KILLED and attempt == 0:
            if dist.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            dist.barrier()
    dcp.async_save(dense.state_dict(), checkpoint_id=f"{folder}/last").result()
    with ett.phase("publish"):
        pass
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
    # Ends Gloo's threads: one that released a tensor while Python ends would abort the process.
    gc.collect()
