//! `tenure job ls` and `tenure job show`: the ledger, looked at from outside. Nothing is written.

mod history;
mod logs;
mod rows;
mod submit;

pub(crate) use history::history;
pub(crate) use logs::logs;
pub(crate) use rows::Row;
pub(crate) use submit::{cancel, remove, retry, submit};

use crate::args::{JobsArgs, OneArgs};
use crate::exit::Failure;
use crate::out::{Table, complain, say, say_json};
use crate::schedules::{Place, id, pretty};
use serde_json::json;
use std::process::ExitCode;
use tenure::id::{JobId, KindName, QueueName};
use tenure::job::{JobList, JobState};
use tenure_plugins::schedules::{JobInfo, JobRow, schedule_of};

/// Inboxes that are looked into at most.
const INBOXES_MAX: usize = 64;

/// An object on the store cannot be read.
const UNREADABLE: u8 = 6;

pub(super) const JOB_HEADER: [&str; 8] =
    ["JOB", "QUEUE", "STATE", "ATTEMPT", "WORKER", "DUE", "AGE", "RESULT OR REASON"];

pub(crate) async fn jobs(args: JobsArgs) -> Result<ExitCode, Failure> {
    let schedule = args.schedule.as_ref().map(|text| id("--schedule", text)).transpose()?;
    let state = args.state.as_ref().map(|name| state(name)).transpose()?;
    let queue = args.queue.as_ref().map(|text| id::<QueueName>("--queue", text)).transpose()?;
    let kind = args.kind.as_ref().map(|text| id::<KindName>("--kind", text)).transpose()?;
    let is_narrowed =
        [schedule.is_some(), state.is_some(), queue.is_some(), kind.is_some(), args.open, args.dead]
            .contains(&true);
    let (namespace, place) = Place::existing(&args.settings).await?;
    let mut list = match &place {
        Some(place) => JobList::read(&place.lanes, &namespace).await?,
        None => JobList::default(),
    };
    list.jobs.retain(|job| {
        let of_schedule = || schedule_of(job).is_some() && schedule.as_ref() == Some(&job.series);
        (schedule.is_none() || of_schedule())
            && queue.as_ref().is_none_or(|queue| job.queue == *queue)
            && kind.as_ref().is_none_or(|kind| job.kind == *kind)
            && !(args.open && job.state.is_final())
            && (!args.dead || job.state.is_dead())
    });
    let mut rows = Vec::new();
    if let Some(place) = &place {
        list.ask_workers(&place.lanes, &namespace, INBOXES_MAX).await?;
        list.jobs.retain(|job| state.is_none_or(|state| job.state == state));
        // Only those that are shown are worth a look at their schedules.
        let (total, limit) = (list.jobs.len(), usize::try_from(args.limit).unwrap_or(usize::MAX));
        let newest = JobRow::newest(std::mem::take(&mut list.jobs), limit);
        rows = Row::all(place, newest).await?;
        if args.json {
            let unreadable: Vec<String> =
                list.unreadable.iter().map(|(key, why)| format!("{key}: {why}")).collect();
            let jobs: Vec<JobInfo> = rows.iter().map(Row::info).collect();
            let report = json!({"namespace": namespace.as_str(), "jobs": jobs, "total": total, "unreadable": unreadable});
            say_json(&pretty(&report)?);
            return Ok(code(&list));
        }
        if total > rows.len() {
            complain!("tenure: showing {} of {total} jobs; use --limit to show more", rows.len());
        }
    } else if args.json {
        let nothing = json!({"namespace": namespace.as_str(), "jobs": [], "total": 0, "unreadable": []});
        say_json(&pretty(&nothing)?);
        return Ok(ExitCode::SUCCESS);
    }
    if rows.is_empty() {
        say!("no jobs in {namespace}{}", if is_narrowed { " match" } else { "" });
    } else {
        let mut table = Table::new(&JOB_HEADER);
        rows.iter().for_each(|row| table.row(row.cells()));
        table.say();
    }
    for (key, why) in &list.unreadable {
        complain!("tenure: {key} cannot be read, so its jobs are missing here: {why}");
    }
    Ok(code(&list))
}

/// What is shown is not all there is if a part cannot be read.
fn code(list: &JobList) -> ExitCode {
    if list.unreadable.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(UNREADABLE) }
}

fn state(name: &str) -> Result<JobState, Failure> {
    JobState::named(name).ok_or_else(|| {
        let all: Vec<&str> = JobState::ALL.iter().map(|state| state.as_str()).collect();
        Failure::usage(format!("--state = {name:?}: must be one of {}", all.join(", ")))
    })
}

pub(crate) async fn show(args: OneArgs) -> Result<ExitCode, Failure> {
    let job: JobId = id("ID", &args.id)?;
    let (namespace, place) = Place::existing(&args.settings).await?;
    let missing = || Failure::missing(format!("there is no job {:?} in {namespace}", job.as_str()));
    let place = place.ok_or_else(missing)?;
    let job = JobList::find(&place.lanes, &namespace, &job).await?.ok_or_else(missing)?;
    let row = Row::all(&place, vec![job]).await?.pop().ok_or_else(missing)?;
    if args.json {
        let mut value = json!(row.info());
        value["namespace"] = json!(namespace.as_str());
        say_json(&pretty(&value)?);
    } else {
        row.print();
    }
    Ok(ExitCode::SUCCESS)
}
