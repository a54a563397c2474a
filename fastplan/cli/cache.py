"""`fastplan cache`: looks into a plan cache, checks it and clears it up."""

from __future__ import annotations

import json
import os
import re
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Any

from fastplan.cli.amounts import age
from fastplan.cli.errors import NO, OK, CommandError, UsageError
from fastplan.cli.parser import add_actions, cache_place

HELP = """
Lists, shows, checks and prunes the plans in a cache: a directory, or a URL that fsspec knows.
Without --cache it is what FASTPLAN_CACHE names, or else the platform's usual directory for caches.
"""
EXAMPLES = """
fastplan cache ls
fastplan cache show 3f2a
fastplan cache verify --cache s3://bucket/plans
fastplan cache prune --max-age 30d --max-size 1GiB
fastplan cache why-miss 3f2a
"""
_MOST_BYTES = 64 << 20  # of a file that holds a request


def add_arguments(parser: ArgumentParser) -> None:
    add = add_actions(parser, _add_cache)
    ls = add("ls", _ls, "list the entries, last used first", "fastplan cache ls --json")
    ls.add_argument("--json", action="store_true", help="entries as JSON")

    show = add("show", _show, "show all about a key's entries", "fastplan cache show 3f2a")
    show.add_argument("key", metavar="KEY", help="a key, or how it begins")
    show.add_argument("--request", action="store_true", help="print the request it is a plan for")
    show.add_argument("--json", action="store_true", help="entries as JSON")

    told = "compute every plan's costs again and check it; exit code 2 if an entry is bad"
    verify = add("verify", _verify, told, "fastplan cache verify\nfastplan cache verify 3f2a b81")
    verify.add_argument("keys", metavar="KEY", nargs="*", help="keys, or how they begin")
    verify.add_argument("--remove", action="store_true", help="delete bad entries")
    verify.add_argument("--json", action="store_true", help="verdicts as JSON")

    told = "delete entries, the least recently used first"
    prune = add("prune", _prune, told, "fastplan cache prune --max-age 30d --dry-run")
    prune.add_argument("--max-age", type=age, metavar="AGE", help="unused for so long: 30d")
    prune.add_argument("--max-size", type=_size, metavar="SIZE", help="of all that stays: 1GiB")
    prune.add_argument("--max-entries", type=_count, metavar="N", help="that stay")
    prune.add_argument("--all", action="store_true", help="delete everything")
    prune.add_argument("--dry-run", action="store_true", help="only say what would go")

    told = "name what differs between a request and the nearest one in the cache"
    why = add("why-miss", _why_miss, told, "fastplan cache why-miss request.json")
    why.add_argument("request", metavar="FILE", help="a key, a canonical request or a plan file")
    why.add_argument("--json", action="store_true", help="differences as JSON")


def _add_cache(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--cache", type=cache_place, metavar="WHERE", help="directory or URL of the cache"
    )


def run(args: Namespace) -> int:
    code: int = args.act(args)
    return code


def _store(args: Namespace) -> Any:
    """The store that is meant. Unguarded: here people wait, and can interrupt."""
    from fastplan.cache.stores import DirectoryStore, open_store
    from fastplan.report.names import visible

    try:
        store = open_store(_where(args))
    except ValueError as error:
        raise CommandError(f"--cache: {error}") from error
    # The default one, or the environment's, may be for plans to come; this one is a mistake.
    if args.cache and isinstance(store, DirectoryStore) and not os.path.exists(store.describe()):
        raise CommandError(f"--cache: there is no directory {visible(args.cache)}")
    return store


def _where(args: Namespace) -> str | os.PathLike[str]:
    from fastplan.cache.stores import default_directory

    return args.cache or os.environ.get("FASTPLAN_CACHE") or default_directory()


def _ls(args: Namespace) -> int:
    from fastplan.cache.inventory import read_items
    from fastplan.cli.cache_views import item_json, list_lines
    from fastplan.cli.terminal import Progress
    from fastplan.report.units import of_bytes, of_count

    store = _store(args)
    listed = list(store.entries())
    items = []
    with Progress("reading entries", len(listed)) as progress:
        for item in read_items(store, listed):
            items.append(item)
            progress.advance()
    items.sort(key=lambda item: (-(item.stored.used or 0.0), item.stored))
    if args.json:
        _print_json({"cache": store.describe(), "entries": [item_json(item) for item in items]})
    elif not items:
        print(f"no plans in {store.describe()}")
    else:
        print("\n".join(list_lines(items, time.time())))
        size = of_bytes(sum(item.stored.size for item in items))
        print(f"\n{of_count(len(items), 'entry', 'entries')}, {size} in {store.describe()}")
    return OK


def _show(args: Namespace) -> int:
    from fastplan.cache.entry import BadEntry
    from fastplan.cache.inventory import entries_with_prefix, read_items
    from fastplan.cli.cache_views import item_json, request_text, show_lines

    store = _store(args)
    items = list(read_items(store, entries_with_prefix(store, args.key)))
    if args.request:
        for item in items:
            try:
                text = request_text(item.entry) if item.entry is not None else ""
            except BadEntry as problem:
                raise CommandError(f"entry {item.stored.name}: {problem}") from problem
            if text:
                print(text)
                return OK
        raise CommandError(f"no entry of {args.key} keeps its request")
    if args.json:
        _print_json([item_json(item) for item in items])
        return OK
    print("\n\n".join("\n".join(show_lines(item, time.time())) for item in items))
    return OK


