"""`fastplan bundle`: a job's plans and compiled code in one file, made, shown and unpacked."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import TYPE_CHECKING

from fastplan.cli.errors import NO, OK, CommandError
from fastplan.cli.outputs import check_outputs
from fastplan.cli.parser import add_actions, cache_place

if TYPE_CHECKING:
    from fastplan.bundle.bundle import Bundle

HELP = """
A start bundle has the plans of a job, for one cluster or several, and what torch compiled for it,
so that a restart neither plans nor compiles. Plans are data, and always safe to load. Compiled code
can do anything to the process that loads it: that takes --trust-code.
"""
EXAMPLES = """
fastplan bundle save -o start.bundle --plans /shared/plans
fastplan bundle save -o start.bundle --plans 8-hosts.json 16-hosts.json --model ranker
fastplan bundle show start.bundle
fastplan bundle load start.bundle --cache /shared/plans
"""


def add_arguments(parser: ArgumentParser) -> None:
    add = add_actions(parser)
    told = "put plans, and compiled code if there is some, into a bundle"
    example = "fastplan bundle save -o start.bundle --plans plan.json --artifacts artifacts.bin"
    save = add("save", _save, told, example)
    save.add_argument("-o", "--output", metavar="FILE", required=True, help="the bundle to write")
    save.add_argument(
        "--plans",
        metavar="WHERE",
        nargs="+",
        required=True,
        help="plan files, plan caches (directories or URLs), other bundles",
    )
    save.add_argument(
        "--key", metavar="KEY", action="append", default=[], help="take only these from caches"
    )
    save.add_argument(
        "--artifacts",
        metavar="FILE",
        nargs="+",
        default=[],
        help="bytes of torch.compiler.save_cache_artifacts() on this installation; a file per "
        "local rank where they differ, as on GPUs",
    )
    save.add_argument(
        "--model", metavar="NAME", help="the model's name; default: that of the bundles in --plans"
    )

    told = "show what is in a bundle; exit code 2 if it is damaged, or its code is not for here"
    show = add("show", _show, told, "fastplan bundle show start.bundle --json")
    show.add_argument("bundle", metavar="FILE", help="a bundle")
    show.add_argument("--json", action="store_true", help="print it as JSON")

    told = "put a bundle's plans into a cache; exit code 2 if its code is not for here"
    load = add("load", _load, told, "fastplan bundle load start.bundle --cache /shared/plans")
    load.add_argument("bundle", metavar="FILE", help="a bundle")
    load.add_argument(
        "--cache", type=cache_place, metavar="WHERE", help="directory or URL of the plan cache"
    )
    load.add_argument(
        "--trust-code",
        action="store_true",
        help="also put compiled code where torch finds it: it can do anything to your jobs",
    )
    load.add_argument(
        "--local-rank", metavar="N", type=_local_rank, default=0, help="whose code (default 0)"
    )


def _local_rank(text: str) -> int:
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} must be a local rank, a whole number of at least 0")
    return int(text)


def run(args: Namespace) -> int:
    code: int = args.act(args)
    return code


def _save(args: Namespace) -> int:
    from fastplan.bundle.compiled import driver_device, environment_facts
    from fastplan.bundle.format import MAX_PLANS, Artifacts, Blob, Content, write_content
    from fastplan.bundle.gathering import collect_plans, model_of
    from fastplan.report.units import of_bytes, of_count

    check_outputs(args.output, inputs=[*args.plans, *args.artifacts])
    plans = collect_plans(args.plans, args.key)
    if len(plans) > MAX_PLANS:
        raise CommandError(
            f"{len(plans)} plans are more than the {MAX_PLANS} of a bundle: choose some with --key"
        )
    artifacts = tuple(
        Artifacts(frozenset({slot}), {}, Blob.of(_bytes(path)))
        for slot, path in enumerate(args.artifacts)
    )
    content = Content(
        model=args.model or model_of(args.plans),
        facts=environment_facts(driver_device()),
        plans=plans,
        artifacts=artifacts,
    )
    write_content(content, args.output)
    told = of_count(len(plans), "plan")
    if artifacts:
        size = of_bytes(sum(part.blob.size for part in artifacts))
        told += f", {size} of compile artifacts"
    print(f"written: {args.output}, {told}, {of_bytes(os.path.getsize(args.output))}")
    return OK


def _bytes(path: str) -> bytes:
    from fastplan.bundle.compiled import are_artifacts
    from fastplan.bundle.format import MAX_ARTIFACTS

    if os.path.getsize(path) > MAX_ARTIFACTS:
        raise CommandError(f"{path}: is larger than {MAX_ARTIFACTS >> 30} GiB, the most it can be")
    with open(path, "rb") as stream:
        data = stream.read()
    if not data:
        raise CommandError(f"{path}: is empty; torch writes its artifacts after it has compiled")
    if not are_artifacts(data):
        raise CommandError(
            f"{path}: holds none of torch's compile artifacts, or was changed since; write the "
            "first of what torch.compiler.save_cache_artifacts() returns, the bytes"
        )
    return data


def _show(args: Namespace) -> int:
    from fastplan.bundle.compiled import driver_device, environment_facts
    from fastplan.cli.bundle_views import bundle_json, lines, look

    seen = look(_open(args.bundle), environment_facts(driver_device()))
    if args.json:
        print(json.dumps(bundle_json(seen), indent=2))
    else:
        print("\n".join(lines(seen)))
    return NO if seen.damage or seen.code_mismatches else OK


def _load(args: Namespace) -> int:
    from fastplan.bundle.format import BundleError
    from fastplan.cache.stores import default_directory
    from fastplan.report.names import visible
    from fastplan.report.units import of_count

    bundle = _open(args.bundle)
    where = args.cache or os.environ.get("FASTPLAN_CACHE") or default_directory()
    try:
        count = bundle.copy_to_cache(os.fspath(where))
    except BundleError as problem:
        raise CommandError(str(problem)) from problem
    except ValueError as error:
        raise CommandError(f"--cache: {error}") from error
    print(f"{of_count(count, 'plan')} put into {visible(str(where))}")
    if not bundle.has_code:
        return OK
    if not args.trust_code:
        print("compiled code was left alone; --trust-code puts it where torch finds it")
        return OK
    return _load_code(bundle, args.local_rank)


def _load_code(bundle: Bundle, slot: int) -> int:
    from fastplan.bundle.bundle import BundleMismatch
    from fastplan.bundle.compiled import compile_cache
    from fastplan.report.names import visible
    from fastplan.report.units import of_count

    try:
        loaded = bundle.load_artifacts(trust=True, slot=slot)
    except BundleMismatch as other:
        print("compiled code is not for this installation:")
        for difference in other.differences:
            print(f"  {visible(difference)}")
        return NO
    told = f"{of_count(loaded.artifacts, 'compile artifact')}, {of_count(loaded.kernels, 'kernel')}"
    print(f"{told} put into torch's compile cache {visible(compile_cache())}")
    for difference in loaded.skipped:
        print(f"  CPU kernels were left out: {visible(difference)}")
    return OK


def _open(path: str) -> Bundle:
    from fastplan.bundle.bundle import open_bundle
    from fastplan.bundle.format import BundleError

    try:
        return open_bundle(path)
    except BundleError as problem:
        raise CommandError(str(problem)) from problem
