//! `tenure exec` and `tenure lock`: a command that runs while this process leads, and only then.
//!
//! What decides is pure and lies in [`grace`] (how much time there is), [`stop_times`] (when to ask, when to kill) and
//! [`policy`] (what follows). [`run`] and [`keeper`] are the two ends of the channel between `tenure` and the process that
//! keeps the command.

mod channel;
mod descendants;
mod grace;
mod keeper;
mod lock;
mod mutant;
mod once;
mod policy;
mod program;
mod run;
mod stop_times;

pub(crate) use keeper::{bound, keeper};
pub(crate) use lock::lock;
#[cfg(feature = "teeth")]
pub(crate) use mutant::ExecMutant;
pub(crate) use once::run_once;
pub(crate) use policy::RestartWhen;

use crate::args::{CommandArgs, ExecArgs, SettingsArgs, exec_seat, name_of};
use crate::exit::Failure;
use crate::log;
use crate::run::{Signals, Startup};
use crate::secret;
use policy::{Next, Policy};
use run::Plan;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use stop_times::Ask;
use tenure::process::{ProcessContext, ProcessSpec, Restart, Supervisor};
use tenure::settings::Resolved;
use tenure::{Node, Settings, StopReason};
use tokio::runtime::Handle;
use tokio::sync::watch;

pub(crate) async fn exec(args: ExecArgs) -> Result<ExitCode, Failure> {
    log::start(args.log);
    secret::hide_memory();
    let name =
        args.name.unwrap_or_else(|| name_of(args.kept.command.first().map_or("".as_ref(), AsRef::as_ref)));
    let seat = exec_seat(&name)?;
    // Whoever runs a command waits for it: no jitter unless it is asked for.
    let at_once =
        |_: &Resolved| vec![("startupJitterMin", "0".to_owned()), ("startupJitterMax", "0".to_owned())];
    let resolved = args.kept.settings.load_instead(at_once)?;
    let mut plan = Plan::new(args.kept.command, &args.kept.grace, &resolved.settings)?;
    let settings = ready(resolved)?;
    plan.environment.push(("TENURE_EXEC", name.clone()));
    let restart = if args.once { RestartWhen::Never } else { args.restart };
    let runs = Arc::new(CommandRuns::new(plan, Policy { restart, once: args.once }));

    let mut signals = Signals::new()?;
    run::adopt_orphans()?;
    tracing::info!(
        "node {} starts in namespace {} on {}: it runs {} while it leads the election of {name}",
        settings.node,
        settings.namespace,
        settings.store,
        runs.plan.name()
    );
    let hold = Duration::from_millis(settings.core_config().hold_ms());
    let builder = Node::builder(settings).per_plugin(&seat);
    let mut watched = Startup::new(builder.events());
    let node = builder.start().await?;
    let spec = process(Arc::clone(&runs), hold);
    let processes = Supervisor::new([spec]).run(&node).map_err(Failure::other)?;
    let outcome = tokio::select! {
        signal = signals.next() => {
            tracing::info!("stopping; a second signal ends at once");
            signals.second_ends();
            Ok(runs.stop(ask_of(signal)).await)
        }
        code = runs.leaves() => Ok(code),
        detail = watched.denied() => Err(Failure::store(format!("the store refuses: {detail}"))),
        reason = node.ended() => unsafe_or_asked(reason),
    };
    // The command has ended by now, or is ended here; then the seat is vacated.
    processes.stop().await;
    node.shutdown().await;
    outcome.map(ExitCode::from)
}

/// A command that `tenure run` runs while it leads, beside its other processes.
pub(crate) struct Attached(Arc<CommandRuns>);

impl Attached {
    /// Checks that it can be run. `None` if there is none.
    pub(crate) fn new(
        command: Vec<OsString>,
        grace: &CommandArgs,
        settings: &Settings,
    ) -> Result<Option<Attached>, Failure> {
        if command.is_empty() {
            return Ok(None);
        }
        let plan = Plan::new(command, grace, settings)?;
        run::adopt_orphans()?;
        let policy = Policy { restart: RestartWhen::Always, once: false };
        Ok(Some(Attached(Arc::new(CommandRuns::new(plan, policy)))))
    }

