//! What must hold for everything the plugins read from outside, as functions that a fuzzer calls with arbitrary bytes. Extends
//! `tenure::fuzzing`.
//!
//! Compiled only for tests and with the feature `fuzzing`; not part of the API.

#[cfg(test)]
mod tests;

pub use crate::cluster_health::health;
pub use crate::terms::fuzzing::terms;

use crate::checks::JobRun;
use crate::schedules::{Problems, Rules, Schedule, Timing, read_file};
use crate::work::{COMMAND_KIND, CommandWork, Commands, PASSED, Work};
use serde_json::Value;
use tenure::id::KindName;
use tenure::job::AllowedCommand;
use tenure::schedules::DueTimes;

/// The longest line about one fault, whatever the document was.
const LINE_MAX_CHARS: usize = 2000;

/// The largest payload of a job.
const PAYLOAD_MAX_BYTES: usize = 16 * 1024;

/// 2026-11-16, in ms since 1970.
const NOW_MS: u64 = 1_794_787_200_000;

#[track_caller]
pub(crate) fn assert_readable(detail: &str) {
    assert!(!detail.trim().is_empty(), "nothing is said");
    let chars = detail.chars().count();
    assert!(chars <= LINE_MAX_CHARS, "{chars} characters: {detail}");
    assert!(!detail.contains(char::is_control), "{detail:?}");
}

/// What a rewrite must leave unchanged: every field that is not in `known`.
#[track_caller]
pub(crate) fn assert_kept(before: &Value, after: &Value, known: &[&str]) {
    let fields = before.as_object().expect("documents are objects");
    for (name, value) in fields.iter().filter(|(name, _)| !known.contains(&name.as_str())) {
        assert_eq!(after.get(name), Some(value), "{name:?} did not survive");
    }
}

fn rules() -> Rules {
    Rules { own_kinds: [KindName::new("disk").expect("valid")].into() }
}

fn assert_explained(problems: &Problems) {
    assert!(!problems.all().is_empty());
    problems.all().iter().for_each(|problem| assert_readable(&problem.to_string()));
}

/// What holds for every schedule, however it was written.
fn assert_sound(schedule: &Schedule) {
    assert!(schedule.id.as_str().len() <= 100 && (1..=32).contains(&schedule.checks.len()));
    assert!(schedule.id.job(u64::MAX).is_ok(), "job ids are ids");
    assert!(schedule.job_payload(u64::MAX).len() <= PAYLOAD_MAX_BYTES);
    assert!((1..=100).contains(&schedule.open_max()));
    if let Timing::Interval(interval) = &schedule.timing {
        assert!(interval.offset_ms < interval.every_ms && interval.jitter_ms < interval.every_ms);
    }
    for after_ms in [0, NOW_MS, u64::MAX - 1] {
        if let Some(next_ms) = schedule.timing.next(after_ms) {
            assert!(next_ms > after_ms, "due in the past");
            assert!(schedule.timing.begins_ms(schedule.id.as_str(), next_ms) >= next_ms);
        }
    }
    let newest = schedule.timing.newest(NOW_MS - 3_600_000, NOW_MS, 5);
    assert!(newest.len() <= 5 && newest.is_sorted() && newest.iter().all(|due| *due <= NOW_MS));
    let again = Schedule::from_wire(&schedule.to_wire(), &rules()).expect("our own");
    assert_eq!(again, *schedule);
}

/// Checks any body of `schedules/<id>.json`.
pub fn schedule(body: &[u8]) -> bool {
    match Schedule::from_wire(body, &rules()) {
        Ok(schedule) => {
            assert_sound(&schedule);
            let before: Value = serde_json::from_slice(body).expect("what was understood is JSON");
            let after: Value = serde_json::from_slice(&schedule.to_wire()).expect("our own");
            let known: Vec<&str> =
                before.as_object().expect("an object").keys().map(String::as_str).filter(is_known).collect();
            assert_kept(&before, &after, &known);
            true
        }
        Err(problems) => {
            assert_explained(&problems);
            false
        }
    }
}

/// Fields that are read and may be written back differently.
fn is_known(name: &&str) -> bool {
    const KNOWN: &str = "epoch owner nonce v id every offset jitter cron zone manual enabled priority maxConcurrent timeout \
        ttl attempts backoff overlap misfire misfireThreshold partition domain capabilities failAfter recoverAfter since \
        runNow ran checks";
    KNOWN.split_whitespace().any(|known| known == *name)
}

/// Checks any file for `tenure apply`, YAML or JSON.
pub fn apply(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    match read_file(text, &rules()) {
        Ok(schedules) => {
            schedules.iter().for_each(assert_sound);
            true
        }
        Err(problems) => {
            assert_explained(&problems);
            false
        }
    }
}

/// Checks any entry of `--allow-command`, the first line, against the payload of any command, the rest: what would be started is what the
/// entry names.
pub fn command(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let (entry, payload) = text.split_once('\n').unwrap_or_default();
    // The system starts nothing that has a NUL in it.
    if text.contains('\0') || payload.contains("\\u0000") {
        return false;
    }
    let Ok(entry) = entry.parse::<AllowedCommand>() else { return false };
    let Ok(work) = serde_json::from_str::<CommandWork>(payload) else { return false };
    let job = JobRun { job: "fuzzed".parse().expect("valid"), attempt: 1, epoch: 1 };
    let process = Commands::new([entry.clone()]).process(&work, &job);
    if Work::of_job(COMMAND_KIND, payload.as_bytes()).is_ok() {
        assert_eq!(process.is_ok(), entry.allows(&work.words()), "leader and agent disagree about {text}");
    }
    let Ok(process) = process else { return false };
    let (process, plain) = (process.as_std(), entry.as_str().replace(['"', '\''], ""));
    assert!(process.get_program() == entry.program() && entry.program().starts_with('/'), "{text}");
    let names = |name: &str, value: &str| plain.contains(&format!("{name}=")) && entry.sets(name, value);
    for (name, value) in process.get_envs() {
        let (name, value) = (name.to_str().expect("text"), value.unwrap_or_default());
        let is_passed = PASSED.contains(&name) && std::env::var_os(name).is_some_and(|own| own == value);
        let is_ours = ["TENURE_JOB", "TENURE_ATTEMPT", "TENURE_EPOCH"].contains(&name);
        assert!(
            is_passed || is_ours || value.to_str().is_some_and(|value| names(name, value)),
            "{name}: {text}"
        );
        assert_ne!(name, "PWD", "{text}");
    }
    assert!(
        process.get_current_dir().is_none_or(|path| path.to_str().is_some_and(|path| names("PWD", path)))
    );
    true
}
