"""Plans in every format that people have them in."""

from __future__ import annotations

import os
import re
from typing import Any

from fastplan.files import replace_file
from fastplan.model.plan import Plan
from fastplan.plans.checks import BadValue, PlanFileError
from fastplan.plans.document import FORMAT, Document, parse_json, read_document
from fastplan.plans.file import plan_of, read_bytes, write_plan
from fastplan.plans.legal import check_ranks
from fastplan.plans.printed import MODULE, read_printed
from fastplan.plans.tables_json import read_serialized, read_tables, tables_text

READABLE = {
    "fastplan": "a plan file of fastplan's, JSON",
    "torcheasyrec": "the `plan` of a TorchEasyRec checkpoint, JSON",
    "torchrec-json": "ShardingPlan._serialize() of TorchRec, as JSON",
    "torchrec-text": "str(plan) of TorchRec, as its dry run saves it",
    "pickle": "a ShardingPlan from torch.save or pickle",
}
WRITABLE = ("fastplan", "torcheasyrec", "pickle")

_PICKLES = (b"\x80", b"PK\x03\x04")  # pickle since protocol 2; torch.save's archive
_IS_SPEC = "is a spec file, and a plan is needed; `fastplan plan` makes one of it"
# How spec files begin. A module of a plan may be called model, too, but it holds tables.
_SPEC = re.compile(rb'\{?\s*"?model"?\s*:\s*[^\s{]')


def read_any(
    path: str | os.PathLike[str], *, trust_pickle: bool = False, format: str | None = None
) -> Plan:
    """The plan of a file, in the given format or in the one that it is found to have.

    A pickle runs whatever code its writer put into it, so it is read only with `trust_pickle`, and
    needs TorchRec. Raises PlanFileError for a file that can't be read as a plan, and OSError as
    open() does.
    """
    name = os.fspath(path)
    if format is not None and format not in READABLE:
        raise PlanFileError(name, "", f"can't be read as {format!r}; known are {_known()}")
    with open(path, "rb") as stream:
        head = stream.read(4)
    if format == "pickle" or (format is None and head.startswith(_PICKLES)):
        return _unpickled(name, trust=trust_pickle)
    return parse_any(read_bytes(path), name, format=format)


def parse_any(data: bytes, name: str, *, format: str | None = None) -> Plan:
    """What `read_any` reads, other than a pickle. `name` stands for the file in errors."""
    try:
        document = _document(data, format)
        check_ranks(document.entries)
        return plan_of(document, name)
    except BadValue as error:
        raise PlanFileError(name, error.place, error.problem) from error
    except RecursionError as error:
        raise PlanFileError(name, "", "is nested too deeply") from error


def other_format(data: bytes) -> str | None:
    """What a file is that is no plan file of fastplan's, as far as that is known."""
    if data.startswith(_PICKLES):
        found = "pickle"
    elif data.lstrip().startswith(MODULE.encode()):
        found = "torchrec-text"
    elif _SPEC.match(data.lstrip()[:200]):
        return _IS_SPEC
    else:
        try:
            found = _json_format(parse_json(data))
        except (BadValue, RecursionError, AttributeError):
            return None
    if found == "fastplan":
        return None
    return f"is {READABLE[found]}: `fastplan convert` makes a plan file of it"


def write_any(plan: Plan, path: str | os.PathLike[str], format: str = "fastplan") -> None:
    """Writes a plan in one of the formats in WRITABLE, all at once.

    Raises PlanFileError for a format that can't be written, and for what a format can't hold.
    """
    if format not in WRITABLE:
        known = " or ".join(WRITABLE)
        raise PlanFileError(os.fspath(path), "", f"can't be written as {format!r}, only as {known}")
    if format == "fastplan":
        write_plan(plan, path)
    elif format == "torcheasyrec":
        replace_file(path, [tables_text(plan).encode()])
    else:
        _pickle(plan, os.fspath(path))


def _document(data: bytes, format: str | None) -> Document:
    if format == "torchrec-text" or (format is None and data.lstrip().startswith(MODULE.encode())):
        return read_printed(data, "torchrec-text")
    if format is None and _SPEC.match(data.lstrip()[:200]):
        raise BadValue("", _IS_SPEC)
    if format is None and data.lstrip()[:1] != b"{":
        what = "has" if data.strip() else "is empty; it has"
        raise BadValue("", f"{what} none of the known formats: {_known()}")
    content = parse_json(data)
    found = format or _json_format(content)
    if found == "fastplan":
        return read_document(content)
    if found == "torchrec-json":
        return read_serialized(content, found)
    return read_tables(content, found)


def _json_format(content: Any) -> str:
    """What a JSON object is, by the first thing that tells."""
    if content.get("format") == FORMAT:
        return "fastplan"
    inner, found = content, "torcheasyrec"
    if list(content) == ["plan"]:
        inner, found = content["plan"], "torchrec-json"
    for tables in inner.values() if isinstance(inner, dict) else ():
        for table in tables.values() if isinstance(tables, dict) else ():
            if isinstance(table, dict) and "sharding_type" in table:
                return found
    raise BadValue("", f"is JSON, but has none of the known formats: {_known()}")


def _unpickled(name: str, *, trust: bool) -> Plan:
    if not trust:
        raise PlanFileError(
            name,
            "",
            "is a pickle, which can run any code when it is read: if you trust its writer, give "
            "trust_pickle=True (--trust-pickle), or save the plan with fastplan.save_plan",
        )
    try:
        from fastplan.torchrec.plan_pickles import read_pickle
    except ImportError as error:
        raise PlanFileError(
            name, "", f"is a pickle, which only TorchRec reads: {_lacks(error)}"
        ) from error
    return read_pickle(name)


def _pickle(plan: Plan, name: str) -> None:
    try:
        from fastplan.torchrec.plan_pickles import write_pickle
    except ImportError as error:
        raise PlanFileError(name, "", f"only TorchRec writes pickles: {_lacks(error)}") from error
    write_pickle(plan, name)


def _lacks(error: ImportError) -> str:
    return f"{error}; `fastplan doctor` tells what to install"


def _known() -> str:
    return "; ".join(f"{name} ({what})" for name, what in READABLE.items())