    pub(crate) fn process(&self, settings: &Settings) -> ProcessSpec {
        process(Arc::clone(&self.0), Duration::from_millis(settings.core_config().hold_ms()))
    }

    /// Passes a signal on, by its exit code, and waits until the command has ended.
    pub(crate) async fn stop(&self, signal: u8) {
        self.0.stop(ask_of(signal)).await;
    }
}

/// Says what is to be said about the settings, and makes the place of the store.
fn ready(resolved: Resolved) -> Result<Settings, Failure> {
    log::speak_for(&resolved.settings, &resolved.warnings);
    SettingsArgs::prepare_store(&resolved)?;
    Ok(resolved.settings)
}

/// What the command hears instead of us.
fn ask_of(code: u8) -> Ask {
    if code == 130 { Ask::Interrupt } else { Ask::Terminate }
}

fn unsafe_or_asked(reason: StopReason) -> Result<u8, Failure> {
    match reason {
        StopReason::StoreUnsafe => Err(Failure::unsafe_store(
            "the store does not honour conditional writes, so leadership on it is not safe; see `tenure doctor`",
        )),
        StopReason::Asked => Ok(0),
    }
}

/// The command as a leader-only process. On a thread of its own: a task could be cut off, and its guard with it, while
/// something of the command is still there.
fn process(runs: Arc<CommandRuns>, hold: Duration) -> ProcessSpec {
    let runtime = Handle::current();
    let body = move |context: ProcessContext| runtime.block_on(runs.one_run(context));
    ProcessSpec::blocking("exec", body).restart(Restart::Permanent).stop_grace(hold)
}

/// Where the runs of a command and whoever waits for them meet.
struct CommandRuns {
    plan: Plan,
    policy: Policy,
    asked: watch::Sender<Option<Ask>>,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    running: bool,
    /// The exit code to leave with.
    leave: Option<u8>,
}

impl CommandRuns {
    fn new(plan: Plan, policy: Policy) -> CommandRuns {
        CommandRuns {
            plan,
            policy,
            asked: watch::Sender::new(None),
            state: watch::Sender::new(State::default()),
        }
    }

    /// One run. Whoever is about to leave does not return before it is told to, so that nothing is started again.
    async fn one_run(&self, context: ProcessContext) -> Result<(), String> {
        // In this order: whoever stops us asks first and looks then.
        self.state.send_modify(|state| state.running = true);
        let name = self.plan.name();
        tracing::info!("running {name} in epoch {}", context.epoch());
        let ended = run::run(&self.plan, context.guard(), self.asked.subscribe()).await;
        match &ended.code {
            Ok(code) => tracing::info!("{name} ended with {code} ({})", ended.why.as_str()),
            Err(problem) => tracing::warn!("{name}: {problem}"),
        }
        let next = self.policy.after(&ended);
        self.state.send_modify(|state| {
            state.running = false;
            if let Next::Leave(code) = next {
                state.leave = Some(code);
            }
        });
        match next {
            Next::Again(outcome) => outcome,
            Next::Leave(_) => {
                context.cancelled().await;
                Ok(())
            }
        }
    }

    /// The exit code, once a run has ended that was the last.
    async fn leaves(&self) -> u8 {
        let mut state = self.state.subscribe();
        let left = state.wait_for(|state| state.leave.is_some()).await.map(|state| state.leave);
        left.ok().flatten().unwrap_or(0)
    }

    /// Stops the command, if it runs, and says with which code to leave.
    async fn stop(&self, ask: Ask) -> u8 {
        self.asked.send_replace(Some(ask));
        let mut state = self.state.subscribe();
        let left = state.wait_for(|state| !state.running).await.map(|state| state.leave);
        left.ok().flatten().unwrap_or(0)
    }
}
