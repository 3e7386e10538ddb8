//! `tenure run`: a node in the foreground.

use crate::args::{RunArgs, SettingsArgs};
use crate::exec::Attached;
use crate::exit::Failure;
use crate::http::Web;
use crate::log;
use crate::secret::{self, Found};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;
use tenure::clock::millis;
use tenure::event::EventKind;
use tenure::process::{ProcessSpec, Processes, Supervisor};
use tenure::store::StoreUrl;
use tenure::{Event, Leadership, Node, StopReason};
use tenure_plugins::cluster_health::ClusterHealth;
use tenure_plugins::schedules::{ScheduleOptions, ScheduleRunner, Webhook};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

/// A signal this soon after the first is its echo, not a second thought.
const ECHO: Duration = Duration::from_millis(200);

pub(crate) async fn run(args: RunArgs) -> Result<ExitCode, Failure> {
    log::start(args.log);
    secret::hide_memory();
    let resolved = args.settings.load()?;
    log::speak_for(&resolved.settings, &resolved.warnings);
    let settings = resolved.settings.clone();
    let specs: Vec<_> = args.workers.iter().map(|text| crate::worker::parse(text)).collect();
    for spec in &specs {
        spec.validate(&settings)?;
    }
    let webhook = webhook(&args)?;
    let schedules = ScheduleOptions { webhook, ..ScheduleOptions::default() };
    let schedules = (!args.no_schedules).then_some(schedules);
    let command = Attached::new(args.command, &args.grace, &settings)?;
    let web = Web::prepare(&args.http, &resolved, args.log)?;
    SettingsArgs::prepare_store(&resolved)?;

    let mut signals = Signals::new()?;
    tracing::info!(
        "node {} starts in namespace {} on {} (heartbeat {} ms, hold {} ms)",
        settings.node,
        settings.namespace,
        settings.store,
        millis(settings.heartbeat_interval),
        settings.core_config().hold_ms()
    );
    if let StoreUrl::Memory { .. } = settings.store {
        tracing::warn!("the store is in this process's own memory: no other process can join");
    }
    let process = command.as_ref().map(|command| command.process(&settings));
    let builder = Node::builder(settings);
    let printer = args.events.then(|| print_events(builder.events()));
    let mut watched = Startup::new(builder.events());
    let shown = builder.events();
    let told = builder.events();
    let node = builder.start().await?;
    crate::systemd::keep_watchdog();
    tokio::spawn(crate::systemd::follow_node(told, node.leadership()));
    let workers = specs.into_iter().map(|spec| node.register_worker(spec)).collect::<Result<Vec<_>, _>>()?;
    let processes = leader_only(&node, !args.no_health, schedules, process)?;
    if args.no_schedules {
        tokio::spawn(warn_of_waiting_jobs(node.leadership()));
    }
    let server = web.and_then(|web| web.serve(&node, shown, &resolved));
    let refused = tokio::select! {
        signal = signals.next() => {
            tracing::info!("stopping; a second signal ends at once");
            signals.second_ends();
            if let Some(command) = &command {
                command.stop(signal).await;
            }
            None
        }
        detail = watched.denied() => Some(Failure::store(format!("the store refuses: {detail}"))),
        reason = node.ended() => match reason {
            StopReason::StoreUnsafe => Some(Failure::unsafe_store(
                "the store does not honour conditional writes, so leadership on it is not safe; see `tenure doctor`",
            )),
            StopReason::Asked => None,
        },
    };
    crate::systemd::notify("STOPPING=1");
    // Clients are sent away at once; nothing of the hand-over waits for them.
    if let Some(server) = &server {
        server.close();
    }
    let dismissed = async {
        if let Some(server) = &server {
            server.leave().await;
        }
    };
    crate::worker::deregister_all(workers).await;
    tokio::join!(node.shutdown(), dismissed);
    // They have ended with the node; what is left of them holds the channel of events open.
    if let Some(processes) = processes {
        processes.stop().await;
    }
    if let Some(server) = server {
        server.stop().await;
    }
    if let Some(printer) = printer {
        // The channel is closed by now, so the thread ends once it has printed what is left.
        let _ = printer.join();
    }
    match refused {
        Some(failure) => Err(failure),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// The address that is told what goes wrong. No error repeats it: it may be a secret.
fn webhook(args: &RunArgs) -> Result<Option<Webhook>, Failure> {
    let Some(Found { text, from }) = secret::WEBHOOK.given(args.webhook_file.as_deref())? else {
        return Ok(None);
    };
    let rule = match Webhook::new(&text) {
        Ok(_) if args.no_schedules => "is never told anything with --no-schedules",
        Ok(webhook) => return Ok(Some(webhook)),
        Err(rule) => rule,
    };
    Err(Failure::usage(format!("{from}: {rule}")))
}

/// What runs while the node leads: ClusterHealth and the ScheduleRunner, unless they are not wanted, and a command, if there is
/// one.
fn leader_only(
    node: &Node,
    health: bool,
    schedules: Option<ScheduleOptions>,
    command: Option<ProcessSpec>,
) -> Result<Option<Processes>, Failure> {
    let runner = schedules.map(|options| ScheduleRunner::for_node(node, options)).transpose();
    let runner = runner.map_err(Failure::usage)?;
    let mut specs = Vec::new();
    if health {
        let health = ClusterHealth::new(node);
        specs.push(runner.iter().fold(health, ClusterHealth::schedules).process());
    }
    specs.extend(runner.map(|runner| runner.process()));
    specs.extend(command);
    if specs.is_empty() {
        return Ok(None);
    }
    Supervisor::new(specs).run(node).map(Some).map_err(Failure::other)
}

/// One warning for each term in which this node leads but hands out no jobs.
async fn warn_of_waiting_jobs(mut leadership: watch::Receiver<Leadership>) {
    while leadership.wait_for(Leadership::is_leader).await.is_ok() {
        tracing::warn!("--no-schedules: no schedules run and no jobs are handed out while this node leads");
        if leadership.wait_for(|now| !now.is_leader()).await.is_err() {
            return;
        }
    }
}

/// Says what is wrong with a process, in a build that exists to be caught.
#[cfg(feature = "teeth")]
pub(crate) const BROKEN: &str = "TENURE_BROKEN";

#[cfg(feature = "teeth")]
pub(crate) fn choose_mistake() -> Result<(), Failure> {
    let Ok(name) = std::env::var(BROKEN) else { return Ok(()) };
    #[cfg(target_os = "linux")]
    let exec = crate::exec::ExecMutant::named(&name).map(crate::exec::ExecMutant::choose);
    #[cfg(not(target_os = "linux"))]
    let exec: Option<()> = None;
    let driver = tenure::DriverMutant::named(&name).map(tenure::DriverMutant::choose);
    let core = tenure::Mutant::named(&name).map(tenure::Mutant::choose);
    if exec.or(driver).or(core).is_none() {
        return Err(Failure::usage(format!("there is no broken variant {name:?}")));
    }
    tracing::warn!("this process is broken on purpose: {name}");
    Ok(())
}

/// Watches whether the store refuses before the node ever joined: a typing error should be seen at once. Later refusals are
/// ridden out: a running cluster should survive a policy that is corrected within a minute.
pub(crate) struct Startup {
    events: broadcast::Receiver<Event>,
    joined: bool,
}

impl Startup {
    pub(crate) fn new(events: broadcast::Receiver<Event>) -> Startup {
        Startup { events, joined: false }
    }

    pub(crate) async fn denied(&mut self) -> String {
        while !self.joined {
            match self.events.recv().await {
                Ok(Event { kind: EventKind::StoreDenied { detail }, .. }) => return detail,
                Ok(Event { kind: EventKind::Joined, .. }) => self.joined = true,
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => break,
            }
        }
        std::future::pending().await
    }
}

/// Prints events on a thread of their own: a reader that does not read must not hold up the node.
pub(crate) fn print_events(mut events: broadcast::Receiver<Event>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        loop {
            let line = match events.blocking_recv() {
                Ok(event) => crate::out::json(&event.to_json().to_string()),
                Err(RecvError::Lagged(missed)) => {
                    tracing::warn!("the reader of --events is too slow: {missed} events were left out");
                    continue;
                }
                Err(RecvError::Closed) => return,
            };
            let mut out = std::io::stdout().lock();
            if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
                return; // Nobody reads any more.
            }
        }
    })
}

/// SIGTERM and SIGINT, with the exit code each deserves.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Signals, Failure> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// From here on a signal ends the process at once.
    pub(crate) fn second_ends(mut self) {
        tokio::spawn(async move {
            let code = self.second().await;
            std::process::exit(i32::from(code));
        });
    }

    /// A signal in its own right: some senders reach a process twice, once by itself and once in its group.
    async fn second(&mut self) -> u8 {
        let first = tokio::time::Instant::now();
        loop {
            let code = self.next().await;
            if first.elapsed() >= ECHO {
                return code;
            }
        }
    }

    pub(crate) async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.terminate.recv() => 143,
            _ = self.interrupt.recv() => 130,
        }
    }
}
