//! `tenure schedule`: what is done, and when.

use super::{Place, id, inline, moment, no_schedule, now_ms, pretty, run_now};
use crate::args::{ExportArgs, LookArgs, OneArgs, ScheduleAction, ScheduleAddArgs};
use crate::exit::Failure;
use crate::jobs::{JOB_HEADER, Row};
use crate::out::{Table, complain_lines, say, say_json};
use crate::secret;
use serde_json::{Value, json};
use std::process::ExitCode;
use tenure::id::{CheckName, Label, ScheduleId};

use tenure::job::{HistoryRuns, JobHistory, JobList, JobRecord, JobState};
use tenure_plugins::checks::CheckHealth;
use tenure_plugins::schedules::{Change, JobRow, Schedule, Timing, schedule_of};
use tenure_plugins::work::Work;

/// Jobs that `show` tells people of.
const JOBS_SHOWN: usize = 10;

pub(crate) async fn schedule(action: ScheduleAction) -> Result<ExitCode, Failure> {
    match action {
        ScheduleAction::Add(args) => add(args).await,
        ScheduleAction::List(args) => list(&args).await,
        ScheduleAction::Show(args) => show(&args).await,
        ScheduleAction::Pause(args) => enable(&args, false).await,
        ScheduleAction::Resume(args) => enable(&args, true).await,
        ScheduleAction::RunNow(args) => run_now::run_now(args).await,
        ScheduleAction::Export(args) => export(&args).await,
        ScheduleAction::Rm(args) => remove(&args).await,
    }
}

