"""`fastplan export`: writes a real model down as a spec file."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from fastplan.cli.errors import OK, CommandError
from fastplan.cli.outputs import check_outputs
from fastplan.cli.targets import add_cluster_arguments, is_function, load_target

HELP = (
    "Writes a real model down as a spec file, which gives the same plan under the same "
    "fingerprint, also where TorchRec is not installed."
)
EXAMPLES = """
fastplan export mypkg.models:build -o model.yaml
fastplan export mypkg.models:build --batch-size 4096 --sku h100 --world-size 64 -o model.json
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="package.module:function")
    add_cluster_arguments(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="default: print YAML")


def run(args: Namespace) -> int:
    if not is_function(args.model):
        raise CommandError(f"{args.model} is not package.module:function")
    check_outputs(args.output, inputs=[args.sku])
    from fastplan.report.units import format_count
    from fastplan.spec.lower import check_cluster
    from fastplan.spec.write import spec_text, write_spec

    spec = load_target(args)
    check_cluster(spec)
    if args.output is None:
        print(spec_text(spec), end="")
    else:
        write_spec(spec, args.output)
        print(f"written: {args.output} ({format_count(len(spec.tables), 'table')})")
    return OK
