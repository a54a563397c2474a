"""`fastplan cache`: what it shows, checks and removes."""

import json
import os
import time
from dataclasses import replace

import pytest

from fastplan.cache.entry import decode, encode, parse_key, sign
from fastplan.cache.stores import DirectoryStore
from fastplan.model.plan import PlanRecord
from tests.cache.planned import CONTEXT, keep
from tests.cache.samples import data
from tests.cache.samples import key as sample_key
from tests.cli.command import call, run
from tests.problems import GIB

DAY = 86400


@pytest.fixture
def damaged(store):
    """A good entry and, under another key, a truncated one; the latter's key."""
    keep(store)
    key = keep(store, rows=20_000)
    ((name, whole),) = store.read(key)
    store.write(key, name, whole[:-1])
    return key


def age(where, key, days):
    """Makes a key's entries last used so many days ago."""
    then = time.time() - days * DAY
    for file in (where / key[:2] / key).iterdir():
        os.utime(file, (then, then))


def test_an_empty_cache_has_no_plans(capsys, where):
    assert call(capsys, "cache", "ls") == (0, f"no plans in {where}\n", "")
    assert call(capsys, "cache", "verify")[:2] == (
        0,
        "0 entries: 0 good, 0 checked in part, 0 bad\n",
    )


@pytest.mark.parametrize("words", [("ls",), ("show", "3f"), ("verify",), ("prune", "--all")])
def test_a_directory_that_is_named_and_not_there_is_an_error(capsys, where, words):
    code, out, err = call(capsys, "cache", *words, "--cache", str(where))
    assert (code, out) == (1, "")
    assert err == f"fastplan: error: --cache: there is no directory {where}\n"


def test_ls_lists_entries_last_used_first(capsys, store, where):
    old, new = keep(store), keep(store, rows=20_000, model="dlrm")
    age(where, old, days=3)
    code, out, err = call(capsys, "cache", "ls")
    assert (code, err) == (0, "")
    titles, first, second, _, total = out.splitlines()
    assert titles.split() == [
        *("key", "model", "tables", "SKU", "ranks", "precision", "costs", "torchrec", "engine"),
        *("rating", "size", "created", "used"),
    ]
    assert first.split()[:3] == [new[:12], "dlrm", "3"]
    assert first.split()[3:7] == ["1.0", "GiB", "each", "8"]  # the SKU is not known
    assert first.split()[7:9] == ["1.8.0", "native"]
    assert second.split()[0] == old[:12]
    assert second.endswith("3 d")
    assert total.startswith("2 entries, ")
    assert total.endswith(f" in {where}")


def test_ls_tells_entries_apart(capsys, where, tmp_path):
    spec = tmp_path / "m.json"
    table = {"name": "t", "rows": 1000, "dim": 64}
    spec.write_text(json.dumps({"model": "ranker", "batch_size": 64, "tables": [table]}))
    words = ("plan", str(spec), "--world-size", "8", "--cache", str(where), "--quiet")
    for more in (
        ("--sku", "h100"),
        ("--sku", "a100-80"),
        ("--sku", "h100", "--precision", "fp16"),
        ("--sku", "h100", "--costs", "hardware"),
    ):
        assert call(capsys, *words, *more)[0] == 0
    _, out, _ = call(capsys, "cache", "ls", "--cache", str(where))
    rows = [line.split()[1:7] for line in out.splitlines()[1:5]]
    assert sorted(rows) == [
        ["ranker", "1", "a100-80", "8", "32-bit", "torchrec"],
        ["ranker", "1", "h100", "8", "16-bit", "torchrec"],
        ["ranker", "1", "h100", "8", "32-bit", "hardware"],
        ["ranker", "1", "h100", "8", "32-bit", "torchrec"],
    ]


def test_ls_shows_entries_that_cannot_be_read(capsys, damaged):
    code, out, _ = call(capsys, "cache", "ls")
    assert code == 0
    (line,) = [line for line in out.splitlines() if damaged[:12] in line]
    assert "can't be read" in line


def test_ls_as_json_has_everything(capsys, damaged, where):
    code, out, _ = call(capsys, "cache", "ls", "--json")
    found = json.loads(out)
    assert (code, found["cache"]) == (0, str(where))
    by_key = {entry["key"]: entry for entry in found["entries"]}
    assert by_key.pop(damaged)["problem"].startswith("truncated: ")
    (good,) = by_key.values()
    assert good["provenance"]["engine"] == "native"
    assert good["problem"] is None
    assert good["capacities"] == [[8, GIB, 8 * GIB, 0]]
    assert good["used"].endswith("+00:00")


