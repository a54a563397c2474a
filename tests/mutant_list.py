"""Small wrong changes of the code, each with the tests that must notice it.

`tests/mutants.py` runs them; `tests/test_mutants.py` checks that they still fit the code.
"""

from __future__ import annotations

from tests.mutant import Mutant
from tests.mutant_list_checkpoint import CHECKPOINT
from tests.mutant_list_explain import EXPLAIN
from tests.mutant_list_fleet import FLEET
from tests.mutant_list_restart import RESTART
from tests.mutant_list_torchrec import TORCHREC

SPEC = (
    Mutant(
        name="lower-swaps-inputs-outputs",
        file="fastplan/spec/lower.py",
        old="inputs, outputs = self._batch(spec)",
        new="outputs, inputs = self._batch(spec)",
        tests=("tests/parity/test_exports.py",),
    ),
    Mutant(
        name="lower-outputs-by-length",
        file="fastplan/spec/lower.py",
        old="float(sum(min(1.0, x) * y * z for x, y, z in features))",
        new="float(sum(x * y * z for x, y, z in features))",
        tests=("tests/spec/test_lower.py",),
    ),
    Mutant(
        name="lower-forgets-wire",
        file="fastplan/spec/lower.py",
        old="bwd_a2a=wire[1],",
        new="bwd_a2a=wire[0],",
        tests=("tests/spec/test_lower.py",),
    ),
    Mutant(
        name="lower-pods-are-hosts",
        file="fastplan/spec/cluster.py",
        old="local if pod is None else pod * local",
        new="local",
        tests=("tests/spec/test_lower.py",),
    ),
    Mutant(
        name="export-heals-menus",
        file="fastplan/spec/stock_rules.py",
        old='if "dense" in left and "fused" in left:',
        new='if "dense" in left and "fused" not in left:',
        tests=("tests/parity/test_exports.py",),
    ),
    Mutant(
        name="export-heals-costs",
        file="fastplan/spec/stock_rules.py",
        old="groups = max(1, shape.world_size // shape.group_size)",
        new="groups = max(1, shape.world_size // shape.local_world_size // 2)",
        tests=("tests/parity/test_exports.py",),
    ),
    Mutant(
        name="reservation-one-batch",
        file="fastplan/spec/stock_rules.py",
        old="copies = _INPUT_COPIES.get(spec.policy, 20)",
        new="copies = _INPUT_COPIES.get(spec.policy, 10)",
        tests=("tests/parity/test_exports.py",),
    ),
)

REPLAN = (
    Mutant(
        name="replan-one-effort",
        file="fastplan/planning/replan.py",
        old="_MOVE_MULTIPLIERS = (1, 5)",
        new="_MOVE_MULTIPLIERS = (1,)",
        tests=("tests/planning/test_replan.py",),
    ),
    Mutant(
        name="replan-large-effort-first",
        file="fastplan/planning/replan.py",
        old="_MOVE_MULTIPLIERS = (1, 5)",
        new="_MOVE_MULTIPLIERS = (5, 1)",
        tests=("tests/planning/test_replan.py",),
    ),
    Mutant(
        name="replan-quick-for-many-changes",
        file="fastplan/planning/replan.py",
        old="_MAX_CHANGED_FOR_QUICK = 0.1",
        new="_MAX_CHANGED_FOR_QUICK = 0.15",
        tests=("tests/planning/test_replan.py",),
    ),
    Mutant(
        name="replan-quick-for-fewer-changes",
        file="fastplan/planning/replan.py",
        old="few = len(found.changed) <= _MAX_CHANGED_FOR_QUICK",
        new="few = len(found.changed) < _MAX_CHANGED_FOR_QUICK",
        tests=("tests/planning/test_replan.py",),
    ),
    Mutant(
        name="replan-no-slack",
        file="fastplan/planning/replan.py",
        old="scratch.rating * (1 + self.policy.slack)",
        new="scratch.rating",
        tests=("tests/planning/test_replan.py",),
    ),
    Mutant(
        name="replan-quick-no-slack",
        file="fastplan/planning/replan.py",
        old="self._evened(problem, even * (1 + self.policy.slack))",
        new="self._evened(problem, even)",
        tests=("tests/planning/test_replan.py",),
    ),
    Mutant(
        name="replan-pays-back-in-seconds",
        file="fastplan/planning/replan.py",
        old="more = 1000 * max(listed.seconds - staying, 0.0)",
        new="more = max(listed.seconds - staying, 0.0)",
        tests=("tests/planning/test_replan.py",),
    ),
    Mutant(
        name="replan-payback-forgets-steps",
        file="fastplan/planning/replan.py",
        old="1000 * seconds + (self.policy.remaining_steps or 0) * point.rating",
        new="1000 * seconds + point.rating",
        tests=("tests/planning/test_replan.py",),
    ),
    Mutant(
        name="replan-ignores-max-changed",
        file="fastplan/planning/replan.py",
        old="if changed > self.policy.max_changed and",
        new="if changed >= self.policy.max_changed and",
        tests=("tests/planning/test_replan.py",),
    ),
    Mutant(
        name="replan-rating-is-reached",
        file="cpp/replan/replan.cpp",
        old="return translator_.plan(draft).rating <= settings_.target;",
        new="return translator_.plan(draft).rating <= settings_.target || true;",
        tests=("tests/engine/test_replan.py",),
    ),
)

