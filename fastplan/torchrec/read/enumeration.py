"""Builds a planner's search space, natively if enumerator and estimators are stock.

The space is drafted first (tables and their allowed options) and finished (estimated) only for a
search: a plan from the cache needs only the draft.
"""

from __future__ import annotations

import copy
from typing import Any

from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.types import ShardingOption

from fastplan.engine.solve import OutOfRange
from fastplan.planning.run import Run
from fastplan.torchrec.compat import NotNative, describe, require_stock
from fastplan.torchrec.differences import search_space
from fastplan.torchrec.differences.estimates import MISSING
from fastplan.torchrec.read import components
from fastplan.torchrec.read.extract import Extraction
from fastplan.torchrec.read.menus import overridden
from fastplan.torchrec.read.modules import CachedSharder
from fastplan.torchrec.read.native_parts import native_parts
from fastplan.torchrec.read.space import EstimatedSpace, PythonSpace, Space
from fastplan.torchrec.state import state_of
from fastplan.torchrec.write import hooks
from fastplan.torchrec.write.options import copy_options
from fastplan.torchrec.write.plan import LazyList

_ENUMERATOR_METHODS = (
    "enumerate",
    "populate_estimates",
    "_filter_sharding_types",
    "_filter_compute_kernels",
    "_get_num_buckets",
)

_OTHER_INPUTS = "this search space was enumerated before, with other inputs"