YEAR_9999, YEAR_10000 = 253402300799.0, 253402300800.0


@pytest.mark.parametrize(
    ("used", "date", "age"),
    [
        (None, None, "?"),
        (-1.0, "1969-12-31T23:59:59+00:00", " d"),
        (0.0, "1970-01-01T00:00:00+00:00", " d"),
        (YEAR_9999, "9999-12-31T23:59:59+00:00", "0 s"),
        (YEAR_10000, None, "?"),
        (2.0**63, None, "?"),
        (-1e18, None, "?"),
        (float("nan"), None, "?"),
        (float("inf"), None, "?"),
    ],
)
def test_an_entry_may_have_been_used_at_any_time(capsys, store, monkeypatch, used, date, age):
    key = keep(store)
    listed = [stored._replace(used=used) for stored in store.entries()]
    monkeypatch.setattr(DirectoryStore, "entries", lambda _: iter(listed))
    code, out, err = call(capsys, "cache", "ls", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out, parse_constant=pytest.fail)["entries"][0]["used"] == date
    code, out, _ = call(capsys, "cache", "ls")
    assert code == 0
    assert out.splitlines()[1].endswith(age)
    code, out, _ = call(capsys, "cache", "show", key)
    assert code == 0
    assert ("used        unknown" in out) == (date is None)


def test_the_cache_argument_comes_before_the_environment(capsys, where, tmp_path):
    keep(DirectoryStore(tmp_path / "other"))
    code, out, _ = call(capsys, "cache", "ls", "--cache", str(tmp_path / "other"))
    assert code == 0
    assert out.splitlines()[-1].startswith("1 entry, ")


def test_without_a_cache_it_is_the_platforms(tmp_path):
    ended = run("cache", "ls", XDG_CACHE_HOME=str(tmp_path), LOCALAPPDATA=str(tmp_path))
    assert ended.returncode == 0
    assert ended.stdout.endswith(os.path.join("fastplan", "plans") + "\n")


def test_show_tells_all_about_an_entry(capsys, store):
    key = keep(store, model="dlrm", names=("x", "y"))
    code, out, err = call(capsys, "cache", "show", key[:6].upper())
    assert (code, err) == (0, "")
    told = dict(line.split(maxsplit=1) for line in out.splitlines() if line)
    assert told["key"] == key
    assert told["planned"] == "by  native engine, TorchRec 1.8.0"
    assert told["solved"] == "for  8 ranks with 1.0 GiB HBM, 8.0 GiB DDR, 0 B SSD"
    assert told["request"].startswith("2 tables, 20,001 rows, ")
    assert told["cluster"] == "8 ranks, 4 per host"
    assert told["search"] == "grid, greedy, greedy, uniform"
    assert told["model"] == "dlrm"
    assert told["plan"].count("table") >= 1


def test_show_has_every_entry_of_a_key(capsys, store):
    key = keep(store)
    assert keep(store, hbm=2 * GIB) == key
    _, out, _ = call(capsys, "cache", "show", key)
    assert out.count(f"key         {key}") == 2
    _, out, _ = call(capsys, "cache", "show", key, "--json")
    assert [entry["key"] for entry in json.loads(out)] == [key, key]


def test_show_can_print_the_request(capsys, store):
    key = keep(store)
    code, out, _ = call(capsys, "cache", "show", key, "--request")
    assert code == 0
    assert json.loads(out)["context"] == CONTEXT


def test_show_of_what_cannot_be_read_tells_the_problem(capsys, damaged):
    code, out, _ = call(capsys, "cache", "show", damaged)
    assert code == 0
    assert "problem     truncated" in out
    code, _, err = call(capsys, "cache", "show", damaged, "--request")
    assert code == 1
    assert err == f"fastplan: error: no entry of {damaged} has its request\n"


def test_show_of_an_entry_with_foreign_content_is_no_crash(capsys, store):
    store.write(sample_key(1), "a", data(1))
    code, out, _ = call(capsys, "cache", "show", sample_key(1))
    assert code == 0
    assert "plan        can't be read: " in out
    assert "request     can't be read: " in out


