"""`fastplan measure` and `fastplan calibrate`: run plans and benchmarks on devices."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from fastplan.cli.errors import INTERRUPTED, OK, CommandError, naming_options
from fastplan.cli.options import (
    check_sizes,
    is_function,
    json_option,
    read_plan,
    reading_options,
    sku_names,
)
from fastplan.cli.output import (
    Progress,
    check_outputs,
    check_replaced,
    print_and_write,
    print_json,
    print_written,
    report_interrupt,
    style,
)
from fastplan.cli.parser import Args, argument, command, option, options
from fastplan.cli.values import scale

if TYPE_CHECKING:
    from fastplan.measure.calibrate import Calibrated, CalibratedSku
    from fastplan.measure.failures import Failure
    from fastplan.measure.prepare import Subject
    from fastplan.measure.scaling import MemoryLimit
    from fastplan.measure.settings import LaunchSettings, Settings

MEASURE_EXAMPLES = """
fastplan measure model.yaml plan_a.json plan_b.json --nproc 8 -o runs/
fastplan measure mypkg.models:build plan.json --nproc 8 --zipf 1.1 -o runs/
fastplan measure model.yaml plan.json --nproc 4 --device cpu --scale-rows auto -o runs/
fastplan measure model.yaml plan.json --nproc 8 --nnodes 2 --rdzv-endpoint host0:29400 -o runs/
fastplan measure model.yaml plan.json --nproc 2 --hosts 2 --link 500Mbit -o runs/
"""
CALIBRATE_EXAMPLES = """
fastplan calibrate --nproc 8 --model model.yaml -o my-cluster.yaml
fastplan calibrate --nproc 4 --device cpu --like cpu -o my-cluster.yaml
fastplan calibrate --nproc 2 --hosts 2 --link 500Mbit -o two-hosts.yaml
"""
# Options of torchrun, passed on unchanged.
_TORCHRUN = ("node-rank", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "master-addr", "master-port")
_rank_options = options(
    option("--nproc N", "ranks of this host", required=True),
    option("--device {auto,cuda,cpu}", "auto: GPUs if available", default="auto"),
    option("--threads N", "threads per rank; default: its share of the cores"),
    option("--timeout SECONDS", "seconds without progress before giving up (300)", default=300.0),
    option("--nnodes N", "hosts (1)", default=1),
    option("--hosts N", "emulate N hosts of --nproc ranks on this machine; needs root"),
    option("--link RATE", "rate of an emulated host's link, such as 500Mbit"),
    *(option(f"--{name} X", "as torchrun has it, on several hosts") for name in _TORCHRUN),
    section="ranks",
)


@command("measure", MEASURE_EXAMPLES)
@argument("FILE", "a spec file, or package.module:function", name="model")
@argument("FILE...", "plan files", name="plans")
@option("-o, --output DIR", "folder for the results, a new one", required=True)
@json_option("print the results as JSON")
@reading_options
@_rank_options
@options(
    option("--batch-size N", "batch of one rank"),
    option("--rounds N", "rounds, in which each plan has one turn (10)", default=10),
    option("--steps N", "timed steps per turn (5)", default=5),
    option("--warmup N", "warm-up steps per turn (3)", default=3),
    option("--resident", "keep all plans in memory, so that turns can be short"),
    option("--lengths {fixed,poisson}", "distribution of bag lengths", default="fixed"),
    option("--zipf S", "Zipf exponent of ids; default 0: uniform", default=0.0),
    option("--seed N", "random seed", default=0),
    option(
        "--dataset NAME",
        "package.module:function(rank, ranks) that yields KeyedJaggedTensors",
    ),
    option(
        "--scale-rows N",
        "divide the rows of tables by N; `auto`: as needed to fit",
        read=scale,
        default=1,
    ),
    section="batches and steps",
)
def measure(args: Args) -> int:
    """Runs plans on this machine's devices and times a step of each: TorchRec shards the model's
    embedding modules, and they are trained on batches with the spec's pooling factors. Plans take
    turns in a drawn order, so that a machine that gets slower does not favour one plan. `fastplan
    compare --measured` shows the results next to the estimates.
    """
    from fastplan.measure.settings import MeasureError, Settings

    check_sizes(args, "batch_size")
    _check_installed("torch", "fbgemm_gpu", "torchrec")
    group = _group(args)
    with naming_options(MeasureError):
        settings = Settings(
            rounds=args.rounds,
            steps=args.steps,
            warmup=args.warmup,
            lengths=args.lengths,
            zipf=args.zipf,
            seed=args.seed,
            dataset=args.dataset,
            resident=args.resident,
        )
    subject = _subject(args, group)
    folder = Path(args.output)
    try:
        failures = _measure(args, folder, subject, group, settings)
    except KeyboardInterrupt:
        kept = f"finished rounds are in {folder}" if _is_first(folder) else "no round was finished"
        report_interrupt(f"; {kept}")
        return INTERRUPTED
    _print_runs(args, folder, has_results=group.on_this_machine or _is_first(folder))
    if failures:
        count = f"{len(failures)} of {len(subject.plans)} plans failed"
        reasons = "; ".join(failure.text(subject.labels) for failure in failures)
        raise CommandError(f"{count}: {reasons}; logs are in {folder / 'logs'}")
    return OK


def _measure(
    args: Args, folder: Path, subject: Subject, group: LaunchSettings, settings: Settings
) -> list[Failure]:
    from fastplan.measure.run import measure

    with Progress("measuring", len(subject.plans) * settings.rounds) as bar:
        return measure(
            folder,
            subject,
            group,
            settings,
            room=_room(group),
            scale=args.scale_rows,
            progress=bar.reach,
        )


def _subject(args: Args, group: LaunchSettings) -> Subject:
    from dataclasses import replace

    from fastplan.measure.prepare import Subject
    from fastplan.spec.read import read_spec

    target = args.model if is_function(args.model) else None
    if target is not None:
        from fastplan.torchrec.models import export_model

        spec = export_model(target, world_size=group.ranks, batch_size=args.batch_size)
    else:
        spec = read_spec(args.model)
        if args.batch_size is not None:
            spec = replace(spec, batch_size=args.batch_size)
    plans = tuple(read_plan(path, args) for path in args.plans)
    labels = [
        path if args.plans.count(path) == 1 else f"{path} #{1 + args.plans[:i].count(path)}"
        for i, path in enumerate(args.plans)
    ]
    return Subject(spec, target, plans, tuple(labels))


def _is_first(folder: Path) -> bool:
    """Returns whether this host has the results: rank 0 writes them on its host."""
    file = folder / "rounds.jsonl"
    return file.exists() and os.path.getsize(file) > 0


def _print_runs(args: Args, folder: Path, *, has_results: bool) -> None:
    from fastplan.measure.results import read_runs
    from fastplan.measure.text import runs_json, runs_text

    if not has_results:
        print("done; the results are on the host of rank 0")
        return
    runs = read_runs(folder)
    if args.json:
        print_json(runs_json(runs))
    else:
        print(runs_text(runs, style()), end="")
        print_written(str(folder))


@command("calibrate", CALIBRATE_EXAMPLES)
@option("-o, --output FILE", "the SKU file, YAML", required=True)
@option("--model FILE", "a spec file, to measure at its sizes")
@option("--like SKU", "SKU with the figures that can't be measured", complete=sku_names)
@option("--name NAME", "name of the SKU; default: the file name")
@option("--repetitions N", "repetitions of each benchmark (7)", default=7)
@option("--points FILE", "write the measurements as JSON lines")
@json_option("print the result as JSON")
@_rank_options
def calibrate(args: Args) -> int:
    """Runs FBGEMM's lookups, copies and collectives on this machine's devices, fits the bandwidths
    and factors of TorchRec's cost model and the constants of the hardware costs, and writes them as
    a SKU file for --sku. TorchRec's constants that the data do not determine are omitted, with the
    reason. TorchRec's model has no latencies, so its constants depend on sizes: give the model that
    they are for. Constants of the hardware costs that the data do not identify are carried over
    from --like, or assumed; the file says which.
    """
    from fastplan.files.document import document_of
    from fastplan.files.storage import replace_file
    from fastplan.measure.calibrate import CalibratedSku, sku_yaml
    from fastplan.measure.scaling import host_memory
    from fastplan.spec.hardware import find_hardware, read_hardware

    output = Path(args.output)
    if output.suffix not in (".yaml", ".yml"):
        raise CommandError(f"{args.output} must end in .yaml, so that --sku can read it")
    if args.repetitions < 1:
        raise CommandError("--repetitions must be at least 1")
    check_outputs(args.output, args.points, inputs=[args.model, args.like])
    check_replaced(sku=args.output, points=args.points)
    name = args.name or output.stem
    _check_installed("torch", "fbgemm_gpu")
    group = _group(args)
    like = args.like or ("torchrec" if group.device == "cuda" else "torchrec-cpu")
    if find_hardware(like).device != group.device:
        raise CommandError(f"--like {like} is not {group.device} hardware")
    read_hardware(document_of({"name": name, "like": like}, args.output))  # checks the name
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

    def write() -> None:
        replace_file(output, [sku_yaml(sku).encode()])
        if args.points:
            replace_file(args.points, [_points(calibrated).encode()])
        if not args.json:
            print_written(args.output)

    print_and_write(lambda: _print_sku(args, sku), write)
    return OK


def _print_sku(args: Args, sku: CalibratedSku) -> None:
    from fastplan.measure.calibration_text import calibration_json, calibration_text

    if args.json:
        print_json(calibration_json(sku))
    else:
        print(calibration_text(sku, style()), end="")


def _calibrate(args: Args, group: LaunchSettings) -> Calibrated | None:
    from fastplan.measure.calibrate import calibrate
    from fastplan.measure.cases import DEFAULT_SIZES, cases, sizes_of
    from fastplan.spec.read import read_spec

    sizes = DEFAULT_SIZES[group.device]
    if args.model:
        sizes = sizes_of(read_spec(args.model), group.ranks)
    total = len(cases(group.device, group.ranks, group.ranks_per_host, sizes))
    with Progress("calibrating", total) as bar:
        return calibrate(group, sizes, repetitions=args.repetitions, progress=bar.reach)


def _device_memory(group: LaunchSettings) -> int | None:
    """Returns the memory of the smallest GPU; None on CPUs."""
    from fastplan.measure.probe import gpus

    devices = gpus()[: group.ranks_per_host] if group.device == "cuda" else []
    return min((gpu.total for gpu in devices), default=None)


def _points(calibrated: Calibrated) -> str:
    from json import dumps

    lines = [
        dumps({"case": point.case.json(), "seconds": point.seconds}) for point in calibrated.points
    ]
    return "".join(f"{line}\n" for line in lines)


def _check_installed(*modules: str) -> None:
    """Raises CommandError for a missing module, before ranks fail because of it."""
    for module in modules:
        if not _is_installed(module):
            raise CommandError(
                f"ranks need {module}, which is not installed; `fastplan doctor` shows how"
            )


def _is_installed(module: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def _group(args: Args) -> LaunchSettings:
    """Returns the process group of the arguments."""
    from fastplan.measure.probe import gpus
    from fastplan.measure.settings import LaunchSettings

    _check_group(args)
    device = "cpu" if args.hosts else args.device
    if device != "cpu":
        found = len(gpus())
        if device == "cuda" and not found:
            raise CommandError("torch finds no GPU here; `--device cpu` measures on the CPU")
        device = "cuda" if found else "cpu"
        if device == "cuda" and found < args.nproc:
            raise CommandError(
                f"{args.nproc} ranks need a GPU each, and torch finds {found}: give --nproc "
                f"{found}, or --device cpu"
            )
    given = [(name, getattr(args, name.replace("-", "_"))) for name in _TORCHRUN]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return LaunchSettings(
        device=device,
        ranks_per_host=args.nproc,
        hosts=args.hosts or args.nnodes,
        threads=args.threads or max(1, (cores or 1) // (args.nproc * (args.hosts or 1))),
        timeout=args.timeout,
        torchrun=tuple(
            word for name, value in given if value is not None for word in (f"--{name}", value)
        ),
        link=args.link,
    )


def _check_group(args: Args) -> None:
    for name in ("nproc", "nnodes", "hosts", "threads", "timeout"):
        value = getattr(args, name)
        if value is not None and not value > 0:
            raise CommandError(f"--{name} must be more than 0, not {value:g}")
    if args.nnodes == 1 and (
        given := [name for name in _TORCHRUN if getattr(args, name.replace("-", "_")) is not None]
    ):
        raise CommandError(f"--{given[0]} is for several hosts: give --nnodes, too")
    if args.nnodes > 1 and args.rdzv_endpoint is None and args.master_addr is None:
        raise CommandError(
            "several hosts need a rendezvous address: give --rdzv-endpoint HOST:PORT"
        )
    _check_emulated(args)


def _check_emulated(args: Args) -> None:
    """Raises CommandError if hosts are asked for that can't be emulated."""
    if args.hosts is None and args.link is None:
        return
    if args.hosts is None or args.link is None:
        have, lack = ("link", "hosts N") if args.hosts is None else ("hosts", "link RATE")
        raise CommandError(f"--{have} needs --{lack}, for example `--hosts 2 --link 500Mbit`")
    if args.hosts < 2 or args.nnodes != 1 or args.device == "cuda":
        raise CommandError("--hosts emulates at least 2 hosts, without --nnodes and without GPUs")
    from fastplan.measure.hosts import why_unavailable

    if reason := why_unavailable():
        raise CommandError(f"--hosts {args.hosts}: {reason}")


def _room(group: LaunchSettings) -> MemoryLimit:
    """Returns the memory limit for plans on this host."""
    from fastplan.measure.probe import gpus
    from fastplan.measure.scaling import MemoryLimit, free_host_memory

    devices = gpus() if group.device == "cuda" else []
    smallest = min((gpu.free for gpu in devices[: group.ranks_per_host]), default=None)
    return MemoryLimit(free_host_memory(), smallest)
