"""The phases that fastplan knows, and what other tools call the time they take.

ml-goodput-measurement files lost time into its BadputType buckets; one-logger has spans. Names that
are not listed here are the user's own, and go into the bucket for those.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What a phase means for the others: of several ranks, the one with the least is waited for."""

    WORK = 0
    UNTOLD = 1  # before the first batch, and nothing was told about it
    WAIT = 2  # for other ranks: the time is theirs as long as one of them works
    TRAIN = 3
    LOST = 4
    OVER = 5  # after the last step, and nothing was told about it


@dataclass(frozen=True, slots=True)
class Name:
    """A phase's name to people, to ml-goodput-measurement and to one-logger."""

    title: str
    goodput: str
    span: str | None
    kind: Kind = Kind.WORK


# In the order of a job; the keys are what files hold and `ett.phase` takes.
NAMES = {
    "launch": Name("launch", "OTHER", None),
    "imports": Name("Python and imports", "PROGRAM_STARTUP", "application"),
    "process_group": Name(
        "process group", "TPU_INITIALIZATION", "distributed_code_initialization", Kind.WAIT
    ),
    "bundle": Name("start bundle", "TRAINING_PREP", "model_initialization"),
    "data_loader": Name("data loader", "TRAINING_PREP", "data_loader_initialization"),
    "model_build": Name("model build", "TRAINING_PREP", "model_initialization"),
    "plan": Name("plan", "TRAINING_PREP", "model_initialization"),
    "broadcast": Name("plan broadcast", "TRAINING_PREP", "model_initialization", Kind.WAIT),
    "dmp": Name("DMP, the rest of it", "TRAINING_PREP", "model_initialization"),
    "shard": Name("DMP shard", "TRAINING_PREP", "model_initialization"),
    "fused_optimizer": Name("DMP fused optimizer", "TRAINING_PREP", "optimizer_initialization"),
    "data_parallel": Name("DMP data parallel", "TRAINING_PREP", "model_initialization"),
    "optimizer": Name("optimizer", "TRAINING_PREP", "optimizer_initialization"),
    "restore": Name(
        "checkpoint restore", "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME", "checkpoint_load"
    ),
    "starting": Name("start, not told apart", "TRAINING_PREP", "application", Kind.UNTOLD),
    "compile": Name("compile", "PROGRAM_STARTUP", "training_loop"),
    "recompile": Name("recompile", "PROGRAM_STARTUP", "training_loop"),
    "training": Name("training", "TOTAL", "training_loop", Kind.TRAIN),
    "bundle_save": Name("start bundle save", "OTHER", "training_loop"),
    "data_wait": Name("waiting for data", "DATA_LOADING_SYNC", "data_loading"),
    "checkpoint_save": Name(
        "checkpoint save", "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME", "checkpoint_save_sync"
    ),
    "checkpoint_stage": Name(
        "checkpoint staging", "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME", "checkpoint_save_async"
    ),
    "checkpoint_upload": Name(
        "checkpoint upload", "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME", "checkpoint_save_finalization"
    ),
    "eval": Name("evaluation", "CUSTOM_BADPUT_EVENTS", "validation_loop"),
    "publish": Name("model publishing", "CUSTOM_BADPUT_EVENTS", None),
    "ending": Name("end, not told apart", "OTHER", "application", Kind.OVER),
    "lost": Name("lost work", "WASTED_PROGRESS_FROM_DISRUPTION", "training_loop", Kind.LOST),
    "stalled": Name(
        "failing", "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION", "training_loop", Kind.OVER
    ),
    "down": Name("down", "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION", None),
    "restart": Name("restart", "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION", None),
}


def name_of(phase: str) -> Name:
    """The names of a phase, the user's own included."""
    return NAMES.get(phase) or Name(phase, "CUSTOM_BADPUT_EVENTS", None)
