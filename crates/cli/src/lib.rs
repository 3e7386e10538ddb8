//! The `tenure` binary: a view of the library. Nothing here decides anything by itself.
//!
//! A library only so that a fuzzer reaches the command line; nobody is meant to build on it.

#![allow(missing_docs, reason = "an internal crate: comment what names and types do not say")]

mod agent;
mod args;
mod config;
mod data_dir;
mod demo;
mod doctor;
mod events;
#[cfg(target_os = "linux")]
mod exec;
#[cfg(not(target_os = "linux"))]
#[path = "exec/unsupported.rs"]
mod exec;
mod exit;
mod forget;
mod health;
mod history;
mod http;
mod jobs;
mod log;
mod metrics;
mod namespaces;
mod node_client;
mod out;
mod queues;
mod run;
mod schedules;
mod secret;
mod status;
mod step_down;
mod systemd;
mod token;
mod watch;
mod worker;

use args::{Cli, JobAction, NodeAction, NodeArgs, Verb, WorkerAction};
use clap::{CommandFactory, Parser};
use exit::Failure;
use out::{say, say_lines};
use std::process::ExitCode;

pub fn main() -> ExitCode {
    let code = match variables_are_text().and_then(|()| dispatch(Cli::parse().command)) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    };
    log::finish();
    match out::failed() {
        Some(error) => Failure::other(format!("cannot write to stdout: {error}")).report(),
        None => code,
    }
}

/// Of a variable that is no text the parser of arguments does not say which it is. Settings are checked where they are read; the others
/// are paths, which need not be text.
fn variables_are_text() -> Result<(), Failure> {
    let is_bad = |name: &&&str| std::env::var_os(name).is_some_and(|value| value.to_str().is_none());
    match ["TENURE_HTTP_LISTEN", "TENURE_NO_HTTP", "TENURE_URL"].iter().find(is_bad) {
        Some(name) => Err(Failure::usage(format!("{name} must be UTF-8 text"))),
        None => Ok(()),
    }
}

fn dispatch(verb: Verb) -> Result<ExitCode, Failure> {
    #[cfg(feature = "teeth")]
    run::choose_mistake()?;
    match verb {
        Verb::Run(args) => runtime()?.block_on(run::run(args)),
        Verb::Exec(args) => runtime()?.block_on(exec::exec(args)),
        Verb::Lock(args) => runtime()?.block_on(exec::lock(args)),
        Verb::Once(args) => runtime()?.block_on(exec::run_once(args)),
        Verb::Keeper(args) => exec::keeper(args),
        Verb::Bound(args) => Ok(exec::bound(&args)),
        Verb::Status(args) => runtime()?.block_on(status::status(args)),
        Verb::History(args) => runtime()?.block_on(history::history(args)),
        Verb::Watch(args) => runtime()?.block_on(watch::watch(args)),
        Verb::Events(args) => runtime()?.block_on(events::events(args)),
        Verb::Token(args) => token::token(&args),
        Verb::Health(args) => runtime()?.block_on(health::health(args)),
        Verb::Leader(args) => runtime()?.block_on(status::leader(args)),
        Verb::StepDown(args) => runtime()?.block_on(step_down::step_down(args)),
        Verb::Namespaces(args) => runtime()?.block_on(namespaces::namespaces(args)),
        Verb::Node(NodeArgs { action: NodeAction::Forget(args) }) => {
            runtime()?.block_on(forget::forget(args))
        }
        Verb::Worker(args) => match args.action {
            WorkerAction::Run(args) => runtime()?.block_on(worker::run(args)),
        },
        Verb::Workers(args) => runtime()?.block_on(worker::list(args)),
        Verb::Agent(args) => runtime()?.block_on(agent::agent(args)),
        Verb::Apply(args) => runtime()?.block_on(schedules::apply(args)),
        Verb::Schedule(args) => runtime()?.block_on(schedules::schedule(args.action)),
        Verb::Job(args) => match args.action {
            JobAction::Ls(args) => runtime()?.block_on(jobs::jobs(args)),
            JobAction::History(args) => runtime()?.block_on(jobs::history(args)),
            JobAction::Submit(args) => runtime()?.block_on(jobs::submit(*args)),
            JobAction::Show(args) => runtime()?.block_on(jobs::show(args)),
            JobAction::Logs(args) => runtime()?.block_on(jobs::logs(args)),
            JobAction::Cancel(args) => runtime()?.block_on(jobs::cancel(args)),
            JobAction::Retry(args) => runtime()?.block_on(jobs::retry(args)),
            JobAction::Rm(args) => runtime()?.block_on(jobs::remove(args)),
        },
        Verb::Queue(args) => runtime()?.block_on(queues::queue(args.action)),
        Verb::Metrics(args) => runtime()?.block_on(metrics::metrics(args)),
        Verb::Cost(args) => runtime()?.block_on(metrics::cost(args)),
        Verb::Doctor(args) => runtime()?.block_on(doctor::doctor(args)),
        Verb::Demo(args) => runtime()?.block_on(demo::demo(args)),
        Verb::Config(args) => config::config(args.action),
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "tenure", &mut script);
            say_lines(String::from_utf8_lossy(&script).trim_end());
            Ok(ExitCode::SUCCESS)
        }
        Verb::Man { folder } => {
            std::fs::create_dir_all(&folder)?;
            clap_mangen::generate_to(Cli::command(), &folder)?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Reference { what } => reference(&what),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// The names in the code, for checking the reference pages against.
fn reference(what: &str) -> Result<ExitCode, Failure> {
    match what {
        "settings" => tenure::settings::FIELDS.iter().for_each(|field| say!("{}", field.name)),
        "metrics" => {
            let plugins = tenure_plugins::schedules::SCHEDULE_METRIC_NAMES;
            let health = tenure_plugins::cluster_health::HEALTH_METRIC_NAMES;
            tenure::metrics::METRIC_NAMES.iter().chain(plugins).chain(health).for_each(|name| say!("{name}"));
        }
        "events" => {
            let plugins = tenure_plugins::cluster_health::HEALTH_EVENT_NAMES;
            let schedules = tenure_plugins::schedules::SCHEDULE_EVENT_NAMES;
            tenure::event::EVENT_NAMES.iter().chain(plugins).chain(schedules).for_each(|name| say!("{name}"));
        }
        "http" => tenure_server::route_names().iter().for_each(|name| say!("{name}")),
        "exit-codes" => exit::CODES.iter().for_each(|(code, _)| say!("{code}")),
        other => {
            return Err(Failure::usage(format!(
                "no reference for {other:?}: settings, events, metrics, http or exit-codes"
            )));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The words of a command line, one a line, for a fuzzer: panics where a promise is broken, and says whether they are a command.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn words(input: &[u8]) -> bool {
    args::words(input)
}