CACHE = (
    Mutant(
        name="hit-trusts-python-rating",
        file="fastplan/planning/caching.py",
        old="elif self._backend.python_rating(placement) != record.rating:",
        new="elif self._backend.python_rating(placement) < 0:",
        tests=(
            "tests/torchrec/test_caching.py::test_a_plan_that_a_python_perf_model_rates_otherwise_now_is_a_miss",
        ),
    ),
    Mutant(
        name="hit-skips-verification",
        file="fastplan/planning/caching.py",
        old="complaint := verify_plan(problem, numbers, record.ranks, expected, objective):",
        new='complaint := "":',
        tests=("tests/planning/test_plan.py",),
    ),
    Mutant(
        name="hit-allows-worse-plans",
        file="fastplan/planning/caching.py",
        old="_HIT_SLACK = 0.05",
        new="_HIT_SLACK = 9.0",
        tests=("tests/planning/test_plan.py",),
    ),
    Mutant(
        name="better-proposal-allows-more",
        file="fastplan/engine/better_proposal.py",
        old="(1 + slack + _ROUNDING)",
        new="(1 + 2 * slack + 1e-3)",
        tests=("tests/engine/test_better_proposal.py",),
    ),
    Mutant(
        name="better-proposal-stops-at-the-first-that-fails",
        file="cpp/search/pruned.cpp",
        old="place_all(candidates, [&] { return result_.found; });",
        new="place_all(candidates, [&] { return true; });",
        tests=("tests/engine/test_better_proposal.py",),
    ),
    Mutant(
        name="least-rating-takes-the-dearest-options",
        file="cpp/search/proposal_bound.cpp",
        old="std::min(cheapest, option_all_[o])",
        new="std::max(cheapest, option_all_[o])",
        tests=("tests/engine/test_better_proposal.py",),
    ),
    Mutant(
        name="step-search-leaves-charges-out",
        file="cpp/search/goal.cpp",
        old="if (due[charge]++ == 0) add(goal_.parts_of(charge), rank);",
        new="++due[charge];",
        tests=("tests/engine/test_step_search.py",),
    ),
    Mutant(
        name="step-bound-is-too-high",
        file="cpp/search/goal_bound.cpp",
        old="share.largest = std::max(share.largest, brought.amount + brought.charges);",
        new="share.largest += brought.amount + brought.charges;",
        tests=("tests/engine/test_step_search.py",),
    ),
    Mutant(
        name="step-search-forgets-a-part-of-what-goes",
        file="cpp/search/goal.cpp",
        old="for (const auto& part : goal_.run_parts(run)) sum(part.channel, rank) -= part.amount;",
        new="",
        tests=("tests/engine/test_step_search.py",),
    ),
    Mutant(
        name="narrow-takes-load-factors",
        file="fastplan/engine/layout.py",
        old="""    if not has_sizes(request, record):
        # Their""",
        new="""    if False:
        # Their""",
        tests=("tests/engine/test_narrow.py",),
    ),
    Mutant(
        name="narrow-takes-any-rank",
        file="fastplan/engine/layout.py",
        old="found.max() >= ranks",
        new="found.max() > ranks",
        tests=("tests/engine/test_narrow.py",),
    ),
    Mutant(
        name="cache-keeps-cut-short",
        file="fastplan/planning/caching.py",
        old="if record is None or result.interrupted:",
        new="if record is None:",
        tests=(
            "tests/torchrec/test_improving.py::test_a_plan_that_an_interrupt_cut_short_is_not_kept",
        ),
    ),
    Mutant(
        name="cache-tolerance-one-sided",
        file="fastplan/cache/plan_cache.py",
        old="self.capacity_tolerance * max(abs(before), abs(after))",
        new="self.capacity_tolerance * abs(before)",
        tests=("tests/cache/test_plan_cache.py",),
    ),
    Mutant(
        name="container-part-unchecked",
        file="fastplan/files/storage.py",
        old="if len(data) != span.size or checksum(data) != span.checksum:",
        new="if len(data) != span.size:",
        tests=("tests/cache/test_entry.py",),
    ),
    Mutant(
        name="container-takes-more-bytes",
        file="fastplan/files/storage.py",
        old="if size != end:",
        new="if size < end:",
        tests=("tests/cache/test_entry.py",),
    ),
    Mutant(
        name="key-forgets-timeout",
        file="fastplan/cache/fingerprint.py",
        old='"timeout_seconds": search.timeout_seconds,',
        new='"timeout_seconds": 0.0,',
        tests=("tests/cache/test_fingerprint.py",),
    ),
    Mutant(
        name="key-forgets-replan-policy",
        file="fastplan/planning/policy.py",
        old='del parts["frontier"]',
        new='del parts["frontier"], parts["seed"]',
        tests=("tests/planning/test_replan.py",),
    ),
    Mutant(
        name="key-forgets-rank-map",
        file="fastplan/planning/policy.py",
        old="if self.rank_map is None:",
        new="if True:",
        tests=("tests/planning/test_replan.py",),
    ),
    Mutant(
        name="row-is-kept-by-the-next-rank",
        file="cpp/improve/moved_bytes.cpp",
        old="if (rank == number) kept",
        new="if (rank == number + 1) kept",
        tests=("tests/engine/test_replan.py",),
    ),
    Mutant(
        name="record-takes-load-factor-zero",
        file="fastplan/model/plan.py",
        old="((factor > 0) & (factor <= 1))",
        new="((factor >= 0) & (factor <= 1))",
        tests=("tests/model/test_record.py",),
    ),
    Mutant(
        name="record-takes-more-bytes",
        file="fastplan/model/plan.py",
        old="if len(body) != size or not inflater.eof or inflater.unused_data:",
        new="if len(body) != size or not inflater.eof:",
        tests=("tests/model/test_record.py",),
    ),
    Mutant(
        name="following-trusts-the-cache",
        file="fastplan/planning/replan_session.py",
        old="rating, slack=FOLLOWING_SLACK) is None",
        new="rating, slack=FOLLOWING_SLACK + 9) is None",
        tests=(
            "tests/torchrec/test_replanning.py::"
            "test_a_quick_plan_after_the_caches_is_at_most_twice_what_torchrec_reaches",
        ),
    ),
)

