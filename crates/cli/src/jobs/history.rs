//! `tenure job history`: finished jobs, a page at a time.

use super::state;
use crate::args::JobHistoryArgs;
use crate::exit::Failure;
use crate::out::{Table, complain, say, say_json};
use crate::schedules::{Place, id, moment, now_ms, pretty, span};
use serde_json::json;
use std::process::ExitCode;
use std::time::SystemTime;
use tenure::id::{QueueName, ScheduleId, WorkerId};
use tenure::job::{HistoryPage, HistoryQuery, HistoryRow, JobHistory};
use tenure_plugins::schedules::{JobInfo, JobRow};

pub(crate) async fn history(args: JobHistoryArgs) -> Result<ExitCode, Failure> {
    let schedule = args.schedule.as_ref().map(|text| id::<ScheduleId>("--schedule", text)).transpose()?;
    let ms = |time: SystemTime| {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    };
    let state = args.state.as_ref().map(|name| state(name)).transpose()?;
    if let Some(open) = state.filter(|state| !state.is_final()) {
        let sentence = "must be a state in which a job ends; `tenure job ls` lists open jobs";
        return Err(Failure::usage(format!("--state = {:?}: {sentence}", open.as_str())));
    }
    let query = HistoryQuery {
        series: schedule.map(|schedule| schedule.series()),
        queue: args.queue.as_ref().map(|text| id::<QueueName>("--queue", text)).transpose()?,
        state,
        since_ms: args.since.map(ms),
        until_ms: args.until.map(ms),
        before: args.before,
    };
    let (namespace, place) = Place::existing(&args.settings).await?;
    let page = match &place {
        Some(place) => {
            let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
            JobHistory::new(&place.lanes, &namespace).page(&query, limit).await?
        }
        None => HistoryPage::default(),
    };
    if args.json {
        let jobs: Vec<JobInfo> = page.jobs.iter().map(|row| JobRow::of_history(row).info(now_ms())).collect();
        say_json(&pretty(&json!({"namespace": namespace.as_str(), "jobs": jobs, "next": page.next}))?);
        return Ok(ExitCode::SUCCESS);
    }
    if page.jobs.is_empty() {
        say!(
            "no finished jobs in {namespace}{}",
            if query == HistoryQuery::default() { "" } else { " match" }
        );
    } else {
        let mut table =
            Table::new(&["ENDED", "STATE", "JOB", "QUEUE", "ATTEMPT", "TOOK", "WORKER", "REASON"]);
        page.jobs.iter().for_each(|row| table.row(cells(row)));
        table.say();
    }
    if let Some(next) = page.next {
        complain!("tenure: there may be older ones; go on with --before {next}");
    }
    Ok(ExitCode::SUCCESS)
}

fn cells(row: &HistoryRow) -> [String; 8] {
    let none = || "-".to_owned();
    let took_ms = u64::try_from(row.ended_ms.saturating_sub(row.began_ms)).unwrap_or(0);
    [
        moment(u64::try_from(row.ended_ms).unwrap_or(0)),
        row.state.as_str().to_owned(),
        row.id.to_string(),
        row.queue.to_string(),
        format!("{}/{}", row.attempts.0, row.attempts.1),
        if row.began_ms > 0 { span(took_ms) } else { none() },
        row.worker.as_ref().map_or_else(none, WorkerId::to_string),
        row.reason.chars().filter(|c| !c.is_control()).take(60).collect(),
    ]
}
