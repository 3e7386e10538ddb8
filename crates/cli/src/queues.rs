//! `tenure queue`: what is set for the queues, and how many jobs they have.

use crate::args::{QueueAction, QueueOneArgs, QueueSetArgs};
use crate::exit::Failure;
use crate::out::{Table, complain, say, say_json};
use crate::schedules::{Place, id, pretty, span};
use serde_json::json;
use std::process::ExitCode;
use tenure::id::QueueName;
use tenure::job::{JobList, Jobs, Queue, QueueInfo, QueueSettings};

/// An object on the store cannot be read.
const UNREADABLE: u8 = 6;

const HEADER: [&str; 6] = ["QUEUE", "WAITING", "RUNNING", "DEAD", "AT ONCE", "OLDEST WAITS"];

pub(crate) async fn queue(action: QueueAction) -> Result<ExitCode, Failure> {
    match action {
        QueueAction::Ls(args) => {
            let (namespace, place) = Place::existing(&args.settings).await?;
            let list = match &place {
                Some(place) => JobList::read(&place.lanes, &namespace).await?,
                None => JobList::default(),
            };
            let (queues, unreadable) = (Queue::all(&list), list.unreadable);
            if args.json {
                let queues: Vec<QueueInfo> = queues.iter().map(Queue::info).collect();
                let unreadable: Vec<String> =
                    unreadable.iter().map(|(key, why)| format!("{key}: {why}")).collect();
                let report =
                    json!({"namespace": namespace.as_str(), "queues": queues, "unreadable": unreadable});
                say_json(&pretty(&report)?);
            } else if queues.is_empty() {
                say!("no queues in {namespace}: a queue is made by the first job that names it");
            } else {
                let mut table = Table::new(&HEADER);
                queues.iter().for_each(|queue| table.row(cells(queue)));
                table.say();
            }
            Ok(missing(&unreadable))
        }
        QueueAction::Show(args) => show(args).await,
        QueueAction::Pause(args) => {
            set(args.settings, &args.name, args.json, |settings| settings.paused = true).await
        }
        QueueAction::Resume(args) => {
            set(args.settings, &args.name, args.json, |settings| settings.paused = false).await
        }
        QueueAction::Set(QueueSetArgs { name, concurrency, json, settings }) => {
            let most = match concurrency.as_str() {
                "none" => None,
                text => Some(text.parse().map_err(|_| {
                    Failure::usage(format!("--concurrency = {text:?}: must be a number from 1, or `none`"))
                })?),
            };
            set(settings, &name, json, |settings| settings.concurrency = most).await
        }
    }
}

async fn show(args: QueueOneArgs) -> Result<ExitCode, Failure> {
    let name: QueueName = id("NAME", &args.name)?;
    let (namespace, place) = Place::existing(&args.settings).await?;
    let unknown = || Failure::missing(format!("queue {name} has neither jobs nor settings in {namespace}"));
    let place = place.ok_or_else(unknown)?;
    let list = JobList::read(&place.lanes, &namespace).await?;
    let queue = Queue::all(&list).into_iter().find(|queue| queue.name == name).ok_or_else(unknown)?;
    if args.json {
        let mut report = json!(queue.info());
        report["namespace"] = json!(namespace.as_str());
        say_json(&pretty(&report)?);
    } else {
        say!("queue      {}{}", queue.name, if queue.settings.paused { ", paused" } else { "" });
        say!("at once    {}", at_once(queue.settings));
        say!(
            "waiting    {}{}",
            queue.waiting,
            queue.oldest.map_or_else(String::new, |oldest| {
                format!(", the oldest for {}", span(tenure::clock::millis(oldest)))
            })
        );
        say!("running    {}", queue.running);
        say!("dead       {}", queue.dead);
    }
    Ok(missing(&list.unreadable))
}

async fn set(
    place: crate::args::PlaceArgs,
    name: &str,
    as_json: bool,
    change: impl Fn(&mut QueueSettings) + Send + Sync,
) -> Result<ExitCode, Failure> {
    let name: QueueName = id("NAME", name)?;
    let settings = place.load()?.settings;
    let place = Place::open(&place).await?;
    let jobs = Jobs::of_namespace(&settings, place.lanes.clone())?;
    let now = jobs.set_queue(&name, change).await?;
    if as_json {
        let report = json!({
            "namespace": place.namespace.as_str(), "queue": name.as_str(),
            "paused": now.paused, "concurrency": now.concurrency,
        });
        say_json(&pretty(&report)?);
    } else {
        let paused = if now.paused { "is paused" } else { "is active" };
        say!("queue {name} {paused}; jobs at once: {}", at_once(now));
    }
    Ok(ExitCode::SUCCESS)
}

fn cells(queue: &Queue) -> [String; 6] {
    let paused = if queue.settings.paused { " (paused)" } else { "" };
    [
        format!("{}{paused}", queue.name),
        queue.waiting.to_string(),
        queue.running.to_string(),
        queue.dead.to_string(),
        at_once(queue.settings),
        queue.oldest.map_or_else(|| "-".to_owned(), |oldest| span(tenure::clock::millis(oldest))),
    ]
}

fn at_once(settings: QueueSettings) -> String {
    settings.concurrency.map_or_else(|| "any number".to_owned(), |most| most.to_string())
}

/// What is shown is not all there is if a part cannot be read.
fn missing(unreadable: &[(String, String)]) -> ExitCode {
    for (key, why) in unreadable {
        complain!("tenure: {key} cannot be read, so its jobs are missing here: {why}");
    }
    if unreadable.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(UNREADABLE) }
}
