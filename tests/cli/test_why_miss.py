"""`fastplan cache why-miss`: what differs between a request and the plans that are kept."""

import json
from dataclasses import replace

import pytest

from fastplan.cache.entry import FORMAT, decode, encode, pack_request, request_bytes
from fastplan.cache.fingerprint import fingerprint
from tests.cache.planned import CONTEXT, keep
from tests.cache.samples import data
from tests.cache.samples import key as sample_key
from tests.cli.command import call


def test_why_miss_names_what_differs_from_the_nearest_entry(capsys, store):
    old, new = keep(store), keep(store, names=("a", "b", "d"))
    code, out, err = call(capsys, "cache", "why-miss", new[:10])
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"request {new}"
    assert f"  nearest entry {old}: 2 fields differ" in out
    assert "    table sparse.d is new" in out


def test_the_same_model_on_other_ranks_is_nearer_than_another_model(capsys, store):
    other = keep(store, context={**CONTEXT, "local_world_size": 8, "group_size": 8, "more": 1})
    keep(store, names=("a", "b", "d"))
    code, out, _ = call(capsys, "cache", "why-miss", keep(store))
    assert (code, f"  nearest entry {other}: 3 fields differ" in out) == (0, True)


def test_why_miss_takes_a_request_from_a_file(capsys, store, tmp_path):
    key = keep(store)
    _, text, _ = call(capsys, "cache", "show", key, "--request")
    request = json.loads(text)
    request["ranks"] = 16
    file = tmp_path / "request.json"
    file.write_text(json.dumps(request, indent=2))
    code, out, _ = call(capsys, "cache", "why-miss", str(file), "--json")
    found = json.loads(out)
    assert code == 0
    assert found["same_key"] == []
    assert found["nearest"] == key
    assert found["changed"] == [{"field": "ranks", "old": 8, "new": 16}]


def test_why_miss_takes_a_plan_file_with_its_request_or_its_key(capsys, store, tmp_path):
    key = keep(store)
    _, text, _ = call(capsys, "cache", "show", key, "--request")
    file = tmp_path / "plan.json"
    for content in ({"basis": {"request": json.loads(text)}}, {"fingerprint": key}):
        file.write_text(json.dumps(content))
        code, out, _ = call(capsys, "cache", "why-miss", str(file))
        assert code == 0
        assert out.splitlines()[0] == f"request {key}"
        assert "same request: entry " in out
        assert "no other entry to compare with" in out


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "not a canonical request and not a plan"),
        (b"\xff\xfe", "not a canonical request and not a plan"),
        (b"[" * 100_000, "not a canonical request and not a plan"),
        (b"[1]", "not a canonical request and not a plan"),
        (b'{"fingerprint": 7}', "not a canonical request and not a plan"),
        (b'{"fingerprint": "../../x"}', "must be 16 to 128 lower-case hex digits"),
        (b'{"fingerprint": "' + b"ab" * 20 + b'"}', "no entry has the key " + "ab" * 20),
        (b'{"plan_version": 1}', "is not a canonical request: context: is missing"),
        (b'{"plan_version": NaN}', "is not a canonical request: "),
        (b'{"basis": {}}', "is not a canonical request: "),
        (b'{"basis": {"request": {"plan_version": 2}}}', "is not a canonical request: "),
    ],
)
def test_why_miss_of_a_file_without_a_request_is_an_error(capsys, store, tmp_path, content, told):
    keep(store)
    file = tmp_path / "some.json"
    file.write_bytes(content)
    code, out, err = call(capsys, "cache", "why-miss", str(file))
    assert (code, out) == (1, "")
    assert told in err


def test_why_miss_of_neither_a_file_nor_a_key_is_an_error(capsys, store):
    code, _, err = call(capsys, "cache", "why-miss", "no-such-file.json")
    assert code == 1
    assert err == "fastplan: error: no-such-file.json: no such file, and keys are hexadecimal\n"


def test_why_miss_is_not_stopped_by_entries_with_foreign_content(capsys, store):
    store.write(sample_key(1), "a", data(1))
    old, new = keep(store), keep(store, rows=20_000)
    code, out, _ = call(capsys, "cache", "why-miss", new)
    assert code == 0
    assert f"nearest entry {old}" in out