async fn add(mut args: Box<ScheduleAddArgs>) -> Result<ExitCode, Failure> {
    if let Some(path) = &args.webhook_file {
        args.webhook = Some(secret::WEBHOOK.in_file(path)?.text);
    }
    let schedule = inline::schedule(&args).map_err(Failure::usage)?;
    let place = Place::open(&args.settings).await?;
    let change = match args.replace {
        true => place.schedules().put(&schedule, now_ms()).await?,
        false => place.schedules().add(&schedule, now_ms()).await.map(|()| Change::Created)?,
    };
    if args.json {
        let (namespace, id) = (place.namespace.as_str(), schedule.id.as_str());
        say_json(&pretty(&json!({"namespace": namespace, "id": id, "outcome": change.as_str()}))?);
    } else {
        say!("{} {}: {}", change.as_str(), schedule.id, when(&schedule));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints schedules as a file that `apply` reads: YAML, without what is as by default.
async fn export(args: &ExportArgs) -> Result<ExitCode, Failure> {
    let wanted = args.ids.iter().map(|text| id("ID", text)).collect::<Result<Vec<ScheduleId>, Failure>>()?;
    let (namespace, place) = Place::existing(&args.settings).await?;
    let all = match &place {
        Some(place) => place.schedules().list().await?,
        None => Default::default(),
    };
    if let Some(missing) = wanted.iter().find(|id| !all.contains_key(*id)) {
        return Err(no_schedule(missing, &namespace));
    }
    let mut code = ExitCode::SUCCESS;
    let is_wanted = |id: &&ScheduleId| wanted.is_empty() || wanted.contains(id);
    let mut fields = Vec::new();
    for (id, read) in all.iter().filter(|(id, _)| is_wanted(id)) {
        match read {
            Ok(schedule) => fields.push(schedule.to_file_fields()),
            Err(problems) => {
                complain_lines(&format!("tenure: {id} is invalid and left out: {problems}"));
                code = ExitCode::FAILURE;
            }
        }
    }
    if args.json || fields.is_empty() {
        let object = |fields: Vec<(String, Value)>| Value::Object(fields.into_iter().collect());
        say_json(&pretty(&fields.into_iter().map(object).collect())?);
        return Ok(code);
    }
    for schedule in fields {
        for (place, (key, value)) in schedule.iter().enumerate() {
            // JSON is YAML, too.
            say!("{} {key}: {value}", if place == 0 { "-" } else { " " });
        }
    }
    Ok(code)
}

/// Its timing, for people.
fn when(schedule: &Schedule) -> String {
    match &schedule.timing {
        Timing::Interval(interval) => format!("every {}", exactly(interval.every_ms)),
        Timing::Cron(times) => format!("{} {}", times.expression(), times.zone()),
        Timing::Manual => "by hand".to_owned(),
    }
}

/// A time as a file would have it.
fn exactly(ms: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms")];
    let (mut rest, mut text) = (ms, String::new());
    for (unit, name) in units {
        if rest >= unit {
            text.push_str(&format!("{}{name}", rest / unit));
            rest %= unit;
        }
    }
    text
}

async fn list(args: &LookArgs) -> Result<ExitCode, Failure> {
    let (namespace, place) = Place::existing(&args.settings).await?;
    let all = match &place {
        Some(place) => place.schedules().list().await?,
        None => Default::default(),
    };
    let runs = match &place {
        Some(place) if !all.is_empty() => JobHistory::new(&place.lanes, &namespace).runs().await?,
        Some(_) | None => Default::default(),
    };
    let runs_of = |schedule: &Schedule| runs.get(&schedule.id.series());
    let good: Vec<&Schedule> = all.values().filter_map(|read| read.as_ref().ok()).collect();
    let bad = all.iter().filter_map(|(id, read)| Some((id, read.as_ref().err()?)));
    if args.json {
        let row = |schedule: &&Schedule| schedule.to_row(runs_of(schedule), now_ms());
        let refused = bad.map(|(id, problems)| {
            let problems: Vec<String> = problems.all().iter().map(ToString::to_string).collect();
            json!({"id": id.as_str(), "problems": problems})
        });
        let report = json!({
            "namespace": namespace.as_str(), "schedules": good.iter().map(row).collect::<Vec<Value>>(),
            "refused": refused.collect::<Vec<Value>>(),
        });
        say_json(&pretty(&report)?);
        return Ok(ExitCode::SUCCESS);
    }
    if all.is_empty() {
        say!("no schedules in {namespace}");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["SCHEDULE", "WHEN", "STATE", "LAST", "NEXT", "WORK", "NEEDS"]);
    for schedule in good {
        table.row([
            schedule.id.to_string(),
            when(schedule),
            if schedule.enabled { "enabled".to_owned() } else { "paused".to_owned() },
            runs_of(schedule).map_or_else(|| "-".to_owned(), last),
            next(schedule),
            work(schedule),
            needs(schedule),
        ]);
    }
    if !table.is_empty() {
        table.say();
    }
    for (id, problems) in bad {
        complain_lines(&format!("tenure: {id} is invalid and will not run: {problems}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// How its last run ended, and when.
fn last(runs: &HistoryRuns) -> String {
    let row = &runs.last;
    let how = if row.state == JobState::Succeeded { "ok" } else { row.state.as_str() };
    format!("{how} {}", moment(u64::try_from(row.ended_ms).unwrap_or(0)))
}

/// When its next job should begin, in its own zone.
fn next(schedule: &Schedule) -> String {
    let at = schedule.next_ms(now_ms()).and_then(|ms| i64::try_from(ms).ok());
    let stamp = at.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let Some(stamp) = stamp else { return "-".to_owned() };
    match schedule.timing.zone().map(|zone| stamp.in_tz(zone)) {
        Some(Ok(here)) => here.strftime("%Y-%m-%d %H:%M:%S %Z").to_string(),
        Some(Err(_)) | None => stamp.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
    }
}

/// What its jobs do, for people.
fn work(schedule: &Schedule) -> String {
    let names = schedule.checks.iter().map(|check| check.name.as_str());
    schedule.work.as_ref().map_or_else(|| names.collect::<Vec<&str>>().join(", "), Work::told)
}

fn needs(schedule: &Schedule) -> String {
    let needs = &schedule.needs;
    let places = [("partition", &needs.partition), ("domain", &needs.domain)];
    let places = places.into_iter().filter_map(|(what, id)| id.as_ref().map(|id| format!("{what} {id}")));
    let all: Vec<String> = places.chain(needs.capabilities.iter().map(Label::to_string)).collect();
    if all.is_empty() { "-".to_owned() } else { all.join(", ") }
}

async fn jobs_of(place: &Place, id: &ScheduleId) -> Result<Vec<JobRecord>, Failure> {
    let mut list = JobList::read_near(&place.lanes, &place.namespace, &id.series()).await?;
    list.jobs.retain(|job| schedule_of(job).as_ref() == Some(id));
    list.ask_workers(&place.lanes, &place.namespace, 16).await?;
    Ok(list.jobs)
}

fn open(jobs: &[JobRecord]) -> usize {
    jobs.iter().filter(|job| !job.state.is_final()).count()
}

async fn show(args: &OneArgs) -> Result<ExitCode, Failure> {
    let id = id("ID", &args.id)?;
    let (namespace, place) = Place::existing(&args.settings).await?;
    let place = place.ok_or_else(|| no_schedule(&id, &namespace))?;
    let schedules = place.schedules();
    let schedule = schedules.get(&id).await?.ok_or_else(|| no_schedule(&id, &namespace))?;
    let health = schedules.health().await?.of(&id);
    let jobs = jobs_of(&place, &id).await?;
    let runs = JobHistory::new(&place.lanes, &namespace).runs_of(&id.series()).await?;
    let rows = Row::all(&place, jobs).await?;
    if args.json {
        let rows: Vec<JobRow> = rows.into_iter().map(|row| row.0).collect();
        let report = schedule.to_report(namespace.as_str(), &health, &rows, runs.as_ref(), now_ms());
        say_json(&pretty(&json!(report))?);
        return Ok(ExitCode::SUCCESS);
    }
    say!("schedule   {}", schedule.id);
    say!("when       {}", when(&schedule));
    say!("state      {}", if schedule.enabled { "enabled" } else { "paused" });
    if let Some(runs) = &runs {
        let reason = &*runs.last.reason;
        let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        say!("last       {}{why}", last(runs));
    }
    say!("next       {}", next(&schedule));
    if schedule.work.is_some() {
        say!("work       {}", work(&schedule));
    }
    say!("queue      {}, priority {}", schedule.queue, schedule.priority);
    say!("needs      {}", needs(&schedule));
    say!(
        "jobs       at most {} open, {} each, {} attempt{}, missed ones: {}",
        schedule.open_max(),
        exactly(schedule.timeout_ms),
        schedule.attempts,
        if schedule.attempts == 1 { "" } else { "s" },
        schedule.misfire
    );
    if let Some(webhook) = &schedule.webhook {
        say!("webhook    {webhook}");
    }
    for run in &schedule.run_now {
        say!("requested  job {:?}, which does not exist yet", run.name);
    }
    let has_run = rows.iter().any(|row| row.0.facts.report.is_some());
    for check in &schedule.checks {
        let known = health.get(&check.name);
        let how = match known {
            Some(known) if known.failing => failing(known, &check.name, &rows),
            Some(_) => "well".to_owned(),
            // Only what is worth remembering is remembered: a check that has always been well is not.
            None if has_run => "well".to_owned(),
            None => "not run yet".to_owned(),
        };
        say!("check      {} ({}): {how}", check.name, check.action.kind());
    }
    if rows.is_empty() {
        say!();
        say!("no jobs yet");
    } else {
        let mut table = Table::new(&JOB_HEADER);
        rows.iter().take(JOBS_SHOWN).for_each(|row| table.row(row.cells()));
        say!();
        table.say();
    }
    Ok(ExitCode::SUCCESS)
}

/// Since when, and why by the newest job that says so.
fn failing(known: &CheckHealth, check: &CheckName, rows: &[Row]) -> String {
    let since = known.since_ms.map_or_else(String::new, |due_ms| format!(" since {}", moment(due_ms)));
    let why = rows.iter().find_map(|row| row.why(check)).map_or_else(String::new, |why| format!(": {why}"));
    format!("FAILING{since}{why}")
}

async fn enable(args: &OneArgs, enabled: bool) -> Result<ExitCode, Failure> {
    let id = id("ID", &args.id)?;
    let (namespace, place) = Place::existing(&args.settings).await?;
    let place = place.ok_or_else(|| no_schedule(&id, &namespace))?;
    let change = place.schedules().set_enabled(&id, enabled, now_ms()).await?;
    if args.json {
        let report = json!({
            "namespace": namespace.as_str(), "id": id.as_str(), "enabled": enabled, "outcome": change.as_str(),
        });
        say_json(&pretty(&report)?);
        return Ok(ExitCode::SUCCESS);
    }
    match (enabled, change) {
        (true, Change::Unchanged) => say!("{id} was not paused"),
        (true, Change::Created | Change::Changed) => say!("resumed {id}"),
        (false, Change::Unchanged) => say!("{id} was paused already"),
        (false, Change::Created | Change::Changed) => say!("paused {id}"),
    }
    Ok(ExitCode::SUCCESS)
}

async fn remove(args: &OneArgs) -> Result<ExitCode, Failure> {
    let id = id("ID", &args.id)?;
    let (namespace, place) = Place::existing(&args.settings).await?;
    let place = place.ok_or_else(|| no_schedule(&id, &namespace))?;
    let open = open(&jobs_of(&place, &id).await?);
    if !place.schedules().remove(&id).await? {
        return Err(no_schedule(&id, &namespace));
    }
    if args.json {
        let report = json!({"namespace": namespace.as_str(), "id": id.as_str(), "outcome": "removed", "openJobs": open});
        say_json(&pretty(&report)?);
    } else if open > 0 {
        say!("removed {id}; its open jobs will still finish: {open}");
    } else {
        say!("removed {id}");
    }
    Ok(ExitCode::SUCCESS)
}
