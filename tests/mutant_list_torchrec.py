"""Mutants of the parts that know TorchRec; see mutant_list."""

from tests.mutant import Mutant

PATCH = (
    Mutant(
        name="patch-forgets-late-imports",
        file="fastplan/torchrec/patch/patch.py",
        old="        self.late_imports.start()\n",
        new="",
        tests=("tests/torchrec/test_late_imports.py",),
    ),
    Mutant(
        name="patch-keeps-its-import-hook",
        file="fastplan/torchrec/patch/patch.py",
        old="        if self.substitute.patches == 0:\n            self.late_imports.stop()\n",
        new="",
        tests=("tests/torchrec/test_late_imports.py",),
    ),
    Mutant(
        name="late-import-after-undo",
        file="fastplan/torchrec/patch/substitutes.py",
        old="            if self.patches == 0:\n                before, after = after, before\n",
        new="",
        tests=("tests/torchrec/test_late_imports.py",),
    ),
    Mutant(
        name="import-hook-drops-another",
        file="fastplan/torchrec/patch/late_imports.py",
        old='other = vars(loader).get("exec_module")',
        new="other = None",
        tests=("tests/torchrec/test_late_imports.py",),
    ),
    Mutant(
        name="patch-ignores-helpers",
        file="fastplan/torchrec/patch/substitutes.py",
        old="for function in (self.function, *self.relies_on):",
        new="for function in (self.function,):",
        tests=("tests/torchrec/test_init_patch.py",),
    ),
    Mutant(
        name="patch-warns-every-time",
        file="fastplan/torchrec/patch/patch.py",
        old="        _logged.add((name, reason))\n",
        new="",
        tests=("tests/torchrec/test_patch.py",),
    ),
)

