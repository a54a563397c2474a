"""Starts a job from a bundle and saves new plans and code to it.

An error in a bundle does not stop a job: it costs a warning, and the plan and the compilation that
the bundle would have saved.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fastplan.bundle import compiled
from fastplan.bundle.bundle import Bundle, BundleMismatch, open_bundle
from fastplan.bundle.compiled import environment_facts
from fastplan.bundle.format import BundleError, Content, PlanId, write_content
from fastplan.bundle.gathering import merge, stored_plans
from fastplan.cache.plan_cache import StoreError, cache_at
from fastplan.cache.stores import MemoryStore
from fastplan.cache.why_miss import explain_miss
from fastplan.model.log import escaped_logger

logger = escaped_logger(__name__)

_LOCK_TIMEOUT = 60.0  # seconds to wait for other ranks of the host that write the same file


class RankInfo(NamedTuple):
    """The rank of this process, and its local rank: its slot in a bundle."""

    rank: int
    slot: int

    @property
    def saves(self) -> bool:
        """Whether this rank saves: the ranks of the first host have everything."""
        return self.rank == self.slot


class Start:
    """The start of one process. Pass `cache` to the planner.

    A bundle that is missing, damaged or for another model does not raise.

    Args:
        path: The bundle.
        trust: Loads its compiled code, which can do anything to this process.
        model: The model's name. A bundle for another model is not used.

    Attributes:
        path: The bundle.
        cache: The plan cache with the bundle's plans. FASTPLAN_CACHE_KEY is its key.
        plans: The number of plans in the bundle.
        artifacts: The number of compile artifacts that were loaded.
        kernels: The number of CPU kernels that were loaded.
        notes: What could not be used, and why.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, trust: bool = False, model: str | None = None
    ) -> None:
        self.path = Path(path)
        self.cache = cache_at(MemoryStore())
        self.plans = 0
        self.artifacts = 0
        self.kernels = 0
        self.notes: list[str] = []
        self._trust = trust
        self._model = model
        self._place = rank_from_environment()
        # Clocks of file systems are slightly off.
        self._began = time.time() - 2.0
        self._known: dict[PlanId, bytes] = {}
        self._load()

    def save(self) -> bool:
        """Saves what this start had to plan or to compile.

        Call it on every rank, after the first step; only the ranks of the first host write. An
        error is logged as a warning and not raised.

        Returns:
            Whether there was anything new.
        """
        if not self._place.saves:
            return False
        try:
            return self._save()
        except Exception as error:  # of the disk or of torch: training must continue
            self._note(f"{self.path} can't be written: {type(error).__name__}: {error}")
            return False

    def _load(self) -> None:
        try:
            bundle = open_bundle(self.path)
        except FileNotFoundError:
            _log(logging.INFO, f"no bundle {self.path} yet")
            return
        except (OSError, BundleError) as error:
            self._note(f"{self.path} can't be used: {getattr(error, 'reason', error)}")
            return
        made_for = bundle.header.model
        if None not in (self._model, made_for) and self._model != made_for:
            self._note(f"{self.path} is for model {made_for}, this is {self._model}")
            return
        self._load_plans(bundle)
        if bundle.has_code and self._trust:
            self._load_code(bundle)
        elif bundle.has_code:
            way_out = "pass `trust=True` to load it"
            _log(logging.INFO, f"compiled code of {self.path} was not loaded: {way_out}")

    def _load_plans(self, bundle: Bundle) -> None:
        for part in bundle.header.plans:
            try:
                stored = bundle.plan(part)
            except BundleError as problem:
                self._note(f"{self.path} has a plan that can't be used: {problem.reason}")
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
        except Exception as error:  # torch may raise any error
            self._note(f"compiled code of {self.path} can't be used: {error}")
        else:
            self.artifacts, self.kernels = loaded.artifacts, loaded.kernels
            if loaded.skipped:
                reasons = "; ".join(loaded.skipped)
                self._note(f"CPU kernels of {self.path} are compiled again: {reasons}")

    def _save(self) -> bool:
        slot = self._place.slot
        present = stored_plans(self.cache.store)
        fresh = {plan: data for plan, data in present.items() if self._known.get(plan) != data}
        code = compiled.collect_compiled_code(self._began) if self._trust else None
        if not fresh and code is None:
            return False
        self._note_difference(fresh)
        device = "cpu" if code is None else compiled.device_name(slot)
        made = Content(model=self._model, facts=environment_facts(device))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _one_writer(self.path):
            old = _read_current(self.path)
            content = merge(old, present if old is None else fresh, code, slot, made)
            if content is not None:
                try:
                    write_content(content, self.path)
                except BundleError:  # a part of the old one is damaged
                    content = merge(None, present, code, slot, made)
                    assert content is not None
                    write_content(content, self.path)
                _log(logging.INFO, f"wrote {self.path}: {len(content.plans)} plans")
        self._known = present
        return content is not None

    def _note_difference(self, fresh: dict[PlanId, bytes]) -> None:
        """Names the fields that differ from the plans of the bundle."""
        known = {key for key, _ in self._known}
        for key, _ in fresh:
            if not known or key in known:
                continue
            try:
                explanation = explain_miss(key, self.cache)
            except (StoreError, ValueError):
                continue
            if explanation.changed:
                names = ", ".join(map(str, explanation.changed[:3]))
                self._note(f"no plan of {self.path} is for this model and cluster: {names}")

    def _note(self, text: str) -> None:
        self.notes.append(text)
        # Every rank finds the same; one per host logs it.
        level = logging.WARNING if self._place.slot == 0 else logging.DEBUG
        _log(level, text)