def _verify(args: Namespace) -> int:
    from fastplan.cache.audit import BAD, GOOD, PARTLY, Verdict, audit
    from fastplan.cache.inventory import entries_with_prefix, read_items
    from fastplan.cli.cache_views import KEY_DIGITS
    from fastplan.cli.terminal import Progress
    from fastplan.report.names import visible
    from fastplan.report.units import of_count

    store = _store(args)
    if args.keys:
        listed = [
            stored for key in dict.fromkeys(args.keys) for stored in entries_with_prefix(store, key)
        ]
    else:
        listed = list(store.entries())
    found = []
    with Progress("checking entries", len(listed)) as progress:
        for item in read_items(store, listed):
            verdict = audit(item.entry) if item.entry else Verdict(BAD, item.problem)
            found.append((item.stored, verdict))
            progress.advance()
    removed = [stored for stored, verdict in found if verdict.status == BAD and args.remove]
    for stored in removed:
        store.delete(stored.key, stored.name)
    counts = {status: sum(v.status == status for _, v in found) for status in (GOOD, PARTLY, BAD)}
    if args.json:
        entries = [
            {"key": stored.key, "name": stored.name, **verdict._asdict()}
            for stored, verdict in found
        ]
        _print_json({**counts, "removed": len(removed), "entries": entries})
    else:
        for stored, verdict in found:
            if verdict.status != GOOD:
                where = f"{stored.key[:KEY_DIGITS]} {stored.name}"
                print(f"{verdict.status:<6}  {where}: {visible(verdict.reason or '')}")
        told = f"{counts[GOOD]} good, {counts[PARTLY]} checked in part, {counts[BAD]} bad"
        gone = f", {len(removed)} removed" if args.remove else ""
        print(f"{of_count(len(found), 'entry', 'entries')}: {told}{gone}")
    return NO if counts[BAD] else OK


def _prune(args: Namespace) -> int:
    from fastplan.cache.inventory import Limits, select_for_pruning
    from fastplan.report.units import of_bytes, of_count

    limits = Limits(age=args.max_age, size=args.max_size, count=args.max_entries)
    if not args.all and limits == Limits():
        raise UsageError("say what to prune: --max-age, --max-size, --max-entries or --all")
    store = _store(args)
    listed = list(store.entries())
    chosen = listed if args.all else select_for_pruning(listed, limits, time.time())
    for stored in chosen:
        if args.dry_run:
            print(f"{stored.key} {stored.name} {of_bytes(stored.size)}")
        else:
            store.delete(stored.key, stored.name)
    size = of_bytes(sum(stored.size for stored in chosen))
    verb = "would be deleted from" if args.dry_run else "deleted from"
    told = f"{of_count(len(chosen), 'entry', 'entries')} of {len(listed)}, {size}"
    print(f"{told}, {verb} {store.describe()}")
    return OK


def _why_miss(args: Namespace) -> int:
    from fastplan.cache.plan_cache import PlanCache
    from fastplan.cache.why_miss import explain_miss
    from fastplan.report.names import visible
    from fastplan.report.units import of_count

    store = _store(args)
    request = _request(args.request, store)
    try:
        told = explain_miss(request, PlanCache(store, timeout=600.0))
    except ValueError as error:
        raise CommandError(str(error)) from error
    if args.json:
        _print_json(
            {
                "key": told.key,
                "same_key": told.same_key,
                "nearest": told.nearest,
                "changed": [change._asdict() for change in told.changed],
            }
        )
        return OK
    print(f"request {told.key}")
    for reason in told.same_key:
        print(f"  same request: {visible(reason)}")
    if told.nearest is None:
        print("  no other entry to compare with")
        return OK
    changed = of_count(len(told.changed), "field differs", "fields differ")
    print(f"  nearest entry {told.nearest}: {changed}")
    for change in told.changed:
        print(f"    {visible(str(change))}")
    return OK


def _request(text: str, store: Any) -> str | bytes:
    """A request in a file, or the key of an entry."""
    from fastplan.cache.inventory import entries_with_prefix

    if not os.path.isfile(text):
        if not re.fullmatch("[0-9a-fA-F]+", text):
            raise CommandError(f"{text}: no such file, and keys are hexadecimal")
        return str(entries_with_prefix(store, text)[0].key)
    with open(text, "rb") as file:
        data = file.read(_MOST_BYTES + 1)
    try:
        content = json.loads(data) if len(data) <= _MOST_BYTES else None
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict):
        if "plan_version" in content:
            return _canonical(content, text)
        if isinstance(basis := content.get("basis"), dict):
            return _canonical(basis.get("request"), text)
        if isinstance(content.get("fingerprint"), str):
            return str(content["fingerprint"])
    raise CommandError(f"{text}: is neither a canonical request nor a plan with a fingerprint")


def _canonical(content: Any, path: str) -> bytes:
    from fastplan.cache.fingerprint import canonical_json, parse_canonical

    try:
        canonical = canonical_json(content)
        parse_canonical(canonical)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path}: is no canonical request: {error}") from error
    return canonical


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def _size(text: str) -> int:
    from fastplan.spec.units import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ArgumentTypeError(f"must be a whole number, not {text!r}")
    return int(text)
