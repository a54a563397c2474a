"""`fastplan cache why-miss`: what differs between a request and the plans that are kept."""

import json

import pytest

from tests.cache.planned import keep
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