REPLICAS = (
    Mutant(
        name="replicas-swap-layouts",
        file="fastplan/model/replicas.py",
        old="self.use_inter_host_allreduce else rank // self.groups",
        new="not self.use_inter_host_allreduce else rank // self.groups",
        tests=("tests/model/test_replicas.py",),
    ),
    Mutant(
        name="sync-of-data-parallel-tables",
        file="fastplan/planning/sync.py",
        old="synced = _SYNCED[record.kernel] & (record.sharding_type != _DATA_PARALLEL)",
        new="synced = np.ones(len(record.table), bool)",
        tests=("tests/planning/test_replicas.py",),
    ),
    Mutant(
        name="sync-without-the-network",
        file="fastplan/planning/sync.py",
        old="return inside + 2 * (far - 1) / far * (count / near) / links.far",
        new="return inside",
        tests=("tests/planning/test_replicas.py",),
    ),
    Mutant(
        name="group-forgets-small-replicas",
        file="fastplan/spec/replicas.py",
        old="min(given[rank] for rank in groups.replicas_at(position))",
        new="max(given[rank] for rank in groups.replicas_at(position))",
        tests=("tests/planning/test_replicas.py",),
    ),
    Mutant(
        name="group-is-planned-with-hosts-of-the-job",
        file="fastplan/spec/replicas.py",
        old="local_world_size=groups.local_world_size,",
        new="local_world_size=min(groups.group_size, groups.ranks_per_host),",
        tests=("tests/planning/test_replicas.py",),
    ),
    Mutant(
        name="replicas-may-overlap",
        file="fastplan/plans/replicas.py",
        old="if (pair := _overlap(shards)) is not None:",
        new="if (pair := None) is not None:",
        tests=("tests/plans/test_replicas.py",),
    ),
    Mutant(
        name="replicas-may-differ",
        file="fastplan/plans/replicas.py",
        old="            _check_alike(*first, rank, own, groups)",
        new="            pass",
        tests=("tests/plans/test_replicas.py",),
    ),
)
SHADOW = (
    Mutant(
        name="shadow-compares-hardware-costs",
        file="fastplan/torchrec/shadow/run.py",
        old="    if state.hardware is not None:\n",
        new="    if False:\n",
        tests=("tests/torchrec/test_shadow.py",),
    ),
    Mutant(
        name="shadow-has-its-own-order",
        file="fastplan/torchrec/shadow/run.py",
        old="    impose_orders(planner._enumerator, inputs.orders)\n",
        new="",
        tests=(
            "tests/torchrec/test_shadow.py::test_the_other_process_has_this_ones_order_of_options",
        ),
    ),
    Mutant(
        name="shadow-outlives-the-job",
        file="fastplan/torchrec/shadow/child.py",
        old="while os.getppid() == parent:",
        new="while True:",
        tests=(
            "tests/torchrec/test_shadow.py::test_a_job_that_is_killed_leaves_no_process_behind",
        ),
    ),
    Mutant(
        name="doctor-forgets-the-driver",
        file="fastplan/doctor/releases.py",
        old="return stack.driver and stack.system",
        new="return stack.system",
        tests=("tests/doctor/test_fixes.py",),
    ),
)
EXTENDED = (
    Mutant(
        name="order-of-options-not-in-key",
        file="fastplan/torchrec/read/menus.py",
        old="            if order:\n",
        new="            if order and not self._deterministic:\n",
        tests=("tests/parity/test_keys.py",),
    ),
    Mutant(
        name="own-filters-asked-once",
        file="fastplan/torchrec/read/menus.py",
        old="        if self._has_own_filters:",
        new="        if self._deterministic:",
        tests=("tests/parity/test_extended_parts.py",),
    ),
    Mutant(
        name="class-is-not-restored",
        file="fastplan/torchrec/read/native_parts.py",
        old="for part, kind in changed:",
        new="for part, kind in changed[1:]:",
        tests=("tests/parity/test_extended_parts.py",),
    ),
    Mutant(
        name="own-estimates-forgotten",
        file="fastplan/torchrec/read/enumeration.py",
        old='if not is_native or overridden(enumerator, "populate_estimates"):',
        new="if not is_native:",
        tests=("tests/parity/test_extended_parts.py",),
    ),
    Mutant(
        name="poolings-of-the-option-ignored",
        file="fastplan/torchrec/read/option_estimates.py",
        old="if own is not None and len(own) == len(option.input_lengths):",
        new="if own is None:",
        tests=("tests/torchrec/test_option_estimates.py",),
    ),
    Mutant(
        name="watch-skips-lists",
        file="cpp/python/watch.cpp",
        old="i < PyList_GET_SIZE(list); ++i",
        new="i < 1; ++i",
        tests=("tests/engine/test_watch.py",),
    ),
    Mutant(
        name="watch-trusts-parts-that-changed",
        file="cpp/python/watch.cpp",
        old="    if (!was_known) return;\n",
        new="",
        tests=("tests/engine/test_watch.py",),
    ),
    Mutant(
        name="options-remembered-unread",
        file="fastplan/torchrec/search/known_options.py",
        old="        if self._are_as_read():",
        new="        if True:",
        tests=("tests/torchrec/test_known_options.py",),
    ),
    Mutant(
        name="failed-placement-without-ranks",
        file="fastplan/torchrec/search/mixed.py",
        old="        self._place(failed.options, numbers, left)\n",
        new="",
        tests=("tests/parity/test_extended_parts.py",),
    ),
    Mutant(
        name="failed-placement-forgets-ranks",
        file="fastplan/torchrec/search/mixed.py",
        old="[old if rank is None else rank for rank, (old, _) in zip(ranks, before, strict=True)]",
        new="ranks",
        tests=("tests/parity/test_no_plan.py",),
    ),
    Mutant(
        name="error-shows-edited-options",
        file="fastplan/torchrec/search/failures.py",
        old="                    _restore(shard, row)\n",
        new="                    pass\n",
        tests=("tests/parity/test_no_plan.py",),
    ),
)

SUPPORT = (
    Mutant(
        name="watch-forgets-constants",
        file="fastplan/torchrec/support/watch.py",
        old='    f"{PACKAGE}.constants": PLANNER,\n',
        new="",
        tests=("tests/parity/test_replaced.py",),
    ),
    Mutant(
        name="watch-forgets-shapes",
        file="fastplan/torchrec/support/watch.py",
        old='    "torchrec.distributed.sharding_plan": PLANNER,\n',
        new="",
        tests=("tests/parity/test_replaced.py",),
    ),
    Mutant(
        name="verdict-of-others",
        file="fastplan/files/private.py",
        old="if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):",
        new="if False:",
        tests=("tests/torchrec/test_versions.py",),
    ),
    Mutant(
        name="proof-ignores-plans",
        file="fastplan/torchrec/support/proof.py",
        old="if found := first_difference(actual.plan, expected.plan):",
        new="if found := None:",
        tests=("tests/torchrec/test_proof.py",),
    ),
    Mutant(
        name="proof-ignores-estimates",
        file="fastplan/torchrec/support/proof.py",
        old="if found := first_difference(actual.options, expected.options):",
        new="if found := None:",
        tests=("tests/torchrec/test_proof.py",),
    ),
    Mutant(
        name="failed-search-keeps-its-state",
        file="fastplan/torchrec/planner.py",
        old="    before.restore()\n",
        new="",
        tests=("tests/torchrec/test_fallback.py", "tests/parity/test_extended_parts.py"),
    ),
)

