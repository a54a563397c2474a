"""The page of a fleet: one file with all jobs in it, and a page for each of the worst jobs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from fastplan import __version__
from fastplan.ett.fleet.jobs import RECORDED, FleetJob
from fastplan.ett.fleet.select import label
from fastplan.ett.fleet.summary import is_training, shown_names, worst_jobs
from fastplan.ett.fleet.text import fleet_text, format_date
from fastplan.ett.labels import KNOWN
from fastplan.ett.phases import phase_name, phase_order
from fastplan.files.storage import replace_file
from fastplan.report.html_data import embedded
from fastplan.report.page import render_page
from fastplan.report.terminal import escape_name
from fastplan.report.units import format_count, format_seconds

_MOST_LABELS = 12
_MOST_VALUES = 500  # of a label; more are no filter
_DIGITS = 7


def write_pages(jobs: Sequence[FleetJob], path: str, worst: int) -> list[str]:
    """Writes the page of a fleet, and a page for each of the worst jobs.

    Args:
        jobs: The jobs.
        path: The file. The pages of jobs are in a directory next to it, `NAME_jobs`.
        worst: How many jobs get a page; only recordings on this machine's disks do.

    Returns:
        The file, and the directory if there is one.
    """
    from fastplan.ett.building import load
    from fastplan.ett.html import html_report
    from fastplan.ett.reading import RecordError

    folder = f"{os.path.splitext(path)[0]}_jobs"
    links: dict[str, str] = {}
    for job in worst_jobs(jobs, worst):
        if job.kind != RECORDED or "://" in job.place:
            continue
        try:
            page = html_report(load(job.place))
        except (RecordError, OSError):
            continue  # gone since it was read
        os.makedirs(folder, exist_ok=True)
        name = f"{len(links) + 1:03}.html"
        replace_file(os.path.join(folder, name), [page.encode()])
        links[job.source] = f"{_quoted(os.path.basename(folder))}/{name}"
    replace_file(path, [fleet_page(jobs, links).encode()])
    return [path, folder] if links else [path]


def fleet_page(jobs: Sequence[FleetJob], links: Mapping[str, str] | None = None) -> str:
    """Renders the page of a fleet.

    Args:
        jobs: The jobs.
        links: URLs of pages about jobs, by their source.

    Returns:
        The page as HTML. It fetches nothing.
    """
    begins = [job.begin for job in jobs if job.begin is not None]
    dates = f", {format_date(min(begins))} to {format_date(max(begins))}" if begins else ""
    whole = format_seconds(sum(job.seconds for job in jobs))
    return render_page(
        "fleet.html",
        styles=("base.css", "lists.css", "ids.css", "fleet.css"),
        scripts=("base.js", "fleet.js"),
        title="Effective Training Time of a fleet",
        name=format_count(len(jobs), "job"),
        facts=f"{whole} of jobs{dates}",
        text=fleet_text(jobs, ()),
        version=__version__,
        data=Markup(embedded(page_data(jobs, links or {}))),
    )


def page_data(jobs: Sequence[FleetJob], links: Mapping[str, str]) -> dict[str, Any]:
    """Returns the data of the page: columns over jobs, with phases and labels by number."""
    shown = shown_names(jobs)
    names = sorted({name for job in jobs for name in job.phases}, key=phase_order)
    number = {name: i for i, name in enumerate(names)}
    labels = _labels(jobs)
    values = [{value: i for i, value in enumerate(label["values"])} for label in labels]
    return {
        "phases": [
            {"title": escape_name(phase_name(name).title), "trained": is_training(name)}
            for name in names
        ],
        "labels": [
            {"name": escape_name(each["name"]), "values": [escape_name(v) for v in each["values"]]}
            for each in labels
        ],
        "jobs": {
            "begin": [None if job.begin is None else round(job.begin) for job in jobs],
            "job": [escape_name(shown[job.source]) for job in jobs],
            "seconds": [_short(job.seconds) for job in jobs],
            "train": [_short(job.train_s) for job in jobs],
            "start": [
                None if job.time_to_start_s is None else _short(job.time_to_start_s) for job in jobs
            ],
            "recover": [[_short(took) for took in job.times_to_recover_s] for job in jobs],
            "failures": [job.failures for job in jobs],
            "phases": [
                [part for name, took in job.phases.items() for part in (number[name], _short(took))]
                for job in jobs
            ],
            "labels": [
                [
                    index[label(job, each["name"])]
                    for each, index in zip(labels, values, strict=True)
                ]
                for job in jobs
            ],
            "link": [links.get(job.source) for job in jobs],
        },
    }


def _labels(jobs: Sequence[FleetJob]) -> list[dict[str, Any]]:
    """The labels to filter by, with their values: the usual ones first, then the most common."""
    found: Counter[str] = Counter(name for job in jobs for name in job.labels)
    found["kind"] = 0
    usual = [name for name in KNOWN if name in found]
    names = [*usual, *(name for name, _ in found.most_common() if name not in usual)]
    labels = []
    for name in names:
        values = sorted({label(job, name) for job in jobs})
        if 1 < len(values) <= _MOST_VALUES:
            labels.append({"name": name, "values": values})
    return labels[:_MOST_LABELS]


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _quoted(name: str) -> str:
    from urllib.parse import quote

    return quote(name)
