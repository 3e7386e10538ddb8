//! `tenure apply`: a file of schedules, all of it or nothing of it.

use super::{Place, now_ms, pretty};
use crate::args::ApplyArgs;
use crate::exit::Failure;
use crate::out::{complain, complain_lines, say, say_json};
use serde_json::{Value, json};
use std::io::{IsTerminal, Read};
use std::process::ExitCode;
use std::sync::Arc;
use tenure::Namespace;
use tenure::id::ScheduleId;
use tenure_plugins::schedules::{Change, Problems, Rules, Schedule, ScheduleError, read_file};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// What is read of a file: a byte more than may be, so that a longer one is told as such.
const READ_MAX_BYTES: u64 = 1024 * 1024 + 1;

/// Schedules written at once.
const AT_ONCE: usize = 16;

/// Wrong arguments.
const WRONG: u8 = 2;

/// A schedule, and what was done with it: created, changed, unchanged or removed.
type Outcome = (String, Result<&'static str, ScheduleError>);

const REMOVED: &str = "removed";

pub(crate) async fn apply(args: ApplyArgs) -> Result<ExitCode, Failure> {
    let name =
        if args.file.as_os_str() == "-" { "stdin".to_owned() } else { args.file.display().to_string() };
    let namespace = args.settings.load()?.settings.namespace;
    let namespace = Namespace::new(&namespace).map_err(Failure::usage)?;
    let text = text(&args, &name)?;
    let schedules = match read_file(&text, &Rules::default()) {
        Ok(schedules) => schedules,
        Err(problems) => return wrong(&namespace, &name, &problems, args.json),
    };
    let place = if args.dry_run {
        Place::existing(&args.settings).await?.1
    } else {
        Some(Place::open(&args.settings).await?)
    };
    let unwanted = match &place {
        Some(place) if args.prune => unwanted(place, &schedules).await?,
        Some(_) | None => Vec::new(),
    };
    if !unwanted.is_empty() && !args.dry_run && !args.yes && !is_agreed(&unwanted)? {
        return Err(Failure::usage("nothing was written"));
    }
    let outcomes = match &place {
        Some(place) => {
            let mut outcomes = write_all(place, schedules, args.dry_run).await?;
            for id in unwanted {
                let removed = match args.dry_run {
                    true => Ok(REMOVED),
                    false => place.schedules().remove(&id).await.map(|_| REMOVED),
                };
                outcomes.push((id.to_string(), removed));
            }
            outcomes
        }
        None => schedules.into_iter().map(|new| (new.id.to_string(), Ok(Change::Created.as_str()))).collect(),
    };
    report(&namespace, &outcomes, &args)
}

/// The schedules on the store that are not in the file.
async fn unwanted(place: &Place, wanted: &[Schedule]) -> Result<Vec<ScheduleId>, Failure> {
    let mut there = place.schedules().list().await?;
    there.retain(|id, _| wanted.iter().all(|schedule| schedule.id != *id));
    Ok(there.into_keys().collect())
}

/// Asks whether these may be removed.
fn is_agreed(unwanted: &[ScheduleId]) -> Result<bool, Failure> {
    let (count, s) = (unwanted.len(), if unwanted.len() == 1 { "" } else { "s" });
    complain!("tenure: {count} schedule{s} not in the file:");
    unwanted.iter().for_each(|id| complain!("  {id}"));
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage("--prune: nobody can be asked here: give --yes to remove them"));
    }
    complain!("Remove them? Type yes:");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(Failure::other)?;
    Ok(answer.trim() == "yes")
}

fn text(args: &ApplyArgs, name: &str) -> Result<String, Failure> {
    let unread = |error: std::io::Error| Failure::usage(format!("{name} cannot be read: {error}"));
    let mut bytes = Vec::new();
    if args.file.as_os_str() == "-" {
        std::io::stdin().take(READ_MAX_BYTES).read_to_end(&mut bytes).map_err(unread)?;
    } else {
        let file = std::fs::File::open(&args.file).map_err(unread)?;
        file.take(READ_MAX_BYTES).read_to_end(&mut bytes).map_err(unread)?;
    }
    String::from_utf8(bytes).map_err(|_| Failure::usage(format!("{name} is not UTF-8 text")))
}

