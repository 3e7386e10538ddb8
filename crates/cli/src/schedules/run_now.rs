//! `tenure schedule run-now`: asks the leader, whoever it is, by a request in the schedule's object.

use super::{Place, id, now_ms, pretty};
use crate::args::RunNowArgs;
use crate::exit::Failure;
use crate::out::{complain, say, say_json};
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;
use tenure::id::{JobId, ScheduleId};

use tenure::job::{JobList, JobState};
use tenure_plugins::schedules::{Change, RunRequest};
use tokio::time::Instant;

/// How often it is looked whether the job exists, while somebody waits for it.
const LOOK: Duration = Duration::from_millis(500);

/// The job does not exist in time.
const NOT_YET: u8 = 1;

pub(super) async fn run_now(args: RunNowArgs) -> Result<ExitCode, Failure> {
    let schedule = id("ID", &args.id)?;
    let name = args.name.clone().unwrap_or_else(new_name);
    let job = RunRequest::job_id(&schedule, &name)?;
    let (namespace, place) = Place::existing(&args.settings).await?;
    let place = place.ok_or_else(|| super::no_schedule(&schedule, &namespace))?;
    let asked = place.schedules().ask(&schedule, &name, now_ms()).await?;
    let (mut outcome, mut state) = ("asked", None);
    if args.wait > 0 {
        outcome = "waiting";
        let deadline = Instant::now() + Duration::from_millis(args.wait);
        loop {
            let found = exists(&place, &schedule, &job, &name).await?;
            if let Some(found) = found {
                outcome = if asked == Change::Unchanged { "existed" } else { "created" };
                state = found;
                break;
            }
            if Instant::now() >= deadline {
                break;
            }
            tokio::time::sleep_until(deadline.min(Instant::now() + LOOK)).await;
        }
    }
    if args.json {
        let state = state.map(JobState::as_str);
        let report = json!({
            "namespace": namespace.as_str(), "schedule": schedule.as_str(), "name": name, "job": job.as_str(),
            "outcome": outcome, "state": state,
        });
        say_json(&pretty(&report)?);
    } else {
        match outcome {
            "created" => say!("created job {job}"),
            "existed" => say!("job {job} exists: it was requested before"),
            "asked" => say!("requested job {job}"),
            _ => complain!(
                "tenure: job {job} does not exist after {} ms: nobody leads, or {schedule} has as many open jobs as it may have; \
the request stands",
                args.wait
            ),
        }
    }
    Ok(if outcome == "waiting" { ExitCode::from(NOT_YET) } else { ExitCode::SUCCESS })
}

/// Whether the job exists, and its state if the ledger has it: it may have been put away, or its schedule removed, since.
async fn exists(
    place: &Place,
    schedule: &ScheduleId,
    job: &JobId,
    name: &str,
) -> Result<Option<Option<JobState>>, Failure> {
    let list = JobList::read_near(&place.lanes, &place.namespace, &schedule.series()).await?;
    if let Some(record) = list.jobs.iter().find(|record| record.id == *job) {
        return Ok(Some(Some(record.state)));
    }
    let standing = place.schedules().get(schedule).await?;
    let standing = standing.ok_or_else(|| super::no_schedule(schedule, &place.namespace))?;
    Ok(standing.ran.iter().any(|ran| ran == name).then_some(None))
}

/// One that nobody has: the time, and chance for those who ask in the same moment.
fn new_name() -> String {
    let digits = |mut number: u64, count: usize| {
        let mut text = Vec::new();
        for _ in 0..count {
            text.push(b"0123456789abcdefghijklmnopqrstuvwxyz"[(number % 36) as usize]);
            number /= 36;
        }
        text.reverse();
        String::from_utf8_lossy(&text).into_owned()
    };
    digits(now_ms(), 8) + &digits(rand::random(), 4)
}
