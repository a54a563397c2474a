"""YAML becomes plain data with the lines of its keys, whatever is written in it."""

import math
import sys

import pytest

from fastplan.files import document as document_module
from fastplan.files.document import MOST_LEVELS, Document, parse_document
from tests.files.documents import MODEL, lines_of, refusal, value_of


@pytest.mark.usefixtures("loader")
class TestYaml:
    def test_values_are_plain_data(self):
        assert value_of(MODEL) == {
            "defaults": {"dim": 128, "kernels": ["fused", "dense"]},
            "tables": [
                {"dim": 128, "kernels": ["fused", "dense"], "name": "users", "rows": "40M"},
                {
                    "name": "item ids",
                    "rows": 1000,
                    "weighted": True,
                    "pooling": [1.5, math.inf],
                },
            ],
        }

    def test_lines_are_those_of_the_keys_and_of_where_merged_fields_are_written(self):
        lines = lines_of(parse_document(MODEL, "m.yaml"))
        assert lines[""] == 2
        assert lines["tables"] == 5
        assert lines["tables[0]"] == 6
        assert lines["tables[0].dim"] == 3
        assert lines["tables[0].rows"] == 8
        assert lines["tables[1].pooling"] == 12
        assert lines["tables[1].pooling[1]"] == 14

    def test_an_alias_has_the_line_where_it_stands(self):
        lines = lines_of(parse_document(b"a: &x\n  b: 1\nc: *x\n", "m.yaml"))
        assert lines["c"] == 3
        assert lines["c.b"] == 2

    @pytest.mark.parametrize("text", [b"", b"\n", b"# nothing\n", b"---\n", b"~", b"null"])
    def test_an_empty_file_is_null(self, text):
        document = parse_document(text, "m.yaml")
        assert document.root is None
        assert document.line(()) is not None

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            (b"1e6", "1e6"),
            (b"1.0e+6", 1e6),
            (b"0x10", 16),
            (b"08", "08"),
            (b"no", False),
            (b"'no'", "no"),
            (b"!!str 12", "12"),
            (b"!!float 1", 1.0),
            (b"2020-01-01", "2020-01-01"),
            (b"2020-01-01 10:00:00", "2020-01-01 10:00:00"),
            (b"12:30:45", "12:30:45"),
            (b"<<", "<<"),
            (b"=", "="),
            (b"{'<<': 1}", {"<<": 1}),
            (b"- <b>&amp;</b>", ["<b>&amp;</b>"]),
            (b'"\\0\\x1b[31m"', "\0\x1b[31m"),
            ("ключ: значение".encode(), {"ключ": "значение"}),
            (b"\xef\xbb\xbfa: 1", {"a": 1}),
            (b"a: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
            (b"&k a: *k", {"a": "a"}),
            (b"{a: &x b, *x : c}", {"a": "b", "b": "c"}),
            (b"[&x 1, &x 2, *x]", [1, 2, 2]),
            (b"&x [&x 1, *x]", [1, 1]),
            (b"--- 1\n...\n", 1),
            (b"%YAML 1.1\n--- 1", 1),
        ],
    )
    def test_other_values(self, text, value):
        assert value_of(text) == value

    def test_merged_fields_give_way_to_own_ones_and_later_sources_to_earlier_ones(self):
        text = b"""
a: &a {x: 1, y: 1}
b: &b {y: 2, z: 2}
own: {y: 3, <<: *a}
both: {<<: [*a, *b]}
twice: {<<: *b, <<: *a}
chain: {<<: {<<: *a, q: 4}}
"""
        found = value_of(text)
        assert found["own"] == {"x": 1, "y": 3}
        assert found["both"] == {"x": 1, "y": 1, "z": 2}
        assert found["twice"] == {"x": 1, "y": 2, "z": 2}
        assert found["chain"] == {"x": 1, "y": 1, "q": 4}

    @pytest.mark.parametrize(
        ("text", "line", "place", "problem"),
        [
            (b"a: 1\nb:\n  c: 1\n  c: 2", 4, "b.c", "occurs twice, in lines 3 and 4"),
            (b"a: 1\n'a': 2", 2, "a", "occurs twice, in lines 1 and 2"),
            (b"a: 1\n? a\n: 2", 2, "a", "occurs twice"),
            (b"a: &x\n  - 1\n  - *x", 3, "a[1]", "inside `&x`"),
            (b"a: &x {b: {c: *x}}", 1, "a.b.c", "inside `&x`"),
            (b"a: &x\n  <<: *x", 2, 'a["<<"]', "inside `&x`"),
            (b"a:\n- *x", 2, "a[0]", "no `&x` stands before it"),
            (b"a: 1\n---\nb: 2", 2, "", "must be one document"),
            (b"a:\n  1: 2", 2, "a", "must have strings as keys; put 1 in quotes"),
            (b"on: 2", 1, "", "must have strings as keys; put true in quotes"),
            (b"? \n: 2", 1, "", "must have strings as keys; put null in quotes"),
            (b"? [a]\n: 1", 1, "", "must have strings as keys"),
            (b"? {a: b}\n: 1", 1, "", "must have strings as keys"),
            (b"[&x [1], {*x : 1}]", 1, "[1]", "must have strings as keys"),
            (b"a:\n  <<: 3", 2, 'a["<<"]', "must refer to a mapping"),
            (b"a:\n  <<: [{b: 1}, 3]", 2, 'a["<<"]', "must refer to a mapping"),
            (b"a: !!python/object/apply:os.system [ls]", 1, "a", "has the tag"),
            (b"- 1\n- !!python/name:os.system", 2, "[1]", "has the tag"),
            (b"a: !!binary aGk=", 1, "a", "has the tag"),
            (b"a: !!set {b}", 1, "a", "has the tag"),
            (b"a: !!omap [b: 1]", 1, "a", "has the tag"),
            (b"a: !mine {b: 1}", 1, "a", "has the tag '!mine'"),
            (b"a: !!map [1]", 1, "a", "has the tag"),
            (b"!x a: 1", 1, "", "has the tag '!x'"),
            (b"a: 1\nb: !!int x", 2, "b", "must be a number"),
            (b"a: 010", 1, "a", "octal"),
            (b"a: 1\nb: [1, 2\n", 3, "", "is not YAML"),
            (b"a:\n\t- 1", 2, "", "indent with spaces, not with tabs"),
            (b"a: 1\nb: c: d", 2, "", "is not YAML"),
            (b"a: 1\nb: 'x\n\n", 4, "", "is not YAML"),
            (b"a: 1\n  b: 2", 2, "", "is not YAML"),
            (b"a: 1\nb: \x01", 2, "", "characters are not allowed"),
            (b"a: 1\nb\0: 2", 2, "", "characters are not allowed"),
            (b"a: 1\nb: \xff\n", 2, "", "is not UTF-8 text"),
            ("a: 1".encode("utf-16"), 1, "", "is not UTF-8 text"),
            (b"a: \xed\xa0\x80", 1, "", "is not UTF-8 text"),
            (b"[" * 100_000, 1, "", f"more than {MOST_LEVELS} levels"),
            (b"{a: " * 100_000, 1, "", f"more than {MOST_LEVELS} levels"),
            (b"- " * 5_000, 1, "", f"more than {MOST_LEVELS} levels"),
        ],
    )
    def test_what_is_wrong_is_named_with_its_line_and_place(self, text, line, place, problem):
        error = refusal(text)
        assert problem in error.problem
        assert (error.file, error.place) == ("m.yaml", place)
        # At its end, the parsers differ by one on where a text breaks off.
        assert error.line in ((line - 1, line) if problem == "is not YAML" else (line,))

    @pytest.mark.parametrize(
        "text",
        [
            b'a: "\\ud800"',
            b'"\\udfff": 1',
            b'a: "\\U00110000"',
            b'a: "\\UFFFFFFFF"',
            b"%YAML 1." + b"9" * 5000 + b"\n--- a",
            b"a: " + b"9" * 5000,
            b"a: 0x" + b"f" * 5000,
            b"a: 1.0e+999",
            b"%TAG ! tag:yaml.org,2002:python/\n--- !name:os.system x",
            b"a: !<%ff> b",
        ],
    )
    def test_what_no_value_can_hold_is_refused(self, text):
        refusal(text)

    def test_an_alias_bomb_is_refused_before_it_goes_off(self):
        levels = ["a0: &a0 [" + ",".join(["1"] * 10) + "]"]
        levels += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
        error = refusal("\n".join(levels).encode())
        assert "more than 2,000,000 values" in error.problem
        assert error.line == 7

    def test_a_bomb_of_merges_is_refused(self, monkeypatch):
        monkeypatch.setattr(document_module, "MOST_VALUES", 10_000)
        fields = ", ".join(f"k{i}: 1" for i in range(100))
        text = f"- &a {{{fields}}}\n" + "- {<<: *a}\n" * 200
        assert "values" in refusal(text.encode()).problem
        assert len(value_of(text[: text.index("\n") + 1].encode() + b"- {<<: *a}\n" * 20)) == 21

    def test_too_many_values_are_refused(self, monkeypatch):
        monkeypatch.setattr(document_module, "MOST_VALUES", 1000)
        assert len(value_of(b"- 1\n" * 999)) == 999
        assert refusal(b"- 1\n" * 1001).line == 1001

    def test_aliases_do_not_get_around_the_depth_limit(self):
        nested = "[" * 60 + "*{}" + "]" * 60
        text = "- &a 1\n- &b " + nested.format("a") + "\n- &c " + nested.format("b")
        assert refusal(text.encode()).line == 3

    def test_the_deepest_allowed_nesting_is_read(self):
        text = b"[" * MOST_LEVELS + b"]" * MOST_LEVELS
        assert isinstance(parse_document(text, "m.yaml"), Document)


def test_yaml_without_pyyaml_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert "pip install pyyaml" in refusal(b"a: 1").problem
    assert value_of(b'{"a": 1}', "m.json") == {"a": 1}
