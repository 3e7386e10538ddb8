//! A green run means something only if these deliberately broken variants turn it red. Those that are not here are caught by the
//! simulator.

use crate::{claimer, dispatcher, once, supervision, two_seats};
use tenure_core::Mutant;

/// Every one must be caught within this many schedules.
const SEEDS_MAX: u64 = 3000;

fn must_be_caught_by_schedules(mutant: Mutant) {
    for seed in 0..SEEDS_MAX {
        if let Some(by) = Mutant::with(Some(mutant), || two_seats::run(seed).violations).first() {
            println!("{mutant:?}: caught at seed {seed} by: {by}");
            return;
        }
    }
    panic!("{mutant:?} survived {SEEDS_MAX} schedules: the property test does not bite");
}

/// With the mistake the test must fail; without it, it is among the others here and passes.
fn must_fail(mutant: Mutant, test: fn()) {
    let passed = Mutant::with(Some(mutant), || std::panic::catch_unwind(test).is_ok());
    assert!(!passed, "{mutant:?} survived: the test does not bite");
}

#[test]
fn unanswered_look_taken_for_free() {
    must_be_caught_by_schedules(Mutant::UnansweredLookTakenForFree);
}

#[test]
fn earlier_read_of_the_other_seat_counts() {
    must_be_caught_by_schedules(Mutant::EarlierReadCounts);
}

#[test]
fn other_seat_not_checked() {
    must_be_caught_by_schedules(Mutant::SeatNotChecked);
}

#[test]
fn restart_intensity_ignored() {
    let test = supervision::too_many_restarts_of_whichever_process_end_all_and_release_leadership;
    must_fail(Mutant::RestartIntensityIgnored, test);
}

#[test]
fn processes_stopped_in_start_order() {
    let test = supervision::cp2_they_are_stopped_in_reverse_each_awaited_before_the_next;
    must_fail(Mutant::StoppedInStartOrder, test);
}

#[test]
fn pause_before_a_restart_skipped() {
    let test = supervision::pauses_double_up_to_a_limit_and_start_anew_after_a_stable_run;
    must_fail(Mutant::RestartPauseSkipped, test);
}

#[test]
fn job_doubt_forgotten() {
    let test =
        dispatcher::inboxes::a_dispatch_that_may_still_land_is_written_over_before_another_gets_the_job;
    must_fail(Mutant::JobDoubtForgotten, test);
}

#[test]
fn job_successor_written_off() {
    must_fail(Mutant::JobSuccessorWrittenOff, claimer::what_a_successor_has_claimed_is_left_alone);
}

#[test]
fn job_drain_ignored() {
    let test = dispatcher::looks::what_waits_at_a_worker_that_drains_goes_to_another;
    must_fail(Mutant::JobDrainIgnored, test);
}

#[test]
fn a_backoff_ends_with_its_leader() {
    let test = dispatcher::attempts::qu4_a_new_leader_keeps_to_the_pause_before_the_next_attempt;
    must_fail(Mutant::JobBackoffForgotten, test);
}

#[test]
fn an_order_is_taken_out_before_its_job_is_recorded() {
    let test = dispatcher::orders::an_order_leaves_once_the_ledger_on_the_store_has_its_job;
    must_fail(Mutant::JobOrderTakenEarly, test);
}

#[test]
fn a_job_is_forgotten_while_somebody_asks_for_it() {
    let test = dispatcher::orders::a_job_stays_in_the_ledger_while_somebody_asks_for_it;
    must_fail(Mutant::JobForgottenWhileOrdered, test);
}

#[test]
fn served_batches_are_forgotten() {
    let test = dispatcher::orders::an_order_leaves_once_the_ledger_on_the_store_has_its_job;
    must_fail(Mutant::JobBatchForgotten, test);
}

#[test]
fn a_new_leader_counts_only_what_it_dispatched_itself() {
    let test = dispatcher::queues::qu2_a_new_leader_counts_what_the_former_one_dispatched;
    must_fail(Mutant::JobQueueUncounted, test);
}

#[test]
fn a_worker_gets_jobs_that_it_does_not_take() {
    let test = dispatcher::serving::qu1_a_job_goes_only_to_a_worker_that_serves_its_queue_and_kind;
    must_fail(Mutant::JobServesIgnored, test);
}

#[test]
fn a_worker_runs_what_only_a_former_life_took() {
    must_fail(Mutant::JobUnservedIsRun, claimer::what_only_a_former_life_took_is_given_back);
}

#[test]
fn a_request_to_try_again_is_served_twice() {
    let test = dispatcher::retries::qu4_an_order_that_is_found_twice_is_served_once;
    must_fail(Mutant::JobRetriedTwice, test);
}

#[test]
fn what_may_have_been_begun_for_a_key_is_run_again() {
    must_fail(Mutant::OnceAgain, once::on2_what_may_have_been_begun_is_run_again_only_on_request);
}

#[test]
fn what_is_done_once_is_begun_unrecorded() {
    must_fail(Mutant::OnceUnrecorded, once::on1_the_record_says_that_it_runs_before_it_does);
}

#[test]
fn a_new_leader_believes_the_former_one_about_who_is_gone() {
    must_fail(Mutant::JobWorkersNotListed, dispatcher::judging::what_a_leader_before_said_calls_nobody_gone);
}

#[test]
fn a_new_leader_does_not_wait_to_know_which_queues_are_paused() {
    let test = dispatcher::queues::qu2_nothing_is_dispatched_before_it_is_known_which_queues_are_paused;
    must_fail(Mutant::JobPauseUnread, test);
}

#[test]
fn a_job_leaves_the_ledger_before_the_history_has_it() {
    let test = dispatcher::history::hi2_a_job_leaves_the_ledger_only_once_the_history_has_it;
    must_fail(Mutant::JobForgottenUnrecorded, test);
}

#[test]
fn the_history_lets_go_of_a_job_before_its_notice_is_kept() {
    let test = dispatcher::notices::nt1_the_history_hands_over_a_job_only_once_its_notice_stands;
    must_fail(Mutant::NoticeForgotten, test);
}

#[test]
fn a_notice_is_sent_only_once() {
    let test = dispatcher::notices::nt1_what_is_not_taken_is_sent_again_and_holds_up_its_own_series_only;
    must_fail(Mutant::NoticeSentOnce, test);
}

#[test]
fn the_history_takes_what_is_not_over_on_the_store() {
    let test = dispatcher::history::hi2_a_job_is_recorded_once_the_ledger_has_it_as_over_and_only_then;
    must_fail(Mutant::HistoryBeforeLedger, test);
}

#[test]
fn the_history_lets_go_before_its_parts_have_taken() {
    let test = dispatcher::history::hi2_a_leader_that_ends_anywhere_loses_nothing_and_repeats_nothing;
    must_fail(Mutant::HistoryHandedOverEarly, test);
}
