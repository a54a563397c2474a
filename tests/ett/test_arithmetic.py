"""The report on a job, compared with runs computed by hand and with the formula."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastplan.ett.arithmetic import read_report
from tests.ett.runs import Rank

EXACT = {"rel": 0, "abs": 1e-9}


def close(value):
    return pytest.approx(value, **EXACT)


def one_rank(directory, **more):
    """Launched at 0, process at 2, recorded from 5; plans for 4 s and trains 10 s."""
    rank = Rank(directory, begin=2.0, recorded=5.0, launched=0.0, **more)
    rank.do("process_group", 1.0).do("plan", 4.0).wait(0.5).do("shard", 2.0)
    return rank.steps(1, 100, 0.1)


def test_one_rank_by_hand(tmp_path):
    one_rank(tmp_path).recorder.stop()
    report = read_report(tmp_path)
    assert report.seconds == close(22.5)
    assert report.phases == {
        "launch": close(2.0),
        "imports": close(3.0),
        "process_group": close(1.0),
        "plan": close(4.0),
        "shard": close(2.0),
        "starting": close(0.5),
        "training": close(10.0),
    }
    assert report.ett == close(10 / 22.5)
    assert report.time_to_start == close(12.5)
    assert report.times_to_recover == ()
    assert (report.failures, report.lost_steps, report.steps) == (0, 0, 100)
    assert (report.failing, report.idle) == (0.0, close(12.5))
    (attempt,) = report.attempts
    assert attempt.to_first_step == close(12.6)
    assert attempt.planning == close(4.0)
    assert attempt.cause is None
    assert report.notes == ()


def test_all_phases_add_up_to_the_whole(tmp_path):
    rank = one_rank(tmp_path)
    rank.do("checkpoint_save", 0.7).steps(101, 120, 0.1).short("data_wait", 0.3)
    rank.steps(121, 130, 0.1).do("publish", 3.0).recorder.stop()
    report = read_report(tmp_path)
    assert sum(report.phases.values()) == close(report.seconds)
    assert report.phases["data_wait"] == close(0.3)
    assert report.phases["publish"] == close(3.0)
    assert report.phases["training"] == close(13.0)


def test_a_phase_within_a_phase_counts_once(tmp_path):
    rank = Rank(tmp_path)
    with rank.phase("broadcast", 1.0), rank.phase("plan", 2.0):
        rank.do("reserve", 0.5)
    rank.steps(0, 0, 1.0).recorder.stop()
    report = read_report(tmp_path)
    assert report.phases["broadcast"] == close(1.0)
    assert report.phases["plan"] == close(2.0)
    assert report.phases["reserve"] == close(0.5)


def test_short_phases_within_a_phase_are_taken_out_of_it(tmp_path):
    rank = Rank(tmp_path)
    rank.steps(0, 0, 1.0)
    with rank.phase("eval", 2.0):
        rank.short("data_wait", 0.5)
    rank.steps(1, 1, 1.0).recorder.stop()
    report = read_report(tmp_path)
    assert report.phases["eval"] == close(2.0)
    assert report.phases["data_wait"] == close(0.5)
    assert report.phases["training"] == close(2.0)


def test_a_restart_by_hand(tmp_path):
    """Steps 1-10 of 1 s, a checkpoint of 2 s after step 6, killed; the second attempt does 7-12."""
    first = Rank(tmp_path, begin=0.0, launched=0.0)
    first.do("plan", 3.0).steps(1, 6, 1.0)
    first.do("checkpoint_save", 2.0)
    first.recorder.checkpoint(6)
    first.steps(7, 10, 1.0)
    first.recorder.failure("NCCL error")  # at 15.0, after which nothing is heard
    second = Rank(tmp_path, attempt=1, begin=20.0, launched=0.0)
    second.do("plan", 3.0).do("restore", 1.0).steps(7, 12, 1.0)
    second.recorder.stop()
    report = read_report(tmp_path)
    assert report.seconds == close(30.0)
    assert report.productive == close(12.0)
    assert report.phases == {
        "plan": close(6.0),
        "restore": close(1.0),
        "training": close(12.0),
        "checkpoint_save": close(2.0),
        "lost": close(4.0),
        "restart": close(5.0),
    }
    assert (report.failures, report.lost_steps, report.steps) == (1, 4, 12)
    assert report.time_to_start == close(3.0)
    assert report.times_to_recover == (close(9.0),)
    assert report.failing == close(4.0 + 9.0)
    assert report.idle == close(3.0 + 2.0)
    assert report.attempts[0].cause == "rank 0: NCCL error"


def test_time_between_the_last_step_and_the_end_of_a_failed_attempt_is_part_of_recovering(tmp_path):
    first = Rank(tmp_path).steps(1, 5, 1.0)
    first.recorder.checkpoint(5)
    first.wait(7.0).recorder.failure("timeout")
    Rank(tmp_path, attempt=1, begin=15.0).do("plan", 1.0).steps(6, 6, 1.0).recorder.stop()
    report = read_report(tmp_path)
    assert report.phases["stalled"] == close(7.0)
    assert report.times_to_recover == (close(7.0 + 3.0 + 1.0),)
    assert report.lost_steps == 0


def test_the_same_launch_time_on_every_restart_is_that_of_the_first(tmp_path):
    Rank(tmp_path, begin=1.0, launched=0.0).steps(1, 4, 1.0)
    Rank(tmp_path, attempt=1, begin=8.0, launched=0.0).steps(1, 4, 1.0).recorder.stop()
    report = read_report(tmp_path)
    assert report.phases["launch"] == close(1.0)
    assert report.phases["restart"] == close(3.0)
    assert "down" not in report.phases


def test_a_job_was_down_before_it_is_launched_again(tmp_path):
    Rank(tmp_path, begin=1.0, launched=0.0).steps(1, 4, 1.0)
    Rank(tmp_path, run="again", begin=30.0, launched=25.0).steps(5, 8, 1.0).recorder.stop()
    report = read_report(tmp_path)
    assert report.phases["down"] == close(20.0)
    assert report.phases["launch"] == close(1.0 + 5.0)
    assert report.failures == 1
    assert report.times_to_recover == (close(25.0),)


def test_an_attempt_that_never_trains_is_part_of_recovering(tmp_path):
    Rank(tmp_path).steps(1, 4, 1.0)
    Rank(tmp_path, attempt=1, begin=5.0).do("plan", 2.0).recorder.failure("no memory")
    Rank(tmp_path, attempt=2, begin=10.0).do("plan", 2.0).steps(5, 6, 1.0).recorder.stop()
    report = read_report(tmp_path)
    assert report.failures == 2
    assert report.times_to_recover == (close(8.0),)
    assert report.failing == close(8.0)
    assert report.phases["training"] == close(6.0)


def test_a_start_that_never_trained_delays_the_start(tmp_path):
    Rank(tmp_path).do("plan", 2.0).recorder.failure("no memory")
    Rank(tmp_path, attempt=1, begin=3.0).do("plan", 2.0).steps(1, 2, 1.0).recorder.stop()
    report = read_report(tmp_path)
    assert report.time_to_start == close(5.0)
    assert report.times_to_recover == ()
    assert report.failures == 1


def test_all_work_that_is_done_again_was_lost_whenever_it_was_done(tmp_path):
    Rank(tmp_path).steps(1, 10, 1.0)
    Rank(tmp_path, attempt=1, begin=10.0).steps(11, 14, 1.0)
    Rank(tmp_path, attempt=2, begin=14.0).steps(6, 20, 1.0).recorder.stop()
    report = read_report(tmp_path)
    assert report.lost_steps == 5 + 4
    assert report.steps == 20
    assert report.productive == close(20.0)


def test_training_may_go_back_within_an_attempt(tmp_path):
    Rank(tmp_path).steps(1, 10, 1.0).steps(6, 12, 1.0).recorder.stop()
    report = read_report(tmp_path)
    assert (report.lost_steps, report.steps) == (5, 12)
    assert report.productive == close(12.0)
    assert report.failures == 0


def test_a_job_that_failed_for_good_has_lost_what_it_had_not_saved(tmp_path):
    rank = Rank(tmp_path).steps(1, 6, 1.0)
    rank.recorder.checkpoint(6)
    rank.steps(7, 10, 1.0).recorder.failure("no more")
    report = read_report(tmp_path)
    assert (report.lost_steps, report.steps, report.failures) == (4, 6, 1)


def test_a_checkpoint_counts_once_all_ranks_that_save_have_it(tmp_path):
    for number, saved in ((0, (3, 6)), (1, (3,)), (2, ())):
        rank = Rank(tmp_path, number, world=3)
        for step in range(1, 9):
            rank.steps(step, step, 1.0)
            if step in saved:
                rank.recorder.checkpoint(step)
        rank.recorder.failure("no more")
    assert read_report(tmp_path).lost_steps == 5


def test_the_job_waits_for_its_slowest_rank(tmp_path):
    """Rank 1 waits for rank 0 while that plans, which has waited for the imports of rank 1."""
    fast = Rank(tmp_path, 0, world=2, recorded=1.0)
    fast.do("process_group", 2.0)
    with fast.phase("broadcast", 0.5):
        fast.do("plan", 5.0)
    fast.do("shard", 1.0).steps(1, 10, 1.0).recorder.stop()
    slow = Rank(tmp_path, 1, world=2, recorded=3.0)
    slow.do("broadcast", 5.5).do("shard", 1.0).steps(1, 10, 1.0).recorder.stop()
    report = read_report(tmp_path)
    assert report.phases == {
        "imports": close(3.0),
        "plan": close(5.0),
        "broadcast": close(0.5),
        "shard": close(1.0),
        "training": close(10.0),
    }
    assert report.longest["imports"].rank == 1
    assert report.longest["broadcast"].seconds == close(5.5)


def test_a_phase_of_one_rank_holds_all_of_them_up(tmp_path):
    for number in range(3):
        rank = Rank(tmp_path, number, world=3)
        rank.steps(1, 5, 1.0)
        if number == 1:
            rank.do("eval", 2.0)
        else:
            rank.wait(2.0)
        rank.steps(6, 10, 1.0).recorder.stop()
    report = read_report(tmp_path)
    assert report.phases == {"eval": close(2.0), "training": close(10.0)}


def test_short_phases_count_by_the_rank_that_spent_most(tmp_path):
    for number, wait in enumerate((0.1, 0.4)):
        rank = Rank(tmp_path, number, world=2)
        rank.steps(0, 0, 1.0)
        for step in range(1, 11):
            rank.short("data_wait", wait).steps(step, step, 1.0 - wait)
        rank.recorder.stop()
    report = read_report(tmp_path)
    assert report.phases == {"data_wait": close(4.0), "training": close(7.0)}


def test_no_rank_waits_for_background_phases(tmp_path):
    rank = Rank(tmp_path)
    rank.steps(1, 10, 1.0)
    begin = rank._monotonic(2.0)
    rank.recorder.add("checkpoint_upload", begin, begin + 5 * 10**9, background=True)
    rank.recorder.stop()
    report = read_report(tmp_path)
    assert report.phases == {"training": close(10.0)}
    assert report.background == {"checkpoint_upload": close(5.0)}


def test_the_inside_of_planning_is_kept(tmp_path):
    rank = Rank(tmp_path)
    rank.do("plan", 2.0, engine="native", cache="hit", parts={"search": 1.5, "bad": "x"})
    rank.steps(1, 1, 1.0).recorder.stop()
    plan = read_report(tmp_path).attempts[0].plan
    assert (plan.engine, plan.cache, plan.parts) == ("native", "hit", {"search": 1.5})
    assert plan.seconds == close(2.0)


seconds = st.integers(min_value=1, max_value=4000).map(lambda n: n / 16)


@settings(max_examples=60, deadline=None)
@given(
    planning=seconds,
    other=seconds,
    each=st.integers(1, 64).map(lambda n: n / 64),
    kept=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    lost=st.integers(0, 20),
    ranks=st.integers(1, 3),
)
def test_the_formula(tmp_path_factory, planning, other, each, kept, lost, ranks):
    """ETT = W / (W + (1 + F)(B + P) + F L), when every failure loses the same."""
    directory = tmp_path_factory.mktemp("runs")
    now, step = 0.0, 1
    for attempt, steps in enumerate(kept):
        is_last = attempt == len(kept) - 1
        done = steps if is_last else steps + lost
        for number in range(ranks):
            rank = Rank(directory, number, world=ranks, attempt=attempt, begin=now)
            rank.do("shard", other).do("plan" if number == 0 else "broadcast", planning)
            rank.steps(step, step + steps - 1, each)
            rank.recorder.checkpoint(step + steps - 1)
            rank.steps(step + steps, step + done - 1, each)
            if is_last:
                rank.recorder.stop()
            else:
                rank.recorder.failure("killed")
        now += other + planning + done * each
        step += steps
    report = read_report(directory)
    work, failures = sum(kept) * each, len(kept) - 1
    expected = work / (work + (1 + failures) * (other + planning) + failures * lost * each)
    assert report.ett == close(expected)
    assert report.failures == failures
    assert report.lost_steps == failures * lost
    assert sum(report.phases.values()) == close(report.seconds)
    assert report.productive + report.idle + report.failing == close(report.seconds)


def test_compiling_in_the_first_step_is_a_part_of_the_start(tmp_path):
    first = Rank(tmp_path, launched=0.0)
    first.do("plan", 3.0).recorder.first_batch()
    first.wait(0.5).do("compile", 20.0).steps(1, 5, 1.0)
    first.recorder.checkpoint(5)
    second = Rank(tmp_path, attempt=1, begin=30.0)
    second.do("plan", 3.0).recorder.first_batch()
    second.do("compile", 10.0).steps(6, 9, 1.0).do("recompile", 2.0).steps(10, 10, 1.0)
    second.recorder.stop()
    report = read_report(tmp_path)
    assert report.time_to_start == close(23.0)
    assert report.times_to_recover == (close(1.5 + 3.0 + 10.0),)
    assert report.failing == close(1.5 + 13.0)
    assert report.phases["training"] == close(10.5)
    assert report.attempts[0].to_first_step == close(24.5)
    assert report.attempts[0].start == {"plan": close(3.0), "compile": close(20.0)}
