//! One run of a command under a guard: starts its keeper, tells it how long it may go on, hears how it ended.

use super::channel::Channel;
use super::descendants;
use super::grace::GraceTimes;
use super::mutant::ExecMutant;
use super::policy::{Ended, Why};
use super::program;
use super::stop_times::{Ask, Instruction, Report};
use crate::args::CommandArgs;
use crate::exit::Failure;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{getpid, set_child_subreaper};
use std::ffi::OsString;
use std::io::{self, IoSlice, stderr, stdin, stdout};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tenure::clock::millis;
use tenure::clock::{BootClock, Clock};
use tenure::store::is_credential;
use tenure::{LeaderGuard, Settings};
use tokio::sync::watch;

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) command: Vec<OsString>,
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Variables that the command does not get.
    withheld: Vec<String>,
    pub(crate) times: GraceTimes,
    /// Between SIGTERM and SIGKILL when `tenure` is told to stop. The lease is renewed meanwhile, so it may be long; the grace in
    /// `times` has to fit into what is left of a lease.
    pub(crate) stop_grace_ms: u64,
}

impl Plan {
    /// What was asked for, if there is such a program and its times fit into the lease.
    pub(crate) fn new(
        command: Vec<OsString>,
        grace: &CommandArgs,
        settings: &Settings,
    ) -> Result<Plan, Failure> {
        program::find(&command)?;
        if !settings.eligible {
            return Err(Failure::usage(
                "`eligible` is false: this node would never lead, and the command would never run",
            ));
        }
        let environment = vec![
            ("TENURE_NAMESPACE", settings.namespace.clone()),
            ("TENURE_NODE", settings.node.to_string()),
        ];
        let withheld = withheld(grace.pass_credentials);
        let times = GraceTimes::new(settings, grace.grace).map_err(Failure::usage)?;
        Ok(Plan { command, environment, withheld, times, stop_grace_ms: grace.stop_grace })
    }

