"""The HTML report: self-contained, safe, complete."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from fastplan.ett.arithmetic import job_report
from fastplan.ett.building import load
from fastplan.ett.html import chosen_ranks, html_report, merge_small_pieces
from fastplan.ett.phases import Piece
from tests.ett.runs import Rank

NASTY = "</title></svg><script>alert(1)</script>\x1b[31m\u202e&amp;"


@pytest.fixture
def job(tmp_path):
    for attempt in range(2):
        for number in range(3):
            rank = Rank(
                tmp_path, number, world=3, attempt=attempt, begin=50.0 * attempt, host=NASTY[:20]
            )
            with rank.phase("broadcast", 0.5):
                rank.do("plan", 2.0, engine=NASTY, parts={NASTY: 1.0})
            rank.do(NASTY, 1.0).steps(10 * attempt, 10 * attempt + 12, 1.0)
            if attempt == 0:
                rank.recorder.failure(NASTY)
            else:
                rank.recorder.stop()
    return load(tmp_path)


class Page(HTMLParser):
    """Checks that elements are closed in order, and collects them."""

    VOID = ("meta", "link", "rect", "line")

    def __init__(self, text):
        super().__init__()
        self.tags, self._open = [], []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "link", "input"):
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag


def test_the_page_is_well_formed_and_needs_nothing_else(job):
    text = html_report(job)
    page = Page(text)
    assert not [tag for tag, _ in page.tags if tag in ("script", "img", "iframe", "object")]
    for tag, attributes in page.tags:
        assert "style" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        assert tag != "link" or attributes["href"] == "data:,"
    assert not re.search(r"(src|href)=\"(?!data:,)", text)
    assert "url(" not in text


def test_its_policy_allows_its_own_style_only(job):
    text = html_report(job)
    policy = next(a["content"] for t, a in Page(text).tags if t == "meta" and "http-equiv" in a)
    style = text.split("<style>")[1].split("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_names_can_hold_anything(job):
    text = html_report(job)
    assert "<script" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\x1b[31m" in text


def test_it_has_every_rank_of_every_attempt(job):
    text = html_report(job)
    for attempt in range(2):
        for rank in range(3):
            assert f"attempt {attempt} rank {rank}<" in text
    assert text.count("<details") == 2


def test_a_start_is_shown_once_more_without_launch_and_imports(tmp_path):
    rank = Rank(tmp_path, launched=0.0, begin=2.0, recorded=9.0, watched=9.0)
    rank.do("imports", 1.0).do("plan", 2.0).do("imports", 0.5).steps(1, 2, 1.0).recorder.stop()
    text = html_report(load(tmp_path))
    assert "Attempt 0: 13.5 s, 3.5 s after imports" in text
    after = text.split('class="after-imports"')[1].split("</details>")[0]
    assert "plan: 2.0 s" in after
    assert "Python and imports: 500.0 ms" in after
    assert "Python and imports: 1.0 s" not in after


def test_it_shows_the_figures_of_the_account(job):
    report = job_report(job)
    text = html_report(job, report)
    assert f"{100 * report.ett:.1f} %" in text
    assert "WASTED_PROGRESS_FROM_DISRUPTION" in text
    assert "model_initialization" in text


def test_many_ranks_are_a_choice_with_the_slowest_in_it(tmp_path):
    for number in range(100):
        rank = Rank(tmp_path, number, world=100)
        rank.do("plan", 9.0 if number == 77 else 1.0).steps(0, 3, 1.0).recorder.stop()
    job = load(tmp_path)
    ranks = [rank.rank for rank in chosen_ranks(job.attempts[0], 32)]
    assert len(ranks) == 32
    assert {0, 77} <= set(ranks)
    assert ranks == sorted(ranks)
    assert "32 of 100 ranks" in html_report(job)


def test_a_job_of_many_pieces_makes_a_page_of_bounded_size(tmp_path):
    rank = Rank(tmp_path).steps(0, 0, 1.0)
    for number in range(1, 4000):
        rank.do("eval", 0.1).steps(number, number, 0.1)
    rank.recorder.stop()
    assert len(html_report(load(tmp_path))) < 2_000_000


def test_pieces_too_small_to_see_become_one():
    pieces = [Piece(i, i + 1, "ab"[i % 2]) for i in range(10_000)]
    shown = merge_small_pieces(pieces, 0, 10_000)
    assert len(shown) <= 2001
    assert (shown[0].begin, shown[-1].end) == (0, 10_000)