LIVE = (
    Mutant(
        name="live-tables-get-any-settings",
        file="fastplan/torchrec/live/optimizers.py",
        old="_PRECISION = 1e-6 ",
        new="_PRECISION = 1e6 ",
        tests=("tests/torchrec/test_resharding.py",),
    ),
    Mutant(
        name="a-rank-fetches-what-it-holds",
        file="fastplan/planning/exchange.py",
        old="    if target in held_by:\n        return target\n",
        new="",
        tests=("tests/planning/test_exchange.py",),
    ),
    Mutant(
        name="one-copy-sends-everything",
        file="fastplan/planning/exchange.py",
        old="lambda rank: (sent[rank], rank))",
        new="lambda rank: rank)",
        tests=("tests/planning/test_exchange.py",),
    ),
    Mutant(
        name="rounds-without-a-limit",
        file="fastplan/planning/exchange.py",
        old="rows = min(end - row, room // row_bytes)",
        new="rows = end - row",
        tests=("tests/planning/test_exchange.py",),
    ),
    Mutant(
        name="moved-tables-get-random-weights",
        file="fastplan/torchrec/live/modules.py",
        old="_UnsyncedDDP, lambda self: None",
        new="_UnsyncedDDP, reset",
        tests=("tests/torchrec/test_resharding.py",),
    ),
    Mutant(
        name="moved-tables-forget-their-learning-rate",
        file="fastplan/torchrec/live/optimizers.py",
        old="        group.update(settings.group)\n        inner.set_learning_rate(settings.lr)\n",
        new="",
        tests=("tests/torchrec/test_resharding.py",),
    ),
    Mutant(
        name="wrapped-optimizers-keep-old-groups",
        file="fastplan/torchrec/live/optimizers.py",
        old="        wrapper.param_groups = inner.param_groups\n",
        new="",
        tests=("tests/torchrec/test_resharding.py",),
    ),
    Mutant(
        name="wrapped-optimizers-lose-own-state",
        file="fastplan/torchrec/live/optimizers.py",
        old="{**params, **own}, {**state, **kept}",
        new="{**params, **own}, {**state}",
        tests=("tests/torchrec/test_resharding.py",),
    ),
    Mutant(
        name="different-row-wise-states-merge-unasked",
        file="fastplan/torchrec/live/tensors.py",
        old='if merge != "mean" and len(differs):',
        new="if False:",
        tests=("tests/torchrec/test_resharding.py",),
    ),
    Mutant(
        name="old-tables-stay-in-memory",
        file="fastplan/torchrec/resharding.py",
        old="        for each in exchanges:\n            each.forget()\n",
        new="",
        tests=("tests/torchrec/test_resharding.py",),
    ),
    Mutant(
        name="a-failed-rank-moves-alone",
        file="fastplan/torchrec/resharding.py",
        old="            for each in exchanges:\n                each.undo()\n",
        new="",
        tests=("tests/torchrec/test_running_job.py",),
    ),
)

NO_PLAN = tuple(
    Mutant(
        name=name,
        file="fastplan/torchrec/write/replay.py",
        old=old,
        new=new,
        tests=("tests/parity/test_no_plan.py",),
    )
    for name, old, new in (
        ("failing-group-sees-no-loads", "device.perf += shard.perf", "pass"),
        ("failing-group-sees-old-order", "heapq.heapify(self._heap)", "pass"),
        (
            "failing-group-is-placed-by-the-core",
            "if any(-1 in ranks for _, ranks in known):",
            "if False:",
        ),
    )
)

KEYS = (
    Mutant(
        name="key-forgets-statistics-of-caches",
        file="fastplan/torchrec/read/components.py",
        old='found.append(["scaleup", "statistics", _statistics(space)])',
        new="pass",
        tests=("tests/parity/test_keys.py",),
    ),
    Mutant(
        name="key-forgets-missing-estimators",
        file="fastplan/torchrec/read/components.py",
        old='found.append(["stock estimators", estimators.has_perf, estimators.has_storage])',
        new="pass",
        tests=("tests/parity/test_keys.py",),
    ),
    Mutant(
        name="edits-that-are-undone-count-for-nobody",
        file="fastplan/torchrec/search/mixed.py",
        old="if not _is_torchrec_class(proposer) and not self._known.are_all_in(self._shown):",
        new="if proposer is proposers[-1] and not self._known.are_all_in(self._shown):",
        tests=("tests/parity/test_changed_options.py",),
    ),
    Mutant(
        name="shared-memory-is-copied-apart",
        file="fastplan/torchrec/read/cluster.py",
        old="return len(storages) == len(topology.devices)",
        new="return True",
        tests=("tests/parity/test_keys.py",),
    ),
)

TORCHREC = (*KEYS, *PATCH, *REPLICAS, *SHADOW, *EXTENDED, *SUPPORT, *LIVE, *NO_PLAN)