    pub(crate) fn name(&self) -> String {
        self.command.first().map(|program| program.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

/// Whatever loses its keeper becomes our child, and is ended by us.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    if ExecMutant::NoSubreaper.on() {
        return Ok(());
    }
    set_child_subreaper(Some(getpid())).map_err(io::Error::from)
}

/// Runs the command until it ends, leadership ends, or `asked` says so. Returns once nothing of it is left: only then may
/// the guard be dropped.
pub(crate) async fn run(plan: &Plan, guard: &LeaderGuard, mut asked: watch::Receiver<Option<Ask>>) -> Ended {
    if asked.borrow().is_some() {
        return Ended { why: Why::Asked, code: Ok(0) };
    }
    let mut keeper = match KeeperHandle::start(plan, guard) {
        Ok(keeper) => keeper,
        Err(error) => {
            return Ended {
                why: Why::Itself,
                code: Err(format!("cannot start its supervising process: {error}")),
            };
        }
    };
    let (mut why, mut code, mut clear) = (Why::Itself, None, false);
    let (mut over, mut told) = (false, false);
    loop {
        tokio::select! {
            biased;
            report = keeper.channel.receive() => match report.map(|report| report.parse()) {
                Some(Ok(Report::Ended(ended))) => code = Some(ended),
                Some(Ok(Report::Overdue)) if why == Why::Itself && code.is_none() => why = Why::Lost,
                Some(Ok(Report::Overdue) | Err(())) => {}
                // Asked to stop before it began, it has stopped.
                Some(Ok(Report::TooLate)) if why == Why::Asked => code = Some(0),
                Some(Ok(Report::TooLate)) => why = Why::TooLate,
                Some(Ok(Report::Clear)) => clear = true,
                None => break,
            },
            () = guard.ended(), if !over => {
                over = true;
                if code.is_none() && why == Why::Itself {
                    why = Why::Lost;
                }
                keeper.send(Instruction::Stop(Ask::Terminate, plan.times.grace_ms));
            }
            ask = ask(&mut asked), if !told => {
                told = true;
                if code.is_none() && why == Why::Itself {
                    why = Why::Asked;
                }
                keeper.send(Instruction::Stop(ask, plan.stop_grace_ms));
            }
            () = tokio::time::sleep(Duration::from_millis(plan.times.tell_ms)), if !over => keeper.go_on(guard),
        }
        if ExecMutant::EndedWhenTold.on() && (over || told) {
            // The channel stays open: what was told is to be done in its own time.
            std::mem::forget(keeper);
            return Ended { why, code: Ok(0) };
        }
    }
    keeper.finish(clear).await;
    let without_code = if why == Why::TooLate { why.as_str() } else { "its supervising process died" };
    Ended { why, code: code.ok_or_else(|| without_code.to_owned()) }
}

async fn ask(asked: &mut watch::Receiver<Option<Ask>>) -> Ask {
    match asked.wait_for(Option::is_some).await.map(|ask| *ask) {
        Ok(Some(ask)) => ask,
        // Nobody can ask any more.
        Ok(None) | Err(_) => std::future::pending().await,
    }
}

/// A keeper, from the side of whoever started it.
struct KeeperHandle {
    child: Child,
    channel: Channel,
    until_ms: u64,
}

/// The secrets in our environment. Whoever runs a command trusts it with its work, not with the node or the store.
fn withheld(pass_credentials: bool) -> Vec<String> {
    let names = || std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut withheld: Vec<String> = names().filter(|name| !pass_credentials && is_credential(name)).collect();
    if !withheld.is_empty() {
        tracing::info!("the command does not get {}; --pass-credentials passes them on", withheld.join(", "));
    }
    let is_ours =
        |name: &str| name.starts_with("TENURE_") && (name.contains("TOKEN") || name.contains("WEBHOOK"));
    withheld.extend(names().filter(|name| is_ours(name)));
    withheld
}

/// The end of the lease. The clock is read before the lease is, so this can only be too early.
fn until_ms(guard: &LeaderGuard) -> u64 {
    let now_ms = BootClock.now_ms();
    now_ms.saturating_add(millis(guard.remaining()))
}

impl KeeperHandle {
    fn start(plan: &Plan, guard: &LeaderGuard) -> io::Result<KeeperHandle> {
        let (ours, theirs) = StdUnixStream::pair()?;
        let until_ms = until_ms(guard);
        // Not by its path: the file may have been replaced since we started.
        let mut keeper = Command::new("/proc/self/exe");
        keeper.arg0("tenure").arg("keeper").arg(format!("--until={until_ms}"));
        keeper
            .arg(format!("--grace={}", plan.times.grace_ms))
            .arg(format!("--margin={}", plan.times.margin_ms));
        keeper.arg("--").args(&plan.command);
        for name in &plan.withheld {
            keeper.env_remove(name);
        }
        keeper.envs(plan.environment.iter().map(|(name, value)| (name, value)));
        keeper.env("TENURE_EPOCH", guard.epoch().to_string());
        keeper.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
        let mut child = keeper.spawn()?;
        match send_streams(&ours).and_then(|()| Channel::new(ours)) {
            Ok(channel) => Ok(KeeperHandle { child, channel, until_ms }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Says how long the command may go on, if that is longer than it was.
    fn go_on(&mut self, guard: &LeaderGuard) {
        let until_ms = until_ms(guard);
        // The two clocks are not read at one instant: a few milliseconds are no renewal.
        if until_ms > self.until_ms + 5 {
            self.until_ms = until_ms;
            self.send(Instruction::Until(until_ms));
        }
    }

    /// Never waits: a keeper that does not listen ends its command by its own clock.
    fn send(&self, instruction: Instruction) {
        self.channel.send(&instruction.to_string());
    }

    /// The keeper has ended. If it did not say that nothing is left, whatever was below it is below us now.
    async fn finish(mut self, clear: bool) {
        // It is gone, or about to be: the channel to it is closed.
        let _ = self.child.wait();
        if clear || ExecMutant::StartedBesideTheOld.on() {
            return;
        }
        while descendants::has_children(|_, _| {}) {
            descendants::kill(&descendants::running());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Our own stdin, stdout and stderr are for the command; the keeper's stdin is the channel to us.
fn send_streams(socket: &StdUnixStream) -> io::Result<()> {
    let (input, output, errors) = (stdin(), stdout(), stderr());
    let streams = [input.as_fd(), output.as_fd(), errors.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&streams)) {
        return Err(io::Error::other("cannot pass stdin, stdout and stderr on"));
    }
    sendmsg(socket, &[IoSlice::new(b"\n")], &mut control, SendFlags::empty())?;
    Ok(())
}
