"""The decision that the planners of 1.6 and 1.7 log: how much memory the reservation left."""

from __future__ import annotations

import logging
from typing import Any

from torchrec.distributed.planner import planners


def log_reservation(planner: Any) -> None:
    """Logs the decision as TorchRec's planner does; does nothing where TorchRec logs none."""
    log = getattr(planners, "log_emo_decision", None)
    if log is None:
        return
    reservation = planner._storage_reservation
    policy = reservation.__class__.__name__
    percentage = getattr(reservation, "_percentage", None)
    hbm = sum(device.storage.hbm for device in planner._topology.devices)
    available = round(planners.bytes_to_gb(hbm), 3)
    log(
        planners.DecisionCategory.PROPOSER,
        logging.INFO,
        f"Storage reservation applied: policy={policy}, percentage={percentage}, "
        f"global_hbm_available={available}GB",
        storage_policy=policy,
        storage_percentage=percentage,
        global_hbm_available_gb=available,
    )
