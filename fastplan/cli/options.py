"""Options that several commands share: model and cluster, cache, trust, formats, optimization."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fastplan.cli.errors import CommandError, UsageError, naming_options
from fastplan.cli.parser import Args, Decorator, option, options
from fastplan.cli.values import cache_place, replica_count
from fastplan.model.vocabulary import DTYPE_ALIASES, PIPELINES

if TYPE_CHECKING:
    from fastplan.engine.optimize import Optimize
    from fastplan.model.plan import Plan
    from fastplan.planning.replicas import Replicas
    from fastplan.spec.model import ModelSpec

SECONDS = 1.0  # the default time limit of --optimize
# A possible name of a module that is not a usual name of a file.
_MODULE = re.compile(r"(?!.*\.(json|ya?ml)$)[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
# Options that need --optimize, by their name in the parsed arguments.
_DETAILS = (
    "time_budget",
    "move_budget",
    "seed",
    "threads",
    "minimize",
    "within",
    "pin",
    "together",
    "offload",
)


def sku_names() -> Iterable[str]:
    """Returns the names for --sku, for completion."""
    from fastplan.spec.hardware import known_hardware

    return (hardware.name for hardware in known_hardware())


def json_option(help: str = "print it as JSON") -> Decorator:
    """Declares --json, which prints one document and nothing else."""
    return option("--json", help)


def load_numpy() -> None:
    """Imports numpy without the threads of its linear algebra.

    To start them takes a tenth of a short command, and no command needs them. The environment
    stays as it is, for processes that the command starts.
    """
    variable = "OPENBLAS_NUM_THREADS"
    if variable in os.environ:
        return
    os.environ[variable] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[variable]


html_option = option("--html FILE", "write a report to look at in a browser")
# Without it, code that a file names does not run.
trust_option = option("--trust-code", "import code that a file names, such as a cost")
cache_options = options(
    option(
        "--cache WHERE",
        "directory or URL of a plan cache; default: FASTPLAN_CACHE",
        read=cache_place,
    ),
    option("--no-cache", "use no cache", excludes="--cache"),
)


def usual_cache(args: Args) -> str | os.PathLike[str]:
    """Returns the cache of --cache, of the environment, or the platform's default."""
    from fastplan.cache.stores import default_directory

    return args.cache or os.environ.get("FASTPLAN_CACHE") or default_directory()


reading_options = option("--trust-pickle", "read pickled ShardingPlans; these can run any code")


def read_plan(path: str, args: Args) -> Plan:
    """Reads a plan of any format; `args` has the values of reading_options."""
    load_numpy()
    from fastplan.plans.foreign import read_any

    return read_any(path, trust_pickle=args.trust_pickle)


cluster_options = options(
    option("--sku NAME", "hardware: a name of `fastplan skus`, or a file", complete=sku_names),
    option("--world-size N", "number of ranks"),
    option("--local-world-size N", "number of ranks of one host"),
    option("--batch-size N", "batch of one rank"),
    option(
        "--precision {fp32,fp16,bf16}",
        "precision of all floating-point tables",
        aliases=DTYPE_ALIASES,
    ),
    option("--statistics FILE", "what the ids of tables look like, from `fastplan profile`"),
    option("--torchrec VERSION", "TorchRec version to match; default: the installed one"),
    option("--costs {torchrec,hardware}", "TorchRec's costs, or those of measured devices"),
    option(
        "--pipeline NAME",
        "none, train_sparse_dist or train_prefetch_sparse_dist",
        choices=PIPELINES,
    ),
    section="cluster and model",
)


replica_options = options(
    option(
        "--replica-groups N",
        "copies of the tables, each on world size / N ranks; auto: the fastest",
        read=replica_count,
    ),
    option("--inter-host-allreduce", "consecutive ranks form a group (use_inter_host_allreduce)"),
    option("--sync-interval N", "steps from one sync of the copies to the next; default: 1"),
    section="2D parallelism (DMPCollection)",
)


def replication(args: Args) -> Replicas | None:
    """Returns the settings of replica_options; None without --replica-groups.

    Raises:
        UsageError: An option needs --replica-groups or is invalid.
    """
    if args.replica_groups is None:
        for name in ("inter_host_allreduce", "sync_interval"):
            if getattr(args, name):
                raise UsageError(f"--{name.replace('_', '-')} is for --replica-groups")
        return None
    from fastplan.planning.replicas import Replicas

    with naming_options(ValueError, groups="replica-groups"):
        return Replicas(
            groups=args.replica_groups,
            use_inter_host_allreduce=args.inter_host_allreduce,
            sync_interval=1 if args.sync_interval is None else args.sync_interval,
        )


def is_function(target: str) -> bool:
    """Returns whether the target is `package.module:function`."""
    if ":" not in target:
        return False
    from fastplan.model.references import is_reference

    return is_reference(target) and not os.path.exists(target)