HOSTILE = (
    Mutant(
        name="outputs-replace-anything",
        file="fastplan/cli/output.py",
        old="            if found and not re.match(begin, found, re.DOTALL):",
        new="            if False and not re.match(begin, found, re.DOTALL):",
        tests=("tests/cli/test_output_files.py",),
    ),
    Mutant(
        name="folder-lists-without-end",
        file="fastplan/cache/stores/folder.py",
        old="            listed = islice(found, MOST_LISTED)\n            return [entry",
        new="            listed = found\n            return [entry",
        tests=("tests/cache/test_directory_store.py",),
    ),
    Mutant(
        name="pipes-are-waited-for-no-more-but-read",
        file="fastplan/files/document.py",
        old="    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):",
        new="    if False:",
        tests=("tests/ett/test_reading.py",),
    ),
)
BOUNDS = (
    Mutant(
        name="bound-is-taken-on-trust",
        file="fastplan/engine/packed_certificate.py",
        old="proven = check_bound(problem, certificate)",
        new="proven = certificate.value",
        tests=("tests/engine/test_packed_certificate.py",),
    ),
    Mutant(
        name="bound-above-the-plan",
        file="fastplan/engine/packed_certificate.py",
        old="if proven > rating * (1 + ROUNDING):",
        new="if proven > rating * 1.01:",
        tests=("tests/engine/test_packed_certificate.py",),
    ),
    Mutant(
        name="relaxation-sum-not-rounded",
        file="cpp/bound/relaxation.cpp",
        old="return sum - rounding * size;",
        new="return sum;",
        tests=("tests/engine/test_optimize_bound.py",),
    ),
    Mutant(
        name="bound-beyond-its-check",
        file="cpp/bound/bound_search.cpp",
        old="constexpr double kCheckRounding = 3 * kRounding;",
        new="constexpr double kCheckRounding = kRounding;",
        tests=("tests/engine/test_optimize_bound.py",),
    ),
    Mutant(
        name="swap-splits-towers",
        file="cpp/improve/moves.cpp",
        old="choices.tower(other_table) >= 0 || taken(choice",
        new="taken(choice",
        tests=("tests/engine/test_optimize.py",),
    ),
)

