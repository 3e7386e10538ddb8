//! Jobs under random schedules: leaders that change, stale leaders, workers that crash, lost, late and unknown writes.
#![allow(clippy::print_stdout, reason = "figures for whoever reads the test log")]

use std::collections::BTreeMap;
use tenure_core::JobState;

/// Schedules of a usual run; `TENURE_JOB_SEEDS` asks for more.
const SEEDS: u64 = 300;

#[test]
fn no_job_is_lost_or_counted_twice_under_any_schedule() {
    let mut states: BTreeMap<JobState, usize> = BTreeMap::new();
    let (mut runs, mut late, mut fenced, mut leaders, mut archived, mut removed) = (0, 0, 0, 0, 0, 0);
    let wanted = std::env::var("TENURE_JOB_SEEDS").ok().and_then(|text| text.parse().ok());
    let seeds: u64 = wanted.unwrap_or(SEEDS);
    for seed in 0..seeds {
        let story = crate::job_world::run(seed);
        assert!(story.violations.is_empty(), "seed {seed}: {:#?}", story.violations);
        for (state, count) in story.states {
            *states.entry(state).or_insert(0) += count;
        }
        (runs, late, fenced) = (runs + story.runs, late + story.late, fenced + story.fenced);
        (leaders, archived) = (leaders + story.leaders, archived + story.archived);
        removed += story.removed;
    }
    println!(
        "{seeds} schedules, {leaders} leaders, {runs} runs, {late} late results, {fenced} fenced, {archived} archived, {removed} inboxes removed"
    );
    println!("{states:?}");
    // A run that never gets anywhere proves nothing.
    for state in JobState::ALL.into_iter().filter(|state| state.is_final()) {
        assert!(
            states.get(&state).is_some_and(|count| *count >= 5),
            "{state:?} is hardly ever reached: {states:?}"
        );
    }
    assert!(
        late > 50 && fenced > 50 && archived > 100 && removed > 20,
        "{late} {fenced} {archived} {removed}"
    );
}