def _log(level: int, text: str) -> None:
    logger.log(level, "fastplan: %s", text)


def start(path: str | os.PathLike[str], *, trust: bool = False, model: str | None = None) -> Start:
    """Starts from the bundle in a file, if it exists and can be used.

    Args:
        path: The bundle.
        trust: Loads its compiled code into torch. This is code, which can do anything to this
            process.
        model: The model's name. A bundle for another model is not used.

    Returns:
        The start. Pass its `cache` to the planner, and call `save()` after the first step.

    Raises:
        TypeError: `trust` is not a bool.
        ValueError: FASTPLAN_CACHE_KEY is no key.
    """
    if type(trust) is not bool:
        raise TypeError(f"`trust` must be True or False, not {trust!r}")
    return Start(path, trust=trust, model=model)


def rank_from_environment() -> RankInfo:
    """Returns the ranks that torchrun and other launchers set in the environment."""
    rank, local = _number("RANK"), _number("LOCAL_RANK")
    if rank is None:
        return RankInfo(local or 0, local or 0)
    return RankInfo(rank, local or 0)


def _number(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    return int(text) if text.isascii() and text.isdigit() else None


def _read_current(path: Path) -> Bundle | None:
    """Returns the bundle that is in the file now; None if it can't be extended.

    Code that other users can have written must not get into a file that only this user can write.
    """
    try:
        bundle = open_bundle(path)
    except (FileNotFoundError, BundleError):
        return None
    return None if bundle.has_code and bundle.untrusted_because else bundle


def _open_no_link(path: str, flags: int) -> int:
    """Opens a file, but not through a link: a link must not create or lock files elsewhere."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


@contextmanager
def _one_writer(path: Path) -> Iterator[None]:
    """Lets one process at a time extend the file.

    Without file locks, the last one wins, and a later start adds again what is missing.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(path.with_name(f".{path.name}.lock"), "ab", opener=_open_no_link) as stream:
        end = time.monotonic() + _LOCK_TIMEOUT
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > end:
                    reason = f"another process has been writing it for {_LOCK_TIMEOUT:g} s"
                    raise TimeoutError(reason) from error
                time.sleep(0.05)
            except OSError:
                break
        yield
