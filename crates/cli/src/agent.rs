//! `tenure agent`: a worker that runs checks, commands and HTTP requests, without a node.

use crate::args::{AgentArgs, SettingsArgs};
use crate::exit::Failure;
use crate::log;
use crate::run::{Signals, print_events};
use crate::schedules::id;
use crate::secret;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use tenure::clock::BootClock;
use tenure::id::{Label, QueueName};
use tenure::job::{AllowedCommand, ClaimerCounts, Handlers, JobRunner, Labels, RunnerEnd, RunnerOptions};
use tenure::store::OpenOptions;
use tenure::worker::{Observer, WorkerSpec};
use tenure_plugins::checks::{Checks, LinkLocal};
use tenure_plugins::work::{Commands, HttpRequests};

/// As many as a schedule may ask for.
const CAPABILITIES_MAX: usize = 32;

const QUEUES_MAX: usize = 32;

pub(crate) async fn agent(args: AgentArgs) -> Result<ExitCode, Failure> {
    log::start(args.log);
    secret::hide_memory();
    let resolved = args.settings.load()?;
    let commands = commands(&args)?;
    let takes = RunnerOptions { commands: commands.allowed().clone(), ..takes(&args)? };
    let handlers = handlers(&args, commands)?;
    let mut settings = resolved.settings.clone();
    if let Some(pod) = &args.pod {
        settings.node = id("--pod", pod)?;
    }
    log::speak_for_worker(&args.id, &settings, &resolved.warnings);
    let spec = WorkerSpec::new(&args.id, &args.plugin_type);
    spec.validate(&settings)?;
    SettingsArgs::prepare_store(&resolved)?;
    let mut signals = Signals::new()?;
    crate::systemd::keep_watchdog();
    let options = OpenOptions::with_request_timeout(settings.request_timeout);
    let lanes = tenure::store::open(&settings.store, &options).await?;
    tracing::info!(
        "agent {} registers for pod {} in namespace {} on {}",
        args.id,
        settings.node,
        settings.namespace,
        settings.store
    );
    let observer = Observer::start(settings, lanes, Arc::new(BootClock))?;
    let printer = args.events.then(|| print_events(observer.events()));
    let worker = observer.register_worker(spec)?;
    let runner = JobRunner::start_with(&observer.jobs(), worker, handlers, takes.clone());
    let counts = runner.counts();
    let end = work(&args.id, &takes, runner, &mut signals).await;
    let end = match end {
        Ok(end) => end,
        Err(runner) => {
            tracing::info!(
                "agent {} is draining {} jobs; a second signal ends at once",
                args.id,
                runner.in_hand()
            );
            crate::systemd::notify("STOPPING=1");
            signals.second_ends();
            runner.drain().await
        }
    };
    drop(observer);
    if let Some(printer) = printer {
        // The channel closes with the observer's last task, so the thread ends once it has printed what is left.
        let _ = printer.join();
    }
    match end {
        RunnerEnd::Drained => {
            let ClaimerCounts { claimed, fenced: stale, duplicates, .. } = *counts.borrow();
            tracing::info!(claimed, stale, duplicates, "agent {} has drained", args.id);
            Ok(ExitCode::SUCCESS)
        }
        RunnerEnd::WorkerEnded(end) => crate::worker::outcome(&args.id, end),
        RunnerEnd::Dropped => Err(Failure::other(format!("agent {:?} ended unexpectedly", args.id))),
    }
}

/// Works until it has ended, or gives the runner back to be drained because a signal came.
async fn work(
    id: &str,
    takes: &RunnerOptions,
    runner: JobRunner,
    signals: &mut Signals,
) -> Result<RunnerEnd, JobRunner> {
    tokio::select! {
        _ = signals.next() => return Err(runner),
        end = runner.ended() => return Ok(end),
        registered = runner.worker().registered() => {
            // One that cannot register has ended, which is seen below.
            if registered.is_ok() {
                tracing::info!("agent {id} takes jobs: {}", told(takes));
                crate::systemd::notify("READY=1");
            }
        }
    }
    tokio::select! {
        _ = signals.next() => Err(runner),
        end = runner.ended() => Ok(end),
    }
}

fn told(takes: &RunnerOptions) -> String {
    let mut text = format!("{} at once", takes.concurrency);
    if !takes.queues.is_empty() {
        let all: Vec<&str> = takes.queues.iter().map(QueueName::as_str).collect();
        text.push_str(&format!(", of queue {}", all.join(" ")));
    }
    let Labels { partition, domain, capabilities } = &takes.labels;
    for (what, id) in [("partition", partition), ("domain", domain)] {
        if let Some(id) = id {
            text.push_str(&format!(", {what} {id}"));
        }
    }
    if !capabilities.is_empty() {
        let all: Vec<&str> = capabilities.iter().map(Label::as_str).collect();
        text.push_str(&format!(", can {}", all.join(" ")));
    }
    text
}

fn takes(args: &AgentArgs) -> Result<RunnerOptions, Failure> {
    let given = |what: &str, text: &Option<String>| text.as_ref().map(|text| id(what, text)).transpose();
    let capabilities = args.capabilities.iter().map(|text| id("--capability", text));
    let capabilities = capabilities.collect::<Result<BTreeSet<Label>, Failure>>()?;
    if capabilities.len() > CAPABILITIES_MAX {
        let count = capabilities.len();
        return Err(Failure::usage(format!(
            "--capability: given {count} times; at most {CAPABILITIES_MAX} are allowed"
        )));
    }
    let labels = Labels {
        partition: given("--partition", &args.partition)?,
        domain: given("--domain", &args.domain)?,
        capabilities,
    };
    let queues = args.queues.iter().map(|text| id("--queue", text));
    let queues = queues.collect::<Result<BTreeSet<QueueName>, Failure>>()?;
    if queues.len() > QUEUES_MAX {
        let count = queues.len();
        return Err(Failure::usage(format!(
            "--queue: given {count} times; at most {QUEUES_MAX} are allowed"
        )));
    }
    let slots = usize::try_from(args.slots).unwrap_or(usize::MAX);
    Ok(RunnerOptions { queues, labels, keep_output: !args.no_output, ..RunnerOptions::at_once(slots) })
}

/// Everything that it can do: checks, commands and requests.
fn handlers(args: &AgentArgs, commands: Commands) -> Result<Handlers, Failure> {
    let link_local = if args.allow_link_local { LinkLocal::Allowed } else { LinkLocal::Denied };
    let checks = Checks::reaching(link_local).map_err(Failure::other)?;
    let checks = checks.on("command", commands.clone()).map_err(Failure::usage)?;
    let mut handlers = commands.handle(checks.handle(Handlers::new()));
    if args.allow_http {
        let requests = HttpRequests::new(link_local).map_err(Failure::other)?;
        handlers = requests.handle(handlers);
    }
    Ok(handlers)
}

fn commands(args: &AgentArgs) -> Result<Commands, Failure> {
    let mut allowed = Vec::new();
    for text in &args.allow_commands {
        let command: AllowedCommand = text
            .parse()
            .map_err(|rule: String| Failure::usage(format!("--allow-command = {text:?}: {rule}")))?;
        if !Path::new(command.program()).is_file() {
            tracing::warn!("--allow-command: there is no program {} here", command.program());
        }
        allowed.push(command);
    }
    if let Some(name) = args.env.iter().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        let name = name.split('=').next().unwrap_or_default();
        let rule = "must be only a variable's name; its value comes from the agent's environment";
        return Err(Failure::usage(format!("--env = {name:?}: {rule}")));
    }
    Ok(Commands::new(allowed).env(&args.env))
}
