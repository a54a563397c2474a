"""Sharded modules that are built again for another plan, beside those that train."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed._shard.sharded_tensor import ShardedTensor, TensorProperties
from torch.nn.parallel import DistributedDataParallel
from torchrec.distributed.embedding import ShardedEmbeddingCollection
from torchrec.distributed.embeddingbag import ShardedEmbeddingBagCollection
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.types import EmbeddingModuleShardingPlan, ParameterSharding
from torchrec.distributed.utils import add_params_from_parameter_sharding
from torchrec.modules.embedding_configs import data_type_to_dtype
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from fastplan.torchrec.table_state import DATA_PARALLEL

# The modules that can be built again, and what they are without shards.
UNSHARDED: dict[type, type] = {
    ShardedEmbeddingBagCollection: EmbeddingBagCollection,
    ShardedEmbeddingCollection: EmbeddingCollection,
}
# Parts of a module that belong to the object and not to its plan.
_KEPT = ("training", "_optim")
_STATE_HOOKS = (
    *("_state_dict_hooks", "_state_dict_pre_hooks"),
    *("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"),
)


class _UnsyncedDDP(DistributedDataParallel):
    """DDP that sends nothing when it is built: its weights are uninitialised until they arrive."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, init_sync=False, **more)


def build_again(
    job: DistributedModelParallel, path: str, shardings: EmbeddingModuleShardingPlan
) -> Any:
    """Returns the sharded module at a path, built for other shardings. The job is not changed.

    Its weights and states are uninitialised. No rank waits for another one, so that a rank that
    fails leaves nobody waiting. Random number generators stay as they are.

    Args:
        job: the sharded model.
        path: the path of one of its sharded modules, whose type is in UNSHARDED.
        shardings: the new sharding of each table of the module.
    """
    old: Any = job.module.get_submodule(path)
    devices = [job.device] if job.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), _alone(old, shardings):
        bare = _unsharded(old)
        sharder = job._sharder_map[type(bare)]
        new = sharder.shard(bare, copy.deepcopy(dict(shardings)), job._env, job.device, path)
    new.train(old.training)
    return new


@contextmanager
def _alone(module: Any, shardings: Mapping[str, ParameterSharding]) -> Iterator[None]:
    """Lets modules be built without messages to other ranks, and without random weights.

    TorchRec sends the weights of data-parallel tables from rank 0 when it resets them, and asks
    all ranks for the shards of an EmbeddingCollection, which the plan has.
    """
    kind: Any = type(module)
    source: Any = sys.modules[kind.__module__]
    reset, gather = kind.reset_parameters, ShardedTensor._init_from_local_shards
    source.DistributedDataParallel, kind.reset_parameters = _UnsyncedDDP, lambda self: None
    ShardedTensor._init_from_local_shards = _from_plan(module, shardings)
    try:
        yield
    finally:
        source.DistributedDataParallel = DistributedDataParallel
        kind.reset_parameters, ShardedTensor._init_from_local_shards = reset, gather


def _from_plan(module: Any, shardings: Mapping[str, ParameterSharding]) -> Any:
    """Returns a stand-in for a method that asks all ranks for the shards of the next table."""
    names = iter([name for name, own in shardings.items() if own.sharding_type != DATA_PARALLEL])

    def make(shards: list[Any], *size: Any, process_group: Any) -> ShardedTensor:
        name = next(names)
        spec: Any = shardings[name].sharding_spec
        dtype = data_type_to_dtype(module._table_name_to_config[name].data_type)
        metadata = spec.build_metadata(
            tensor_sizes=torch.Size(*size), tensor_properties=TensorProperties(dtype=dtype)
        )
        return ShardedTensor._init_from_local_shards_and_global_metadata(
            local_shards=shards, sharded_tensor_metadata=metadata, process_group=process_group
        )

    return make


def _unsharded(old: Any) -> Any:
    """Returns the module as it was before it was sharded, without memory for its tables."""
    kind = UNSHARDED[type(old)]
    device = torch.device("meta")
    if kind is EmbeddingBagCollection:
        bare = kind(tables=old._embedding_bag_configs, is_weighted=old._is_weighted, device=device)
    else:
        bare = kind(
            tables=old._embedding_configs,
            device=device,
            need_indices=old._need_indices,
            use_gather_select=old._use_gather_select,
            use_gather_select_per_sharding=old._use_gather_select_per_sharding,
        )
    if getattr(old, "_skip_data_parallel_grad_sync", False):
        from torchrec.modules.embedding_modules import mark_data_parallel_skip_grad_sync

        mark_data_parallel_skip_grad_sync(bare)
    options = _fused_options(old)
    for name, parameter in bare.named_parameters():
        parameter._optimizer_classes = [None]
        parameter._optimizer_kwargs = [dict(options[name.split(".")[-2]])]
    return bare


def _fused_options(old: Any) -> Mapping[str, dict[str, Any]]:
    """Returns, by table, the options of fused kernels without those that the plan has set."""
    shardings = getattr(old, "_embedding_shardings", None)
    if shardings is None:
        shardings = old._sharding_type_to_sharding.values()
    found: dict[str, dict[str, Any]] = {}
    for sharding in shardings:
        for groups in sharding._grouped_embedding_configs_per_rank:
            for table in (table for group in groups for table in group.embedding_tables):
                of_plan = _plan_options(old.module_sharding_plan[table.name])
                options = table.fused_params or {}
                found[table.name] = {k: v for k, v in options.items() if k not in of_plan}
    return found


def _plan_options(sharding: ParameterSharding) -> dict[str, Any]:
    found: dict[str, Any] = add_params_from_parameter_sharding({}, sharding)
    return found


class Exchange:
    """Gives a module of the job what another one is made of, and can undo it.

    The object stays, and with it the user's hooks, overridden methods and whatever refers to the
    module or to its optimizer: schedulers, train pipelines, data-parallel wrappers.
    """

    def __init__(self, old: Any, new: Any) -> None:
        self._old, self._new = old, new
        self._hooks: dict[str, dict[int, Any]] = {}

    def do(self) -> None:
        """Exchanges the contents of the two modules."""
        self._hooks = {name: dict(vars(self._old)[name]) for name in _STATE_HOOKS}
        _exchange(self._old, self._new)
        for name in _STATE_HOOKS:
            hooks = vars(self._old)[name]
            for number in [n for n, hook in hooks.items() if _is_torchrecs(hook, self._old)]:
                del hooks[number]
        with _alone(self._old, self._old.module_sharding_plan):
            # Registers TorchRec's hooks again, which know the kernel of each table.
            self._old._initialize_torch_state()

    def undo(self) -> None:
        """Exchanges them back, also after a `do` that has failed."""
        if not self._hooks:
            return
        _exchange(self._old, self._new)
        for name, hooks in self._hooks.items():
            vars(self._old)[name].clear()
            vars(self._old)[name].update(hooks)
        self._hooks = {}

    def forget(self) -> None:
        """Frees what the module was made of before."""
        vars(self._new).clear()


def _exchange(old: Any, new: Any) -> None:
    mine, other = vars(old), vars(new)
    names = [name for name in other if name in mine and "hook" not in name and name not in _KEPT]
    for name in names:
        mine[name], other[name] = other[name], mine[name]
    old._optim._optims, new._optim._optims = new._optim._optims, old._optim._optims


def _is_torchrecs(hook: Any, module: Any) -> bool:
    return bool(getattr(hook, "hook", hook).__module__ == type(module).__module__)
