"""A job's start with a bundle: takes what is there, and leaves what the next start can use.

Nothing that is wrong with a bundle stops a job: it costs a warning, and the plan and the
compilation that it would have saved.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fastplan.bundle.bundle import Bundle, BundleMismatch, open_bundle
from fastplan.bundle.content import Content, PlanId, write_content
from fastplan.bundle.facts import installed_facts
from fastplan.bundle.format import BadBundle
from fastplan.bundle.gathering import stored_plans
from fastplan.bundle.merging import merged
from fastplan.cache.plan_cache import PlanCache, StoreError
from fastplan.cache.stores import MemoryStore
from fastplan.cache.why_miss import explain_miss
from fastplan.report.names import escape_name

logger = logging.getLogger(__name__)

_PATIENCE = 60.0  # seconds to wait for other ranks of the host that write the same file


class Place(NamedTuple):
    """Which rank this is, and which of its host: that is its slot in a bundle."""

    rank: int
    slot: int

    @property
    def saves(self) -> bool:
        """The ranks of the first host have all that the others have."""
        return self.rank == self.slot


class Start:
    """One process's start. `cache` is for the planner; the rest tells what the bundle gave.

    `plans`, `artifacts` and `kernels` count what was taken from it, and `notes` say what was not,
    and why: a bundle that is missing, damaged or for something else never raises.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, trust: bool = False, model: str | None = None
    ) -> None:
        self.path = Path(path)
        self.cache = PlanCache(MemoryStore())
        self.plans = 0
        self.artifacts = 0
        self.kernels = 0
        self.notes: list[str] = []
        self._trust = trust
        self._model = model
        self._place = place_here()
        # Clocks of file systems are a bit off.
        self._began = time.time() - 2.0
        self._known: dict[PlanId, bytes] = {}
        self._load()

    def save(self) -> bool:
        """Writes what this start had to plan or to compile into the bundle; False when there was
        nothing new. To be called by every rank, after the first step; only those of the first
        host write. An error is a warning, not an exception."""
        if not self._place.saves:
            return False
        try:
            return self._save()
        except Exception as error:  # of the disk or of torch's: training is what counts
            self._note(f"{self.path} can't be written: {type(error).__name__}: {error}")
            return False

    def _load(self) -> None:
        try:
            bundle = open_bundle(self.path)
        except FileNotFoundError:
            logger.info("fastplan: there is no bundle %s yet", self.path)
            return
        except (OSError, BadBundle) as error:
            self._note(f"{self.path} can't be used: {getattr(error, 'reason', error)}")
            return
        made_for = bundle.header.model
        if None not in (self._model, made_for) and self._model != made_for:
            self._note(f"{self.path} was made for model {made_for}, this is {self._model}")
            return
        self._load_plans(bundle)
        if bundle.has_code and self._trust:
            self._load_code(bundle)
        elif bundle.has_code:
            logger.info("fastplan: compiled code of %s stays there without `trust`", self.path)

    def _load_plans(self, bundle: Bundle) -> None:
        for part in bundle.header.plans:
            try:
                stored = bundle.plan(part)
            except BadBundle as problem:
                self._note(f"{self.path} is damaged: {problem.reason}")
                continue
            self.cache.store.write(part.key, part.name, stored.data)
            self._known[part.key, part.name] = stored.data
        self.plans = len(self._known)

    def _load_code(self, bundle: Bundle) -> None:
        try:
            loaded = bundle.load_artifacts(
                trust=self._trust, model=self._model, slot=self._place.slot
            )
        except BundleMismatch as other:
            self._note(f"compiled code of {self.path} is not for this job: {other}")
        except Exception as error:  # torch may raise anything over files that are not its own
            self._note(f"compiled code of {self.path} can't be used: {error}")
        else:
            self.artifacts, self.kernels = loaded.artifacts, loaded.kernels
            if loaded.skipped:
                told = "; ".join(loaded.skipped)
                self._note(f"CPU kernels of {self.path} are compiled anew: {told}")

    def _save(self) -> bool:
        from fastplan.bundle import compiled

        slot = self._place.slot
        present = stored_plans(self.cache.store)
        fresh = {plan: data for plan, data in present.items() if self._known.get(plan) != data}
        code = compiled.recorded(self._began) if self._trust else None
        if not fresh and code is None:
            return False
        self._tell_why(fresh)
        device = "cpu" if code is None else compiled.device_name(slot)
        made = Content(model=self._model, facts=installed_facts(device))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _one_writer(self.path):
            old = _present(self.path)
            content = merged(old, present if old is None else fresh, code, slot, made)
            if content is not None:
                try:
                    write_content(content, self.path)
                except BadBundle:  # the old one is damaged behind its header
                    content = merged(None, present, code, slot, made)
                    assert content is not None
                    write_content(content, self.path)
                logger.info("fastplan: wrote %s: %d plans", self.path, len(content.plans))
        self._known = present
        return content is not None

    def _tell_why(self, fresh: dict[PlanId, bytes]) -> None:
        """Names what differs from the plans that the bundle had."""
        known = {key for key, _ in self._known}
        for key, _ in fresh:
            if not known or key in known:
                continue
            try:
                told = explain_miss(key, self.cache)
            except (StoreError, ValueError):
                continue
            if told.changed:
                names = ", ".join(map(str, told.changed[:3]))
                self._note(f"no plan of {self.path} is for this model and cluster: {names}")

    def _note(self, text: str) -> None:
        self.notes.append(text)
        # Every rank finds the same; one per host may say so.
        level = logging.WARNING if self._place.slot == 0 else logging.DEBUG
        logger.log(level, "fastplan: %s", escape_name(text))


def start(path: str | os.PathLike[str], *, trust: bool = False, model: str | None = None) -> Start:
    """Begins a job's start with the bundle in that file, if there is one that can be used.

    Its plans are in the result's `cache`, for the planner. With `trust`, its compiled code is given
    to torch: that is code, which may do anything to this process. `model` is a name; a bundle for
    another model is not used. `Start.save()` after the first step writes what was new.
    """
    if type(trust) is not bool:
        raise TypeError(f"`trust` must be True or False, not {trust!r}")
    return Start(path, trust=trust, model=model)


def place_here() -> Place:
    """This process by the environment that torchrun and others set."""
    rank, local = _number("RANK"), _number("LOCAL_RANK")
    if rank is None:
        return Place(local or 0, local or 0)
    return Place(rank, local or 0)


def _number(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    return int(text) if text.isascii() and text.isdigit() else None


def _present(path: Path) -> Bundle | None:
    """The bundle as it is now; None when there is none that can be added to.

    Code that others may have written must not get into a file that only this user can write.
    """
    try:
        bundle = open_bundle(path)
    except (FileNotFoundError, BadBundle):
        return None
    return None if bundle.has_code and bundle.other_writers else bundle


def _open_no_link(path: str, flags: int) -> int:
    """Whoever can put a link there must not have files made, or locked, elsewhere."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


@contextmanager
def _one_writer(path: Path) -> Iterator[None]:
    """One process at a time adds to the file. Where files can't be locked, the last one wins, and
    what another one added is added again by a later start."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(path.with_name(f".{path.name}.lock"), "ab", opener=_open_no_link) as stream:
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > end:
                    told = f"another process has been writing it for {_PATIENCE:g} s"
                    raise TimeoutError(told) from error
                time.sleep(0.05)
            except OSError:
                break
        yield
