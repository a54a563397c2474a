"""One rank of the job that bench/ett.py measures: a DLRM that trains, saves, is killed, restores.

The benchmark evaluates the job's own record: see `fastplan.ett`.
"""

from __future__ import annotations

from fastplan import ett

ett.install()

import os  # noqa: E402

# A restart must find compiled code only in a bundle, as on a new host.
os.environ["TORCHINDUCTOR_CACHE_DIR"] += f".{os.environ['TORCHELASTIC_RESTART_COUNT']}"

import argparse  # noqa: E402
import gc  # noqa: E402
import json  # noqa: E402
import logging  # noqa: E402
import signal  # noqa: E402
import warnings  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torchrec.distributed.model_parallel import DistributedModelParallel  # noqa: E402

import fastplan.bundle  # noqa: E402
from bench import ett_model  # noqa: E402
from fastplan.measure.processes import end_with_parent  # noqa: E402


class Job:
    """A rank's start, and its training until it ends or is killed."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        self.start: fastplan.bundle.Start | None = None
        if args.variant == "bundle":
            path = args.kept / "start.bundle"
            self.start = fastplan.bundle.start(path, trust=True, model="dlrm")
        dist.init_process_group("gloo")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        module: Any = ett_model.build(args.tables)
        bundled = None if self.start is None else self.start.cache
        self.planner = ett_model.planner(args.variant, self.world, args.kept, bundled, module)
        plan = self.planner.collective_plan(module, ett_model.sharders())
        torch.manual_seed(self.rank)
        self.model = DistributedModelParallel(module, plan=plan, sharders=ett_model.sharders())
        module.model.dense_arch.compile()
        module.model.over_arch.compile()

    def train(self) -> None:
        """Trains, and writes the exact losses of its steps to a file."""
        args = self.args
        dense = [p for _, p in self.model.named_parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(dense, lr=ett_model.RATE)
        saved = args.folder / "checkpoint"
        first = self._restore(saved)
        losses = (args.folder / f"losses.{self.attempt}.{self.rank}").open("w", buffering=1)
        for step in range(first, args.steps + 1):
            loss, _ = self.model(ett_model.batch(args.tables, step, self.rank))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.write(f"{step} {loss.item().hex()}\n")
            ett.step(step)
            if step == first:
                self._started()
            if step == args.save:
                dcp.save(self.model.state_dict(), checkpoint_id=saved)
            dies = step == args.kill and self.attempt < args.kills
            if dies and self.rank == self.world - 1:
                os.kill(os.getpid(), signal.SIGKILL)
        losses.close()

    def _restore(self, saved: Path) -> int:
        """Restores the model and returns the first step to train."""
        if not (saved / ".metadata").exists():
            return 1
        state = self.model.state_dict()
        dcp.load(state, checkpoint_id=saved)
        self.model.load_state_dict(state)
        return int(self.args.save) + 1

    def _started(self) -> None:
        """Saves what the next start can reuse, and reports what this start had to do."""
        from torch._dynamo.utils import counters

        start, run = self.start, getattr(self.planner, "last_run", None)
        report = {
            "searched": None if run is None else "search" in run.seconds,
            "hits": counters["inductor"]["fxgraph_cache_hit"],
            "misses": counters["inductor"]["fxgraph_cache_miss"],
            "taken": None if start is None else [start.plans, start.artifacts, start.kernels],
            "saved": None if start is None else start.save(),
            "notes": [] if start is None else start.notes,
        }
        (self.args.folder / f"start.{self.attempt}.{self.rank}").write_text(json.dumps(report))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--tables", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--save", type=int, required=True, help="the step after which to save")
    parser.add_argument("--kill", type=int, required=True, help="the step after which it dies")
    parser.add_argument("--kills", type=int, default=1, help="attempts in which it dies")
    parser.add_argument("--kept", type=Path, required=True, help="folder that starts share")
    parser.add_argument("--folder", type=Path, required=True, help="for checkpoint and losses")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    end_with_parent()
    Job(parser.parse_args()).train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # Ends Gloo's threads: one that released a tensor while Python ends would abort the process.
    gc.collect()
