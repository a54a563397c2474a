"""`fastplan calibrate`: measures the constants that estimates should use."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from fastplan.cli.errors import OK, CommandError
from fastplan.cli.launching import add_group_arguments, check_installed, group_of
from fastplan.cli.outputs import check_outputs

if TYPE_CHECKING:
    from fastplan.measure.calibrate import Calibrated
    from fastplan.measure.settings import Group
    from fastplan.measure.sku_file import CalibratedSku

HELP = (
    "Runs FBGEMM's lookups, copies and collectives on the devices at hand, fits the bandwidths and "
    "factors that TorchRec's cost model has, and writes them as a SKU file for --sku. Constants "
    "that the data do not determine are left out, with the reason. TorchRec's model has no "
    "latencies, so constants depend on sizes: give the model that they are for."
)
EXAMPLES = """
fastplan calibrate --nproc 8 --model model.yaml -o my-cluster.yaml
fastplan calibrate --nproc 4 --device cpu --like cpu -o my-cluster.yaml
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the SKU file, YAML")
    add_group_arguments(parser)
    parser.add_argument("--model", metavar="FILE", help="a spec file, to measure at its sizes")
    parser.add_argument(
        "--like", metavar="SKU", help="where figures come from that can't be measured"
    )
    parser.add_argument("--name", metavar="NAME", help="of the SKU; default: the file's")
    parser.add_argument(
        "--repetitions", type=int, default=7, metavar="N", help="of each benchmark (7)"
    )
    parser.add_argument("--points", metavar="FILE", help="write what was measured, as JSON lines")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: Namespace) -> int:
    from fastplan.files import replace_file
    from fastplan.measure.scaling import host_memory
    from fastplan.measure.sku_file import CalibratedSku, sku_yaml
    from fastplan.spec.document import document_of
    from fastplan.spec.hardware import find_hardware, read_hardware

    output = Path(args.output)
    if output.suffix not in (".yaml", ".yml"):
        raise CommandError(f"{args.output} must end in .yaml, so that --sku can read it")
    if args.repetitions < 1:
        raise CommandError("--repetitions must be at least 1")
    check_outputs(args.output, args.points, inputs=[args.model, args.like])
    name = args.name or output.stem
    check_installed("torch", "fbgemm_gpu")
    group = group_of(args)
    like = args.like or ("torchrec" if group.device == "cuda" else "torchrec-cpu")
    if find_hardware(like).device != group.device:
        raise CommandError(f"--like {like} is no {group.device} hardware")
    read_hardware(document_of({"name": name, "like": like}, args.output))  # a name it can have?
    calibrated = _calibrate(args, group)
    if calibrated is None:
        print("done; the file is on the host of rank 0")
        return OK
    sku = CalibratedSku(
        name=name,
        like=like,
        group=group,
        calibrated=calibrated,
        host_memory=host_memory(),
        device_memory=_device_memory(group),
    )
    _print(args, sku)  # first, so that a disk that is full costs the files only
    replace_file(output, [sku_yaml(sku).encode()])
    if args.points:
        replace_file(args.points, [_points(calibrated).encode()])
    if not args.json:
        print(f"\nwritten: {args.output}")
    return OK


def _print(args: Namespace, sku: CalibratedSku) -> None:
    if args.json:
        from json import dumps

        from fastplan.measure.text import calibration_json

        print(dumps(calibration_json(sku), indent=2))
        return
    from fastplan.measure.text import calibration_text
    from fastplan.report.terminal import Style

    print(calibration_text(sku, Style.of(sys.stdout)), end="")


def _calibrate(args: Namespace, group: Group) -> Calibrated | None:
    from fastplan.cli.terminal import Progress
    from fastplan.measure.calibrate import calibrate
    from fastplan.measure.cases import DEFAULT_SIZES, cases, sizes_of
    from fastplan.spec.read import read_spec

    sizes = DEFAULT_SIZES[group.device]
    if args.model:
        sizes = sizes_of(read_spec(args.model), group.ranks)
    total = len(cases(group.device, group.ranks, group.ranks_per_host, sizes))
    done = 0
    with Progress("calibrating", total) as bar:

        def progress(count: int) -> None:
            nonlocal done
            bar.advance(count - done)
            done = count

        return calibrate(group, sizes, repetitions=args.repetitions, progress=progress)


def _device_memory(group: Group) -> int | None:
    """That of the smallest GPU; None on CPUs."""
    from fastplan.measure.probe import gpus

    devices = gpus()[: group.ranks_per_host] if group.device == "cuda" else []
    return min((gpu.total for gpu in devices), default=None)


def _points(calibrated: Calibrated) -> str:
    from json import dumps

    lines = [
        dumps({"case": point.case.json(), "seconds": point.seconds}) for point in calibrated.points
    ]
    return "".join(f"{line}\n" for line in lines)
