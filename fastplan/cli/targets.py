"""What a command line names as a model: a spec file, or a function that builds a real one."""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser, Namespace, _ActionsContainer
from dataclasses import replace
from typing import TYPE_CHECKING

from fastplan.cli.errors import CommandError

if TYPE_CHECKING:
    from fastplan.spec.model import ModelSpec

# What may be a module, and is no usual name of a file.
_MODULE = re.compile(r"(?!.*\.(json|ya?ml)$)[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def is_function(target: str) -> bool:
    """Whether the target is `package.module:function`."""
    from fastplan.spec.references import is_reference

    return is_reference(target) and not os.path.exists(target)


def add_cluster_arguments(parser: ArgumentParser) -> None:
    """The options that choose a cluster and a variant of the model."""
    group = parser.add_argument_group("cluster and model")
    group.add_argument(
        "--sku", metavar="NAME", help="hardware: a name of `fastplan skus`, or a file"
    )
    group.add_argument("--world-size", type=int, metavar="N", help="ranks")
    group.add_argument("--local-world-size", type=int, metavar="N", help="ranks of one host")
    group.add_argument("--batch-size", type=int, metavar="N", help="batch of one rank")
    group.add_argument(
        "--precision", choices=("fp32", "fp16", "bf16"), help="of all tables of floating point"
    )
    group.add_argument(
        "--torchrec", metavar="VERSION", help="whose planner to match; default: the installed one's"
    )


def add_trust_argument(parser: _ActionsContainer) -> None:
    """The option without which no code runs that a file names."""
    parser.add_argument(
        "--trust-code",
        action="store_true",
        help="import code that a file names, such as a cost",
    )


def load_target(args: Namespace) -> ModelSpec:
    """The spec that the arguments mean."""
    from fastplan.spec.variants import on_cluster, with_precision

    check_sizes(args, "world_size", "local_world_size", "batch_size")
    if is_function(args.model):
        from fastplan.torchrec.models import export_model

        spec = export_model(args.model, batch_size=args.batch_size)
    else:
        from fastplan.spec.read import read_spec

        if not os.path.exists(args.model) and _MODULE.fullmatch(args.model):
            raise CommandError(
                f"{args.model}: no such file; a function that builds the model is given as "
                f"package.module:function, such as {args.model}:build"
            )
        spec = read_spec(args.model)
        if args.batch_size is not None:
            spec = replace(spec, batch_size=args.batch_size)
    spec = on_cluster(
        spec,
        sku=args.sku,
        world_size=args.world_size,
        local_world_size=args.local_world_size,
    )
    if args.precision is not None:
        spec = with_precision(spec, args.precision)
    if args.torchrec is not None:
        from fastplan.spec.stock import VERSIONS

        if args.torchrec not in VERSIONS:
            raise CommandError(f"--torchrec must be one of {', '.join(VERSIONS)}")
        spec = replace(spec, torchrec=args.torchrec)
    return spec


def check_sizes(args: Namespace, *names: str) -> None:
    """Raises CommandError for sizes that no spec may have either."""
    from fastplan.spec.limits import MOST_BATCH, MOST_RANKS

    for name in names:
        value = getattr(args, name)
        most = MOST_BATCH if name == "batch_size" else MOST_RANKS
        if value is not None and not 1 <= value <= most:
            raise CommandError(f"--{name.replace('_', '-')} must be from 1 to {most}, not {value}")