PROFILE = (
    Mutant(
        name="profile-resumes-with-another-file",
        file="fastplan/profile/state.py",
        old="        return self.done + (self.batches > 0)\n",
        new="        return self.done\n",
        tests=("tests/profile/test_run.py",),
    ),
    Mutant(
        name="profile-forgets-the-cut-windows",
        file="fastplan/profile/summary.py",
        old=" - _cut_windows(columns, ids)",
        new="",
        tests=("tests/profile/test_table.py",),
    ),
    Mutant(
        name="profile-merge-keeps-every-sample",
        file="fastplan/profile/summary.py",
        old="keep = is_head | (id_hashes(ids) <= np.uint64(threshold))",
        new="keep = is_head | True",
        tests=("tests/profile/test_table.py",),
    ),
    Mutant(
        name="profile-resumes-a-unit-from-its-start",
        file="fastplan/profile/run.py",
        old="islice(batches, profile.batches, None)",
        new="batches",
        tests=("tests/profile/test_run.py",),
    ),
    Mutant(
        name="profile-follows-no-hot-ids",
        file="cpp/profile/id_stream.cpp",
        old="constexpr std::uint32_t kHot = 32;",
        new="constexpr std::uint32_t kHot = 1u << 30;",
        tests=("tests/profile/test_table.py",),
    ),
)

MEASURE = (
    Mutant(
        name="different-without-a-test",
        file="fastplan/measure/paired.py",
        old="if p <= ALPHA and math.expm1(abs(middle)) > explained:",
        new="if math.expm1(abs(middle)) > explained:",
        tests=("tests/measure/test_paired.py",),
    ),
    Mutant(
        name="cpu-ranks-have-links-of-their-own",
        file="fastplan/engine/step.py",
        old="return ranks if shared else 1",
        new="return 1",
        tests=("tests/engine/test_step.py",),
    ),
)

CORE = (*SPEC, *REPLAN, *CACHE, *HOSTILE, *BOUNDS, *PROFILE, *MEASURE)
MUTANTS = (*CORE, *CHECKPOINT, *EXPLAIN, *RESTART, *FLEET, *TORCHREC)
