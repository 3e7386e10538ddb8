//! A green run means something only if these deliberately broken variants turn it red. Those of the election are caught by
//! the simulator.
#![allow(clippy::print_stdout, reason = "figures for whoever reads the test log")]

mod job_world;
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

macro_rules! job_mutant {
    ($name:ident, $mutant:ident) => {
        #[test]
        fn $name() {
            caught(Mutant::$mutant, |seed| job_world::run(seed).violations);
        }
    };
}

job_mutant!(job_dispatched_unrecorded, JobDispatchedUnrecorded);
job_mutant!(job_inbox_not_fenced, JobInboxNotFenced);
job_mutant!(job_ledger_reclaimed, JobLedgerReclaimed);
job_mutant!(job_late_result_applied, JobLateResultApplied);
job_mutant!(job_withdrawn_unwritten, JobWithdrawnUnwritten);
job_mutant!(job_result_dropped, JobResultDropped);
job_mutant!(job_doubt_forgotten, JobDoubtForgotten);
job_mutant!(job_attempts_unbounded, JobAttemptsUnbounded);
job_mutant!(job_run_unclaimed, JobRunUnclaimed);
job_mutant!(job_claim_inherited, JobClaimInherited);
job_mutant!(job_successor_written_off, JobSuccessorWrittenOff);
job_mutant!(job_drain_ignored, JobDrainIgnored);