class Enumeration:
    """Builds the search space of one module for one planner."""

    def __init__(
        self, planner: Any, run: Run, module: Any, sharders: list[Any], cached: list[CachedSharder]
    ) -> None:
        self._planner = planner
        self._enumerator = planner._enumerator
        self._run = run
        self._module = module
        self._cached_sharders = cached
        self._sharders = sharders  # the caller's list, which TorchRec also stores
        self._is_remembered = False

    def draft(self) -> Space | None:
        """Returns tables and options, not estimated yet if that is native; None without a table."""
        try:
            self._require_stock()
            space = self._cached_space() or self._extracted(self._enumerator)
        except NotNative as why:
            return self._enumerated(str(why))
        if space is None:
            self._remember([])
            self._set_planner_search_space([])
        return space

    def described(self) -> EstimatedSpace:
        """Returns the native draft. Raises NotNative if a part is custom."""
        self._require_stock()
        space = self._cached_space() or self._extracted(self._enumerator)
        if space is None:
            raise NotNative("the module has no tables")
        if space.extraction.estimators.custom:
            raise NotNative("an estimator is custom")
        return space

    def _require_stock(self) -> None:
        """Raises NotNative unless enumerator and estimates can be native."""
        require_stock(self._enumerator, EmbeddingEnumerator, *_ENUMERATOR_METHODS)
        if MISSING:
            raise NotNative(MISSING)

    def leave(self, space: Space) -> None:
        """Stores the options where TorchRec's enumerator stores them."""
        if isinstance(space, EstimatedSpace):
            self._remember(_lazily(space))
            # A cached space is shown as a copy, a new one with the lists of the user's constraints.
            self._set_planner_search_space(_lazily(space, with_lists=not self._is_remembered))

    def shown(self, space: Space) -> list[ShardingOption]:
        """Returns the options that TorchRec's planner would hand to proposers."""
        options = space.all_options()
        # Options of a cached space are copies.
        if isinstance(space, EstimatedSpace) and not self._is_remembered:
            _share_lists(space, options)
        return options

    def finish(self, space: Space) -> Space:
        """Returns the space with every estimate."""
        if not isinstance(space, EstimatedSpace):
            return space
        try:
            with self._run.phase("estimate"):
                _ = space.columns
        except OutOfRange as why:
            self._clear_enumerator_cache(space)
            enumerated = self._enumerated(str(why))
            assert enumerated is not None
            return enumerated
        custom = space.extraction.estimators.custom
        if not custom:
            self.leave(space)
            hooks.after_enumeration(self._planner, self._enumerator._last_stored_search_space)
            return space
        for estimator in custom:
            reason = f"{describe(estimator)} is a custom estimator, which runs in Python"
            self._run.add_reason("mixed", reason)
        native = native_parts(self._enumerator, self._subclass_options)
        with self._run.phase("custom estimate"), native:
            options = _estimated(self.shown(space), space)
        self._remember(copy_options(options))
        self._set_planner_search_space(options)
        hooks.after_enumeration(self._planner, options)
        return PythonSpace(options)

    def _cached_space(self) -> EstimatedSpace | None:
        """Returns the enumerator's last search space; TorchRec caches it by module and sharders."""
        enumerator = self._enumerator
        if not _is_stored(enumerator, self._module, self._sharders):
            return None
        stored = enumerator._last_stored_search_space
        # The reader of the options may have changed them.
        if not isinstance(stored, LazyList) or stored.is_built:
            raise NotNative("this search space was enumerated before")
        self._is_remembered = True
        space: EstimatedSpace = stored.source
        if any(map(components.is_scaleup, self._planner._proposers)):
            return self._current_space(space)
        return space

    def _current_space(self, space: EstimatedSpace) -> EstimatedSpace:
        """Returns a cached space for the scale-up proposer, which estimates options again.

        Raises NotNative if the inputs of the estimates have changed.
        """
        enumerator = copy.copy(self._enumerator)  # which has the previous data of the sharders
        try:
            now = self._extracted(enumerator)
        except Exception as error:
            raise NotNative(f"{_OTHER_INPUTS}: {error}") from error
        before = space.extraction
        if (
            now is None
            or now.request != space.request
            or now.extraction.batch_size != before.batch_size
            or enumerator._sharder_data_map != self._enumerator._sharder_data_map
        ):
            raise NotNative(_OTHER_INPUTS)
        return EstimatedSpace(now.request, now.extraction, self._enumerator, space.origins)

    def _extracted(self, enumerator: Any) -> EstimatedSpace | None:
        with self._run.phase("request"):
            state = state_of(self._planner)
            extraction = Extraction(
                enumerator,
                self._cached_sharders,
                deterministic=state.deterministic,
                hardware=state.hardware,
            )
            extraction.walk(self._module)
            if not extraction.tables:
                return None
            return EstimatedSpace(extraction.request(), extraction, enumerator)

    def _enumerated(self, why: str) -> PythonSpace | None:
        """Returns the space of the enumerator's own Python code."""
        self._run.add_reason("mixed", f"enumerated in Python: {why}")
        with self._run.phase("enumerate"), native_parts(self._enumerator, self._subclass_options):
            options = self._enumerator.enumerate(module=self._module, sharders=self._sharders)
        self._set_planner_search_space(options)
        if not options:
            return None
        hooks.after_enumeration(self._planner, options)
        return PythonSpace(options)

    def _subclass_options(
        self, enumerator: Any, module: Any, sharders: list[Any]
    ) -> list[ShardingOption]:
        """Does what TorchRec's enumerate() does inside an enumerator that extends it.

        Raises:
            NotNative, OutOfRange: TorchRec's code must run.
        """
        if enumerator is not self._enumerator:
            raise NotNative("another thread has another enumerator")
        if method := overridden(enumerator, "_get_num_buckets", "_get_stash_weights"):
            raise NotNative(f"{describe(enumerator)} has its own `{method}`")
        if _is_stored(enumerator, module, sharders):
            stored = enumerator._last_stored_search_space
            if not isinstance(stored, LazyList) or stored.is_built:
                raise NotNative("this search space was enumerated before")
            return stored.source.all_options()  # type: ignore[no-any-return]
        known = {id(cached.sharder): cached for cached in self._cached_sharders}
        cached = [known.get(id(sharder)) or CachedSharder(sharder) for sharder in sharders]
        extraction = Extraction(enumerator, cached, deterministic=False)
        extraction.walk(module)
        if not extraction.tables:
            raise NotNative("the module has no tables")
        space = EstimatedSpace(extraction.request(), extraction, enumerator)
        is_native = not extraction.estimators.custom
        if not is_native or overridden(enumerator, "populate_estimates"):
            return self._estimated_by_subclass(space, module, sharders)
        options = space.all_options()
        _share_lists(space, options)
        self._remember(_lazily(space), module, sharders)
        return options

    def _estimated_by_subclass(
        self, space: EstimatedSpace, module: Any, sharders: list[Any]
    ) -> list[ShardingOption]:
        """Lets the enumerator estimate the options, and copies them before it returns them."""
        estimators = space.extraction.estimators
        estimators.has_perf = estimators.has_storage = False
        space = space.unpriced()
        options = space.all_options()
        _share_lists(space, options)
        self._enumerator.populate_estimates(options)
        self._remember(copy_options(options), module, sharders)
        return options

    def _remember(self, options: list[ShardingOption], *inputs: Any) -> None:
        """Stores options where TorchRec's enumerator does, for a module and sharders."""
        module, sharders = inputs or (self._module, self._sharders)
        self._enumerator._last_stored_module = module
        self._enumerator._last_stored_sharders = sharders
        self._enumerator._last_stored_search_space = options

    def _clear_enumerator_cache(self, space: EstimatedSpace) -> None:
        """Removes options that can't be estimated from the enumerator's cache."""
        stored = self._enumerator._last_stored_search_space
        if isinstance(stored, LazyList) and stored.source is space:
            self._enumerator._last_stored_module = None
            self._enumerator._last_stored_sharders = None
            self._enumerator._last_stored_search_space = None

    def _set_planner_search_space(self, options: list[ShardingOption]) -> None:
        search_space.show(self._planner, options)


def _is_stored(enumerator: Any, module: Any, sharders: Any) -> bool:
    """TorchRec's condition: a module may not be equal to itself, and tuples would not ask it."""
    return bool(
        enumerator._last_stored_module == module and enumerator._last_stored_sharders == sharders
    )


def _lazily(space: EstimatedSpace, *, with_lists: bool = False) -> list[ShardingOption]:
    def build() -> list[ShardingOption]:
        options = space.all_options()
        if with_lists:
            _share_lists(space, options)
        return _estimated(options, space)

    return LazyList(build, source=space)


def _share_lists(space: EstimatedSpace, options: list[ShardingOption]) -> None:
    """Gives options the list objects of the constraints, as TorchRec's enumerator does."""
    rules = {(origin.path, origin.name): origin.constraint for origin in space.origins}
    for option in options:
        rule = rules[option.module[0], option.name]
        if rule is not None:
            option.input_lengths, option.feature_names = rule.users_lists


def _estimated(options: list[ShardingOption], space: EstimatedSpace) -> list[ShardingOption]:
    """Returns options with native estimates, after custom estimators have added to them."""
    for estimator in space.extraction.estimators.custom:
        estimator.estimate(options, sharder_data_map=space.enumerator._sharder_data_map)
    return options
