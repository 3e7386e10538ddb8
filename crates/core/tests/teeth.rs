//! A green run means something only if these deliberately broken variants turn it red. Those of the election are caught by
//! the simulator.
#![allow(clippy::print_stdout, reason = "figures for whoever reads the test log")]

mod errands;
mod processes;
mod two_seats;

use tenure_core::Mutant;

/// Every one must be caught within this many schedules.
const SEEDS_MAX: u64 = 3000;

fn must_be_caught(mutant: Mutant) {
    caught(mutant, |seed| two_seats::run(seed).violations);
}

fn must_be_caught_in_supervision(mutant: Mutant) {
    caught(mutant, |seed| processes::run(seed).violations);
}

fn caught(mutant: Mutant, violations: impl Fn(u64) -> Vec<String>) {
    for seed in 0..SEEDS_MAX {
        if let Some(by) = Mutant::with(Some(mutant), || violations(seed)).first() {
            println!("{mutant:?}: caught at seed {seed} by: {by}");
            return;
        }
    }
    panic!("{mutant:?} survived {SEEDS_MAX} schedules: the property test does not bite");
}

#[test]
fn unanswered_look_taken_for_free() {
    must_be_caught(Mutant::UnansweredLookTakenForFree);
}

#[test]
fn earlier_read_of_the_other_seat_counts() {
    must_be_caught(Mutant::EarlierReadCounts);
}

#[test]
fn other_seat_not_checked() {
    must_be_caught(Mutant::SeatNotChecked);
}

#[test]
fn restart_intensity_ignored() {
    must_be_caught_in_supervision(Mutant::RestartIntensityIgnored);
}

#[test]
fn processes_stopped_in_start_order() {
    must_be_caught_in_supervision(Mutant::StoppedInStartOrder);
}

#[test]
fn processes_told_stopped_before_they_exited() {
    must_be_caught_in_supervision(Mutant::ReleasedBeforeExited);
}

#[test]
fn process_restarted_after_the_loss() {
    must_be_caught_in_supervision(Mutant::RestartedAfterLoss);
}

#[test]
fn pause_before_a_restart_skipped() {
    must_be_caught_in_supervision(Mutant::RestartPauseSkipped);
}

macro_rules! errand {
    ($name:ident, $mutant:ident) => {
        #[test]
        fn $name() {
            caught(Mutant::$mutant, |seed| errands::run(seed).violations);
        }
    };
}

errand!(job_dispatched_unrecorded, JobDispatchedUnrecorded);
errand!(job_inbox_not_fenced, JobInboxNotFenced);
errand!(job_ledger_reclaimed, JobLedgerReclaimed);
errand!(job_late_result_applied, JobLateResultApplied);
errand!(job_withdrawn_unwritten, JobWithdrawnUnwritten);
errand!(job_result_dropped, JobResultDropped);
errand!(job_doubt_forgotten, JobDoubtForgotten);
errand!(job_attempts_unbounded, JobAttemptsUnbounded);
errand!(job_run_unclaimed, JobRunUnclaimed);
errand!(job_claim_inherited, JobClaimInherited);
errand!(job_successor_written_off, JobSuccessorWrittenOff);
errand!(job_drain_ignored, JobDrainIgnored);