def plant(store, request):
    """Stores an entry with any bytes as its request, under their key, which is returned."""
    ((name, data),) = store.read(keep(store))
    key = fingerprint(request)
    store.write(key, name, encode(replace(decode(data), request=pack_request(request), key=key)))
    return key


def partial(store, **changes):
    """The bytes of a request with other fields; None removes a field."""
    ((_, data),) = store.read(keep(store))
    document = {**json.loads(request_bytes(decode(data))), **changes}
    return json.dumps({k: v for k, v in document.items() if v is not None}).encode()


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (b"", "it has no request"),
        (b"[]", "it can't be compared: it is not an object"),
        (b"{}", "it can't be compared: it has no 'table_count'"),
        (b"\xff", "it can't be compared: 'utf-8' codec can't decode"),
        (b"[" * 100_000, "it can't be compared: maximum recursion depth"),
        ({"ranks": "8"}, "it can't be compared: `ranks` must be a whole number"),
        ({"tables": {"path": [1], "name": ["a"]}}, "names of tables must be strings"),
        ({"tables": {"path": {}, "name": {"all": "a"}}}, "it has no 'all'"),
        ({"tables": {"path": {"all": "a"}, "name": ["a", "b", "c"]}}, "it has no 'menu'"),
        ({"context": {"a": 10**301}}, "integer with over 300 digits"),
        ({"context": {"a": float("nan")}}, "number that is not finite: NaN"),
    ],
)
def test_why_miss_of_a_key_whose_request_is_none_says_what_the_entry_is(
    capsys, store, request_, told
):
    raw = request_ if isinstance(request_, bytes) else partial(store, **request_)
    key = plant(store, raw)
    if not raw:
        ((name, data),) = store.read(key)
        store.write(key, name, encode(replace(decode(data), request=b"")))
    code, out, err = call(capsys, "cache", "why-miss", key)
    assert (code, out) == (1, "")
    assert err.startswith(f"fastplan: error: no entry of the key {key} has a request that can be")
    assert told in err
    assert "--debug" not in err
    assert call(capsys, "cache", "why-miss", keep(store))[0] == 0


def test_why_miss_of_a_key_with_a_damaged_entry_says_so(capsys, store):
    key = sample_key(1)
    store.write(key, "a", b"garbage")
    _, _, err = call(capsys, "cache", "why-miss", key)
    assert "pass the request itself (entry a: not an entry)" in err


@pytest.mark.parametrize(
    ("schema", "told"), [(1, "older schema 1"), (FORMAT.schema + 1, "newer schema 3")]
)
def test_why_miss_names_the_version_of_an_entry_of_another_fastplan(capsys, store, schema, told):
    key = keep(store)
    ((name, data),) = store.read(key)
    at = len(FORMAT.magic)
    store.write(key, "other", data[:at] + schema.to_bytes(2, "little") + data[at + 2 :])
    code, out, _ = call(capsys, "cache", "why-miss", key)
    assert code == 0
    assert f"  same request: entry other can't be read: {told}" in out
    assert f"  same request: entry {name} was solved for" in out


def test_why_miss_says_which_entries_of_a_key_belong_elsewhere_or_have_no_plan(capsys, store):
    key, other = keep(store), keep(store, rows=20_000)
    ((_, foreign),) = store.read(other)
    ((_, own),) = store.read(key)
    store.write(key, "foreign", foreign)
    store.write(key, "planless", encode(replace(decode(own), payload=b"no plan")))
    code, out, _ = call(capsys, "cache", "why-miss", key)
    assert code == 0
    assert f"  same request: entry foreign belongs to another request, {other}\n" in out
    assert "  same request: entry planless can't be read: too short for a plan\n" in out


def test_a_number_beyond_a_float_in_an_entry_ends_no_command(capsys, store):
    huge = {"reservation": {"policy": "x", "dense": {"hbm": 10**400}}, **CONTEXT}
    old, key = plant(store, partial(store, context=huge)), keep(store)
    code, out, _ = call(capsys, "cache", "why-miss", key)
    assert code == 0
    assert "no other entry to compare with" in out
    code, out, _ = call(capsys, "cache", "show", old)
    assert code == 0
    assert "request     can't be read: a canonical request must be JSON: integer with over" in out