def test_show_of_an_unknown_key_is_an_error(capsys, store, where):
    keep(store)
    code, out, err = call(capsys, "cache", "show", "zz")
    assert (code, out) == (1, "")
    assert err == f"fastplan: error: no entry in {where} has a key that begins with 'zz'\n"


def test_texts_in_entries_play_no_tricks(capsys, store):
    key = keep(store, names=("a\x1b[2J", "\u202eb"), model="\x1b]0;title\x07\nfake", host="h\x9b")
    for words in (("ls",), ("show", key), ("why-miss", key), ("verify",)):
        _, out, err = call(capsys, "cache", *words)
        assert not any(sign in out + err for sign in "\x1b\x07\x9b\u202e")
        assert "\nfake" not in out


def test_verify_finds_good_entries_good(capsys, store):
    keep(store)
    keep(store, rows=20_000)
    code, out, err = call(capsys, "cache", "verify")
    assert (code, out, err) == (0, "2 entries: 2 good, 0 checked in part, 0 bad\n", "")


def test_verify_names_bad_entries_and_says_no(capsys, damaged):
    code, out, _ = call(capsys, "cache", "verify")
    assert code == 2
    line, total = out.splitlines()
    assert line.startswith(f"bad     {damaged[:12]} ")
    assert ": truncated: " in line
    assert total == "2 entries: 1 good, 0 checked in part, 1 bad"


def test_verify_computes_plans_again(capsys, store):
    key = keep(store)
    ((name, whole),) = store.read(key)
    entry = decode(whole)
    flattered = replace(PlanRecord.unpack(entry.payload), rating=entry.rating / 2)
    forged = replace(entry, payload=flattered.pack(), rating=flattered.rating)
    store.write(key, name, encode(forged))
    code, out, _ = call(capsys, "cache", "verify", key)
    assert code == 2
    assert "the rating is" in out


def test_verify_goes_on_after_a_planted_entry(capsys, store):
    good, bad = keep(store), keep(store, context={**CONTEXT, "group_size": 1 << 31})
    code, out, err = call(capsys, "cache", "verify")
    assert (code, err) == (2, "")
    line, total = out.splitlines()
    assert line.startswith(f"bad     {bad[:12]} ")
    assert total == "2 entries: 1 good, 0 checked in part, 1 bad"
    assert call(capsys, "cache", "verify", good)[0] == 0


def test_verify_tells_what_it_could_not_check(capsys, store):
    keep(store, context={**CONTEXT, "custom": [["mine.PerfModel", "1"]]})
    code, out, _ = call(capsys, "cache", "verify")
    assert code == 0
    assert "partly" in out
    assert "1 entry: 0 good, 1 checked in part, 0 bad" in out


def test_verify_looks_at_the_named_keys_only(capsys, store, damaged):
    good = keep(store)
    code, out, _ = call(capsys, "cache", "verify", good[:8], good[:8])
    assert (code, out) == (0, "1 entry: 1 good, 0 checked in part, 0 bad\n")
    assert call(capsys, "cache", "verify", "zz")[0] == 1


def test_verify_removes_bad_entries_when_told_to(capsys, store, damaged):
    code, out, _ = call(capsys, "cache", "verify", "--remove")
    assert code == 2
    assert out.endswith("1 bad, 1 removed\n")
    assert store.read(damaged) == []
    assert call(capsys, "cache", "verify")[0] == 0


def test_verify_as_json(capsys, damaged):
    code, out, _ = call(capsys, "cache", "verify", "--json")
    found = json.loads(out)
    assert code == 2
    assert (found["good"], found["partly"], found["bad"], found["removed"]) == (1, 0, 1, 0)
    (bad,) = [entry for entry in found["entries"] if entry["status"] == "bad"]
    assert bad["key"] == damaged
    assert bad["reason"].startswith("truncated: ")


