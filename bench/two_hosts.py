"""The constants of two emulated hosts on this machine."""

import json
from pathlib import Path

from bench.progress import Progress
from fastplan.measure.calibrate import CalibratedSku, calibrate, sku_yaml
from fastplan.measure.calibration_text import calibration_json
from fastplan.measure.cases import Sizes
from fastplan.measure.scaling import host_memory
from fastplan.measure.settings import LaunchSettings

# The sizes of the drawn models: batches of all ranks, and buffers of one rank.
_SIZES = Sizes((256, 1024), (16, 64, 256), (1, 10, 100), 1_500, (1 << 17, 1 << 23))


def calibrated_sku(work: Path, group: LaunchSettings) -> Path:
    """Returns the calibrated SKU file; calibrates if it is not there."""
    file = work / "sku.yaml"
    if not file.exists():
        with Progress("calibrating"):
            found = calibrate(group, _SIZES, repetitions=5)
        assert found is not None  # all hosts are on this machine
        sku = CalibratedSku(
            name="two-hosts",
            like="torchrec-cpu",
            group=group,
            calibrated=found,
            host_memory=host_memory(),
            device_memory=None,
        )
        (work / "calibration.json").write_text(json.dumps(calibration_json(sku)))
        lines = [{"case": point.case.json(), "seconds": point.seconds} for point in found.points]
        (work / "points.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        file.write_text(sku_yaml(sku))
    return file
