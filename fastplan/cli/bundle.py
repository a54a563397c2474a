"""`fastplan bundle`: saves, shows and loads a job's plans and compiled code in one file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fastplan.cli.errors import NO, OK, CommandError
from fastplan.cli.options import json_option, usual_cache
from fastplan.cli.output import check_outputs, print_json, print_lines, report_written
from fastplan.cli.parser import Args, Group, argument, option
from fastplan.cli.values import cache_place, count

if TYPE_CHECKING:
    from fastplan.bundle.bundle import Bundle

HELP = """
A start bundle contains the plans of a job, for one cluster or several, and torch's compiled code,
so that a restart neither plans nor compiles. Plans are data and always safe to load. Compiled code
can do anything to the process that loads it, so loading it needs --trust-code.
"""
EXAMPLES = """
fastplan bundle save -o start.bundle --plans /shared/plans
fastplan bundle save -o start.bundle --plans 8-hosts.json 16-hosts.json --model ranker
fastplan bundle show start.bundle
fastplan bundle load start.bundle --cache /shared/plans
"""


bundle = Group("bundle", help=HELP, examples=EXAMPLES)


@bundle.action(
    "save",
    "put plans and compiled code into a bundle",
    "fastplan bundle save -o start.bundle --plans plan.json --artifacts artifacts.bin",
)
@option("-o, --output FILE", "the bundle to write", required=True)
@option(
    "--plans WHERE...",
    "plan files, plan caches (directories or URLs), other bundles",
    required=True,
)
@option("--key KEY", "take only these from caches", multiple=True)
@option(
    "--artifacts FILE...",
    "bytes of torch.compiler.save_cache_artifacts() on this installation; a file per local rank "
    "where they differ, as on GPUs",
)
@option("--model NAME", "the model's name; default: that of the bundles in --plans")
def _save(args: Args) -> int:
    from fastplan.bundle.compiled import driver_device, environment_facts
    from fastplan.bundle.format import MAX_PLANS, Artifacts, Blob, Content, write_content
    from fastplan.bundle.gathering import collect_plans, model_of
    from fastplan.report.units import format_bytes, format_count

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
    summary = format_count(len(plans), "plan")
    if artifacts:
        size = format_bytes(sum(part.blob.size for part in artifacts))
        summary += f", {size} of compile artifacts"
    report_written(args.output, f", {summary}, {format_bytes(os.path.getsize(args.output))}")
    return OK


def _bytes(path: str) -> bytes:
    from fastplan.bundle.compiled import are_artifacts
    from fastplan.bundle.format import MAX_ARTIFACTS

    if os.path.getsize(path) > MAX_ARTIFACTS:
        raise CommandError(f"{path}: is larger than {MAX_ARTIFACTS >> 30} GiB, the limit")
    with open(path, "rb") as stream:
        data = stream.read()
    if not data:
        raise CommandError(f"{path}: is empty; torch writes its artifacts after it has compiled")
    if not are_artifacts(data):
        raise CommandError(
            f"{path}: has no compile artifacts of torch, or was changed; write the "
            "first of what torch.compiler.save_cache_artifacts() returns, the bytes"
        )
    return data


@bundle.action(
    "show",
    "show a bundle; exit code 2 if it is damaged, or its code is not for this installation",
    "fastplan bundle show start.bundle --json",
)
@argument("FILE", "a bundle", name="bundle")
@json_option()
def _show(args: Args) -> int:
    from fastplan.bundle.compiled import driver_device, environment_facts
    from fastplan.cli.bundle_views import bundle_json, lines, view_of

    seen = view_of(_open(args.bundle), environment_facts(driver_device()))
    if args.json:
        print_json(bundle_json(seen))
    else:
        print("\n".join(lines(seen)))
    return NO if seen.damage or seen.code_mismatches else OK


@bundle.action(
    "load",
    "put a bundle's plans into a cache; exit code 2 if trusted code is not for this installation",
    "fastplan bundle load start.bundle --cache /shared/plans",
)
@argument("FILE", "a bundle", name="bundle")
@option("--cache WHERE", "directory or URL of the plan cache", read=cache_place)
@option(
    "--trust-code",
    "also copy compiled code to torch's cache: it can do anything to your jobs",
)
@option("--local-rank N", "local rank whose code to load (default 0)", read=count, default=0)
def _load(args: Args) -> int:
    from fastplan.bundle.format import BundleError
    from fastplan.report.units import format_count

    bundle = _open(args.bundle)
    where = usual_cache(args)
    try:
        count = bundle.copy_to_cache(os.fspath(where))
    except BundleError as problem:
        raise CommandError(str(problem)) from problem
    except ValueError as error:
        raise CommandError(f"--cache: {error}") from error
    print_lines(f"{format_count(count, 'plan')} put into {where}")
    if not bundle.has_code:
        return OK
    if not args.trust_code:
        print("compiled code was not loaded; --trust-code copies it to torch's compile cache")
        return OK
    return _load_code(bundle, args.local_rank)


def _load_code(bundle: Bundle, slot: int) -> int:
    from fastplan.bundle.bundle import BundleMismatch
    from fastplan.bundle.compiled import compile_cache
    from fastplan.report.units import format_count

    try:
        loaded = bundle.load_artifacts(trust=True, slot=slot)
    except BundleMismatch as other:
        print("compiled code is not for this installation:")
        for difference in other.differences:
            print_lines(f"  {difference}")
        return NO
    artifacts = format_count(loaded.artifacts, "compile artifact")
    kernels = format_count(loaded.kernels, "kernel")
    print_lines(f"{artifacts}, {kernels} put into torch's compile cache {compile_cache()}")
    for difference in loaded.skipped:
        print_lines(f"  CPU kernels were skipped: {difference}")
    return OK


def _open(path: str) -> Bundle:
    from fastplan.bundle.bundle import open_bundle
    from fastplan.bundle.format import BundleError

    try:
        return open_bundle(path)
    except BundleError as problem:
        raise CommandError(str(problem)) from problem