def test_verify_tells_which_entries_planners_with_this_key_do_not_use(
    capsys, store, where, monkeypatch
):
    keep(store)
    monkeypatch.setenv("FASTPLAN_CACHE_KEY", "0123456789abcdef")
    key = keep(store, rows=20_000)
    ((name, whole),) = store.read(key)
    secret = parse_key("0123456789abcdef")
    store.write(key, name, encode(sign(decode(whole), secret)))
    code, out, _ = call(capsys, "cache", "verify", "--remove")
    line, total = out.splitlines()
    assert code == 2
    assert line.endswith(": it is not signed, but this cache requires a signature")
    assert total == (
        "2 entries: 1 good, 0 checked in part, 0 bad, 1 not signed with FASTPLAN_CACHE_KEY, "
        "0 removed"
    )
    monkeypatch.setenv("FASTPLAN_CACHE_KEY", "fedcba9876543210")
    found = json.loads(call(capsys, "cache", "verify", "--json")[1])
    assert (found["good"], found["bad"], found["unsigned"]) == (0, 0, 2)
    monkeypatch.delenv("FASTPLAN_CACHE_KEY")
    assert call(capsys, "cache", "verify")[0] == 0


def test_verify_names_a_key_that_is_none(capsys, store, monkeypatch):
    keep(store)
    monkeypatch.setenv("FASTPLAN_CACHE_KEY", "short")
    code, _, err = call(capsys, "cache", "verify")
    assert code == 1
    assert err.startswith("fastplan: error: FASTPLAN_CACHE_KEY: ")


@pytest.fixture
def aged(store, where):
    """Keys of entries that were last used 0, 10, 20 and 30 days ago."""
    keys = []
    for i in range(4):
        keys.append(keep(store, rows=10_000 * (i + 1)))
        age(where, keys[-1], days=10 * i)
    return keys


def left(store, keys):
    return [i for i, key in enumerate(keys) if store.read(key)]


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (("--max-age", "15d"), [0, 1]),
        (("--max-age", "2w"), [0, 1]),
        (("--max-age", "360.5h"), [0, 1]),
        (("--max-age", "14d12h30m"), [0, 1]),
        (("--max-entries", "3"), [0, 1, 2]),
        (("--max-entries", "3", "--max-age", "5d"), [0]),
        (("--max-size", "1GiB"), [0, 1, 2, 3]),
        (("--max-size", "0"), []),
        (("--all",), []),
    ],
)
def test_prune_keeps_what_is_within_the_limits(capsys, store, aged, words, kept):
    code, out, err = call(capsys, "cache", "prune", *words)
    assert (code, err) == (0, "")
    assert left(store, aged) == kept
    count = 4 - len(kept)
    assert out.startswith(f"{count} {'entry' if count == 1 else 'entries'} of 4, ")


def test_prune_can_only_say_what_would_go(capsys, store, aged):
    code, out, _ = call(capsys, "cache", "prune", "--max-entries", "2", "--dry-run")
    assert code == 0
    assert left(store, aged) == [0, 1, 2, 3]
    assert [line.split()[0] for line in out.splitlines()[:2]] == [aged[3], aged[2]]
    assert "2 entries of 4" in out.splitlines()[2]
    assert "would be deleted" in out.splitlines()[2]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "choose what to prune"),
        (("--max-age", "30"), "must be a time such as 30d"),
        (("--max-age", "30y"), "must be a time such as 30d"),
        (("--max-age", "-1d"), "--max-age"),
        (("--max-size", "1 heap"), "must be a size such as"),
        (("--max-entries", "-1"), "--max-entries"),
        (("--max-entries", "1.5"), "must be a whole number"),
        (("--max-entries", "²"), "must be a whole number"),
    ],
)
def test_prune_without_a_clear_limit_is_a_usage_error(capsys, store, aged, words, told):
    code, out, err = call(capsys, "cache", "prune", *words)
    assert (code, out) == (1, "")
    assert told in err
    assert left(store, aged) == [0, 1, 2, 3]


@pytest.mark.parametrize("action", ["ls", "verify", "show ab", "prune --all", "why-miss ab"])
def test_a_store_that_is_down_is_an_error(capsys, tmp_path, action):
    (tmp_path / "file").write_text("in the way")
    code, out, err = call(capsys, "cache", *action.split(), "--cache", str(tmp_path / "file"))
    assert (code, out) == (1, "")
    assert err.startswith(f"fastplan: error: {tmp_path}/file: listing failed: ")
    assert "choose a directory" in err


def test_a_place_that_can_be_no_cache_is_an_error(capsys):
    code, _, err = call(capsys, "cache", "ls", "--cache", "file://elsewhere/plans")
    assert code == 1
    assert "--cache: `where` must be a directory of this host" in err