fn wrong(namespace: &Namespace, name: &str, problems: &Problems, json: bool) -> Result<ExitCode, Failure> {
    for problem in problems.all() {
        complain!("tenure: {name}: {problem}");
    }
    if json {
        let row = |problem: &tenure_plugins::schedules::Problem| json!({"line": problem.line, "field": problem.field, "value": problem.value, "rule": problem.rule});
        let errors: Vec<Value> = problems.all().iter().map(row).collect();
        say_json(&pretty(&json!({"namespace": namespace.as_str(), "file": name, "errors": errors}))?);
    } else {
        complain!("tenure: nothing was written");
    }
    Ok(ExitCode::from(WRONG))
}

/// Each by itself, some at once; in the order of the file.
async fn write_all(place: &Place, new: Vec<Schedule>, dry_run: bool) -> Result<Vec<Outcome>, Failure> {
    let (mut writes, gate) = (JoinSet::new(), Arc::new(Semaphore::new(AT_ONCE)));
    let mut outcomes: Vec<Option<Outcome>> = vec![None; new.len()];
    for (place_in_file, schedule) in new.into_iter().enumerate() {
        let (schedules, gate) = (place.schedules(), Arc::clone(&gate));
        writes.spawn(async move {
            // It is never closed.
            let _permit = gate.acquire().await;
            let done = match dry_run {
                true => schedules.compare(&schedule).await,
                false => schedules.put(&schedule, now_ms()).await,
            };
            (place_in_file, (schedule.id.to_string(), done.map(Change::as_str)))
        });
    }
    while let Some(done) = writes.join_next().await {
        let (place_in_file, outcome) = done.map_err(Failure::other)?;
        outcomes[place_in_file] = Some(outcome);
    }
    Ok(outcomes.into_iter().flatten().collect())
}

fn report(namespace: &Namespace, outcomes: &[Outcome], args: &ApplyArgs) -> Result<ExitCode, Failure> {
    let count = |wanted: &str| outcomes.iter().filter(|(_, done)| *done == Ok(wanted)).count();
    let (created, changed, unchanged) = (count("created"), count("changed"), count("unchanged"));
    let removed = count(REMOVED);
    let failed = outcomes.len() - created - changed - unchanged - removed;
    if args.json {
        let row = |(id, done): &Outcome| match done {
            Ok(done) => json!({"id": id, "outcome": done, "error": null}),
            Err(error) => json!({"id": id, "outcome": "failed", "error": error.to_string()}),
        };
        let rows: Vec<Value> = outcomes.iter().map(row).collect();
        let report = json!({
            "namespace": namespace.as_str(), "dryRun": args.dry_run, "created": created, "changed": changed,
            "unchanged": unchanged, "removed": removed, "failed": failed, "schedules": rows,
        });
        say_json(&pretty(&report)?);
    } else {
        for (id, done) in outcomes {
            match (done, args.dry_run) {
                (Ok(done), false) => say!("{done} {id}"),
                (Ok(done), true) => say!("would be {done}: {id}"),
                (Err(error), _) => complain_lines(&format!("tenure: {id}: {error}")),
            }
        }
        let would = if args.dry_run { "; nothing was written" } else { "" };
        let failures = if failed > 0 { format!(", {failed} FAILED") } else { String::new() };
        let removals = if removed > 0 { format!(", {removed} removed") } else { String::new() };
        say!("{created} created, {changed} changed, {unchanged} unchanged{removals}{failures}{would}");
    }
    let first = outcomes.iter().find_map(|(_, done)| done.as_ref().err().cloned());
    match first {
        None => Ok(ExitCode::SUCCESS),
        Some(error) => Ok(ExitCode::from(Failure::from(error).code())),
    }
}