def load_target(args: Args) -> ModelSpec:
    """Loads the spec of `args.model` with the options of the cluster."""
    check_sizes(args, "world_size", "local_world_size", "batch_size")
    if is_function(args.model):
        from fastplan.torchrec.models import export_model

        spec = export_model(args.model, batch_size=args.batch_size)
    else:
        if not os.path.exists(args.model) and _MODULE.fullmatch(args.model):
            raise CommandError(
                f"{args.model}: no such file; a function that builds the model is given as "
                f"package.module:function, such as {args.model}:build"
            )
        load_numpy()
        from fastplan.spec.read import read_spec

        spec = read_spec(args.model)
        if args.batch_size is not None:
            spec = replace(spec, batch_size=args.batch_size)
    from fastplan.spec.read import on_cluster, with_precision

    spec = on_cluster(
        spec,
        sku=args.sku,
        world_size=args.world_size,
        local_world_size=args.local_world_size,
    )
    _check_hosts(args, spec)
    if args.statistics is not None:
        spec = _with_statistics(spec, args.statistics)
    if args.precision is not None:
        spec = with_precision(spec, args.precision)
    if args.torchrec is not None:
        from fastplan.spec.stock import VERSIONS

        if args.torchrec not in VERSIONS:
            raise CommandError(f"--torchrec must be one of {', '.join(VERSIONS)}")
        spec = replace(spec, torchrec=args.torchrec)
    costs = {name: getattr(args, name) for name in ("costs", "pipeline")}
    return replace(spec, **{name: value for name, value in costs.items() if value is not None})


def _check_hosts(args: Args, spec: ModelSpec) -> None:
    """Refuses hosts that the ranks don't fill. TorchRec plans them, but no job starts like that."""
    world, local = spec.topology.world_size, spec.topology.local_world_size
    if args.local_world_size is None or world is None or not local or world % local == 0:
        return
    given = "--world-size" if args.world_size is not None else "`topology.world_size`"
    raise CommandError(
        f"--local-world-size {local}: {world:,} ranks do not fill hosts of {local:,}; {given} must "
        f"be a multiple of it, such as {max(local, world // local * local):,}"
    )


def _with_statistics(spec: ModelSpec, file: str) -> ModelSpec:
    from fastplan.files.document import SpecError
    from fastplan.spec.ids import read_statistics
    from fastplan.spec.read import with_statistics

    try:
        return with_statistics(spec, read_statistics(file))
    except SpecError:
        raise
    except ValueError as error:
        raise CommandError(f"{file}: {error}") from error


def check_sizes(args: Args, *names: str) -> None:
    """Raises CommandError for sizes beyond the limits of a spec."""
    from fastplan.model.limits import MOST_BATCH, MOST_RANKS

    for name in names:
        value = getattr(args, name)
        most = MOST_BATCH if name == "batch_size" else MOST_RANKS
        if value is not None and not 1 <= value <= most:
            raise CommandError(f"--{name.replace('_', '-')} must be from 1 to {most}, not {value}")


_BETTER = "better plans than TorchRec's"
optimize_options = options(
    option("--optimize", "search for a better plan than TorchRec's, and prove a bound"),
    option(
        "--time-budget S",
        f"time limit in seconds; default: {SECONDS:g}, or no limit with --move-budget",
    ),
    option(
        "--move-budget N",
        "limit of search moves, in place of seconds: runs are alike on any machine",
    ),
    option("--seed N", "random seed of the search; default: 0"),
    option("--threads N", "threads of the search; default: 1"),
    option(
        "--minimize WHAT",
        "rating, step, memory, shards, critical_path, or link_bytes with --offload",
        choices=("rating", "step", "memory", "shards", "critical_path", "link_bytes"),
    ),
    option("--offload", "also choose the sizes of caches; needs --costs hardware"),
    option("--within PART", "how far the rating may be above the best rating; default: 1%"),
    section=_BETTER,
)
# Options about single tables.
rule_options = options(
    option("--pin TABLE=RANK", "a table on a rank, or its shards on RANK,RANK,...", multiple=True),
    option(
        "--together A,B", "tables that are split alike and placed on the same ranks", multiple=True
    ),
    section=_BETTER,
)


def optimization(args: Args) -> Optimize | None:
    """Returns the settings of optimize_options; None for TorchRec's plan.

    Raises:
        UsageError: An option needs --optimize or is invalid.
    """
    values = ((name, getattr(args, name, None)) for name in _DETAILS)
    given: dict[str, Any] = {name: value for name, value in values if not _is_unset(value)}
    if not args.optimize:
        if given:
            raise UsageError(f"--{next(iter(given)).replace('_', '-')} is for --optimize")
        return None
    from fastplan.engine.optimize import Objectives, Optimize

    rules = {"pins": _pins(given.pop("pin", ())), "together": given.pop("together", ())}
    chosen = {name: given.pop(name) for name in ("minimize", "within") if name in given}
    if "move_budget" not in given:
        given.setdefault("time_budget", SECONDS)
    with naming_options(ValueError, pins="pin"):
        objectives = Objectives(**chosen, **rules)
        return Optimize(**{"time_budget": None, **given}, objectives=objectives)


def _is_unset(value: object) -> bool:
    return value is None or value is False or value == ()


def _pins(given: Iterable[tuple[str, tuple[int, ...]]]) -> dict[str, tuple[int, ...]]:
    pins: dict[str, tuple[int, ...]] = {}
    for table, ranks in given:
        if table in pins:
            both = " and ".join(",".join(map(str, each)) for each in (pins[table], ranks))
            raise UsageError(
                f"--pin names the table {table!r} twice, with {both}: "
                "give the ranks of its shards as TABLE=RANK,RANK,..."
            )
        pins[table] = ranks
    return pins
