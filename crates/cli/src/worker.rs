//! `tenure worker run` and `tenure workers`: a worker without a node, and a look at all of them.

use crate::args::{SettingsArgs, WorkerRunArgs, WorkersArgs};
use crate::exit::Failure;
use crate::log;
use crate::out::{Table, say, say_json};
use crate::run::{Signals, print_events};
use crate::secret;
use crate::status::existing;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tenure::clock::BootClock;
use tenure::clock::millis;
use tenure::store::OpenOptions;
use tenure::worker::{Observer, Worker, WorkerEnd, WorkerList, WorkerPhase, WorkerSpec, WorkerState};
use tenure::{Namespace, NodeId};

/// The plugin of a worker that names none.
const PLUGIN_TYPE: &str = "worker";

pub(crate) async fn run(args: WorkerRunArgs) -> Result<ExitCode, Failure> {
    log::start(args.log);
    secret::hide_memory();
    let resolved = args.settings.load()?;
    let mut settings = resolved.settings.clone();
    if let Some(pod) = &args.pod {
        settings.node = NodeId::new(pod).map_err(|error| Failure::usage(format!("--pod: {error}")))?;
    }
    log::speak_for_worker(&args.id, &settings, &resolved.warnings);
    let mut spec = WorkerSpec::new(&args.id, args.plugin_type.as_deref().unwrap_or(PLUGIN_TYPE));
    if let Some(timeout_ms) = args.timeout {
        spec = spec.timeout(Duration::from_millis(timeout_ms));
    }
    if let Some(payload) = &args.payload {
        let payload = serde_json::from_str(payload)
            .map_err(|error| Failure::usage(format!("--payload is not JSON: {error}")))?;
        spec = spec.payload(payload);
    }
    spec.validate(&settings)?;
    SettingsArgs::prepare_store(&resolved)?;
    let mut signals = Signals::new()?;
    let options = OpenOptions::with_request_timeout(settings.request_timeout);
    let lanes = tenure::store::open(&settings.store, &options).await?;
    tracing::info!(
        "worker {} registers for pod {} in namespace {} on {} (heartbeat {} ms)",
        args.id,
        settings.node,
        settings.namespace,
        settings.store,
        millis(settings.worker_heartbeat_interval)
    );
    let observer = Observer::start(settings, lanes, Arc::new(BootClock))?;
    let printer = args.events.then(|| print_events(observer.events()));
    let worker = observer.register_worker(spec)?;
    let ended = tokio::select! {
        _ = signals.next() => {
            tracing::info!("stopping; a second signal ends at once");
            signals.second_ends();
            None
        }
        end = worker.ended() => Some(end),
    };
    let was_registered = worker.status().borrow().phase == WorkerPhase::Registered;
    // Leaving is the same for a worker that has ended already.
    let left = worker.deregister().await;
    drop(observer);
    if let Some(printer) = printer {
        // The channel closes with the observer's last task, so the thread ends once it has printed what is left.
        let _ = printer.join();
    }
    if !was_registered && ended.is_none() && left == WorkerEnd::Deregistered {
        tracing::info!("worker {} was not registered yet", args.id);
        return Ok(ExitCode::SUCCESS);
    }
    outcome(&args.id, ended.unwrap_or(left))
}

pub(crate) fn outcome(id: &str, end: WorkerEnd) -> Result<ExitCode, Failure> {
    match end {
        WorkerEnd::Deregistered => {
            tracing::info!("worker {id} deregistered");
            Ok(ExitCode::SUCCESS)
        }
        WorkerEnd::Refused(error) => Err(error.into()),
        WorkerEnd::Superseded { pod, incarnation } => Err(Failure::other(format!(
            "worker {id:?} was silent for too long, and another process on pod {pod} (incarnation {incarnation}) has its id now"
        ))),
        end @ (WorkerEnd::Died | _) => Err(Failure::other(format!("worker {id:?} ended: {end:?}"))),
    }
}

/// `ID[:PLUGIN_TYPE]`, as `tenure run --worker` takes it.
pub(crate) fn parse(text: &str) -> WorkerSpec {
    let (id, plugin_type) = text.split_once(':').unwrap_or((text, PLUGIN_TYPE));
    WorkerSpec::new(id, plugin_type)
}

/// Deregisters all of them at once.
pub(crate) async fn deregister_all(workers: Vec<Worker>) {
    let mut leaving = tokio::task::JoinSet::new();
    for worker in workers {
        leaving.spawn(worker.deregister());
    }
    leaving.join_all().await;
}

pub(crate) async fn list(args: WorkersArgs) -> Result<ExitCode, Failure> {
    let settings = args.settings.load()?.settings;
    let namespace = Namespace::new(&settings.namespace).map_err(Failure::usage)?;
    let list = match existing(&settings).await? {
        Some(lanes) => WorkerList::read(&lanes, &namespace).await?,
        None => WorkerList { namespace: namespace.to_string(), epoch: 0, workers: Vec::new(), skipped: 0 },
    };
    if args.json {
        say_json(&serde_json::to_string_pretty(&list).map_err(Failure::other)?);
    } else {
        print(&list);
    }
    Ok(ExitCode::SUCCESS)
}

fn print(list: &WorkerList) {
    if list.workers.is_empty() {
        say!("no workers in {}", list.namespace);
    } else {
        let mut table = Table::new(&["WORKER", "TYPE", "POD", "TIMEOUT", "STATE", "LAST SEEN"]).right_from(5);
        for worker in &list.workers {
            let seen = Duration::from_millis(worker.last_seen_ms_ago);
            let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
            table.row([
                worker.worker_id.clone(),
                text(&worker.plugin_type),
                text(&worker.pod),
                worker.timeout.map_or_else(|| "-".to_owned(), |ms| format!("{} s", ms as f64 / 1000.0)),
                worker.state.as_str().to_owned(),
                format!("{:.1} s ago", seen.as_secs_f64()),
            ]);
        }
        table.say();
        let count = |state| list.workers.iter().filter(|worker| worker.state == state).count();
        say!();
        say!(
            "{} active, {} inactive, {} new, as of epoch {}",
            count(WorkerState::Active),
            count(WorkerState::Inactive),
            count(WorkerState::New),
            list.epoch
        );
    }
    if list.skipped > 0 {
        say!("{} other objects in `workers/` are not workers", list.skipped);
    }
}
