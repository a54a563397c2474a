"""`fastplan cache`: lists, shows, checks and prunes a plan cache."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastplan.cli.errors import NO, OK, CommandError, UsageError
from fastplan.cli.options import json_option, usual_cache
from fastplan.cli.output import Progress, print_json, print_lines
from fastplan.cli.parser import Args, Group, argument, option
from fastplan.cli.values import cache_place, count

if TYPE_CHECKING:
    from fastplan.cache.audit import Verdict
    from fastplan.cache.inventory import EntryInfo

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
_MOST_BYTES = 64 << 20  # of a file with a request
_UNSIGNED = "unsigned"  # or signed with another key, and so a miss for planners


cache = Group("cache", help=HELP, examples=EXAMPLES)
_cache_option = option("--cache WHERE", "directory or URL of the cache", read=cache_place)


def _store(args: Args) -> Any:
    """Opens the store without a timeout: the user waits, and can interrupt."""
    from fastplan.cache.stores import DirectoryStore, open_store

    try:
        store = open_store(usual_cache(args))
    except ValueError as error:
        raise CommandError(f"--cache: {error}") from error
    # The default directory may not exist yet; one that the user names must exist.
    if args.cache and isinstance(store, DirectoryStore) and not os.path.exists(store.describe()):
        raise CommandError(f"--cache: there is no directory {args.cache}")
    return store


@cache.action("ls", "list the entries, last used first", "fastplan cache ls --json")
@json_option("entries as JSON")
@_cache_option
def _ls(args: Args) -> int:
    from fastplan.cache.inventory import read_items
    from fastplan.cli.cache_views import item_json, list_lines
    from fastplan.report.units import format_bytes, format_count

    store = _store(args)
    listed = list(store.entries())
    items = []
    with Progress("reading entries", len(listed)) as progress:
        for item in read_items(store, listed):
            items.append(item)
            progress.advance()
    items.sort(key=lambda item: (-(item.stored.used or 0.0), item.stored))
    if args.json:
        print_json({"cache": store.describe(), "entries": [item_json(item) for item in items]})
    elif not items:
        print_lines(f"no plans in {store.describe()}")
    else:
        print("\n".join(list_lines(items, time.time())))
        total = format_bytes(sum(item.stored.size for item in items))
        count = format_count(len(items), "entry", "entries")
        print_lines("", f"{count}, {total} in {store.describe()}")
    return OK


@cache.action("show", "show the entries of a key", "fastplan cache show 3f2a")
@argument("KEY", "a key or its first characters", name="key")
@option("--request", "print the request of the plan")
@json_option("entries as JSON")
@_cache_option
def _show(args: Args) -> int:
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
                print_lines(text)
                return OK
        raise CommandError(f"no entry of {args.key} has its request")
    if args.json:
        print_json([item_json(item) for item in items])
        return OK
    for i, item in enumerate(items):
        print_lines(*([""] if i else []), *show_lines(item, time.time()))
    return OK


@cache.action(
    "verify",
    "compute every plan's costs again and check it; exit code 2 if an entry is bad, or not signed "
    "with FASTPLAN_CACHE_KEY, if that is set",
    "fastplan cache verify\nfastplan cache verify 3f2a b81",
)
@argument("[KEY...]", "keys or their first characters", name="keys")
@option("--remove", "delete bad entries")
@json_option("verdicts as JSON")
@_cache_option
def _verify(args: Args) -> int:
    from fastplan.cache.audit import BAD, GOOD, PARTLY
    from fastplan.cache.inventory import entries_with_prefix, read_items
    from fastplan.cli.cache_views import KEY_DIGITS
    from fastplan.report.units import format_count

    store = _store(args)
    check = _checker(store)
    if args.keys:
        listed = [
            stored for key in dict.fromkeys(args.keys) for stored in entries_with_prefix(store, key)
        ]
    else:
        listed = list(store.entries())
    found = []
    with Progress("checking entries", len(listed)) as progress:
        for item in read_items(store, listed):
            found.append((item.stored, check(item)))
            progress.advance()
    removed = [stored for stored, verdict in found if verdict.status == BAD and args.remove]
    for stored in removed:
        store.delete(stored.key, stored.name)
    counts = {
        status: sum(verdict.status == status for _, verdict in found)
        for status in (GOOD, PARTLY, BAD, _UNSIGNED)
    }
    if args.json:
        entries = [
            {"key": stored.key, "name": stored.name, **verdict._asdict()}
            for stored, verdict in found
        ]
        print_json({**counts, "removed": len(removed), "entries": entries})
    else:
        for stored, verdict in found:
            if verdict.status != GOOD:
                where = f"{stored.key[:KEY_DIGITS]} {stored.name}"
                print_lines(f"{verdict.status:<6}  {where}: {verdict.reason or ''}")
        totals = f"{counts[GOOD]} good, {counts[PARTLY]} checked in part, {counts[BAD]} bad"
        if counts[_UNSIGNED]:
            totals += f", {counts[_UNSIGNED]} not signed with FASTPLAN_CACHE_KEY"
        gone = f", {len(removed)} removed" if args.remove else ""
        print(f"{format_count(len(found), 'entry', 'entries')}: {totals}{gone}")
    return NO if counts[BAD] or counts[_UNSIGNED] else OK


def _checker(store: Any) -> Callable[[EntryInfo], Verdict]:
    """Returns a function that checks an entry, and its signature if there is a key.

    With FASTPLAN_CACHE_KEY, planners use no entry that is not signed with it. Such an entry may be
    good for planners with another key, so it is not BAD.
    """
    from fastplan.cache.audit import BAD, Verdict, audit
    from fastplan.cache.entry import BadEntry, encode
    from fastplan.cache.plan_cache import cache_at

    try:
        cache = cache_at(store)
    except ValueError as error:
        raise CommandError(str(error)) from error

    def check(item: EntryInfo) -> Verdict:
        if item.entry is None:
            return Verdict(BAD, item.problem)
        verdict = audit(item.entry)
        if verdict.status != BAD:
            try:
                cache.decode(encode(item.entry))
            except BadEntry as problem:
                return Verdict(_UNSIGNED, problem.reason)
        return verdict

    return check


@cache.action(
    "prune",
    "delete entries, the least recently used first",
    "fastplan cache prune --max-age 30d --dry-run",
)
@option("--max-age AGE", "entries unused for this long, such as 30d")
@option("--max-size SIZE", "total size to keep, such as 1GiB")
@option("--max-entries N", "number of entries to keep", read=count)
@option("--all", "delete everything")
@option("--dry-run", "only list what would be deleted")
@_cache_option
def _prune(args: Args) -> int:
    from fastplan.cache.inventory import Limits, select_for_pruning
    from fastplan.report.units import format_bytes, format_count

    limits = Limits(age=args.max_age, size=args.max_size, count=args.max_entries)
    if not args.all and limits == Limits():
        raise UsageError("choose what to prune: --max-age, --max-size, --max-entries or --all")
    store = _store(args)
    listed = list(store.entries())
    chosen = listed if args.all else select_for_pruning(listed, limits, time.time())
    for stored in chosen:
        if args.dry_run:
            print(f"{stored.key} {stored.name} {format_bytes(stored.size)}")
        else:
            store.delete(stored.key, stored.name)
    total = format_bytes(sum(stored.size for stored in chosen))
    verb = "would be deleted from" if args.dry_run else "deleted from"
    chosen_text = f"{format_count(len(chosen), 'entry', 'entries')} of {len(listed)}, {total}"
    print_lines(f"{chosen_text}, {verb} {store.describe()}")
    return OK


@cache.action(
    "why-miss",
    "name what differs between a request and the nearest one in the cache",
    "fastplan cache why-miss request.json",
)
@argument("FILE", "a key, a canonical request or a plan file", name="request")
@json_option("differences as JSON")
@_cache_option
def _why_miss(args: Args) -> int:
    from fastplan.cache.plan_cache import Cache
    from fastplan.cache.why_miss import explain_miss
    from fastplan.report.field_words import field_words
    from fastplan.report.units import format_count

    store = _store(args)
    request = _request(args.request, store)
    try:
        found = explain_miss(request, Cache(store, timeout=600.0))
    except ValueError as error:
        raise CommandError(str(error)) from error
    if args.json:
        print_json(
            {
                "key": found.key,
                "same_key": found.same_key,
                "nearest": found.nearest,
                "changed": [change._asdict() for change in found.changed],
            }
        )
        return OK
    same = (f"  same request: {reason}" for reason in found.same_key)
    print_lines(f"request {found.key}", *same)
    if found.nearest is None:
        print_lines("  no other entry to compare with")
        return OK
    count = format_count(len(found.changed), "field differs", "fields differ")
    changed = (f"    {field_words(change)}" for change in found.changed)
    print_lines(f"  nearest entry {found.nearest}: {count}", *changed)
    return OK


def _request(text: str, store: Any) -> str | bytes:
    """Returns the request in a file, or the key of an entry."""
    import json

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
    raise CommandError(f"{text}: is not a canonical request and not a plan with a fingerprint")


def _canonical(content: Any, path: str) -> bytes:
    from fastplan.cache.fingerprint import canonical_json, parse_canonical

    try:
        canonical = canonical_json(content)
        parse_canonical(canonical)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path}: is not a canonical request: {error}") from error
    return canonical
