//! The keeper: a small process between `tenure` and its command, `tenure → keeper → command`.
//!
//! It knows until when the command may run, by its own clock, and ends it in time whatever becomes of `tenure`: killed,
//! stopped, or hanging. It is a child subreaper, so nothing the command starts can get away from it, and it ends when `wait`
//! itself says that no child is left. If the keeper is killed, the command dies with it (parent-death signal), and `tenure`,
//! the next subreaper, ends the rest. The keeper itself has no parent-death signal: one that died with `tenure` would leave
//! behind what the command started; one that lives ends it.
//!
//! Not promised: anything once `tenure` and the keeper are killed *together*; then only the command itself dies at once.
//! Nor while the keeper is stopped as well: nobody can kill from a stopped process.

use super::channel::Channel;
use super::descendants::{self, Entry};
use super::mutant::ExecMutant;
use super::stop_times::{Ask, Instruction, Order, Report, StopTimes};
use crate::args::{BoundArgs, KeeperArgs};
use crate::exit::Failure;
use crate::out::complain;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{
    Pid, Signal, WaitStatus, getpid, getppid, set_child_subreaper, set_parent_process_death_signal, setsid,
};
use std::io::{ErrorKind, IoSliceMut, Write, stdin};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use tenure::clock::{BootClock, Clock};
use tokio::signal::unix::{Signal as Heard, SignalKind, signal};

/// Timers of the runtime stand still while a machine sleeps; the boot-time clock does not. So it is looked at this often …
const LOOK_MS: u64 = 100;
/// … and while something is being ended, this often.
const LOOK_CLOSELY_MS: u64 = 10;

/// The hidden command `tenure keeper`.
pub(crate) fn keeper(args: KeeperArgs) -> Result<ExitCode, Failure> {
    // One thread, the first: the parent-death signal of the command is bound to the thread that starts it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match Keeper::start(args)? {
            Some(keeper) => keeper.keep().await,
            None => Ok(()),
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The hidden command `tenure bound`: becomes the command, in a session of its own, bound to die with the keeper.
///
/// Both have to be asked for by the process itself; between fork and exec that needs unsafe code. A session rather than a
/// group: without a controlling terminal a command may read from the terminal without being stopped for it.
pub(crate) fn bound(args: &BoundArgs) -> ExitCode {
    let Some((program, arguments)) = args.command.split_first() else { return ExitCode::from(2) };
    let ready = setsid().and_then(|_| set_parent_process_death_signal(Some(Signal::KILL)));
    if let Err(error) = ready {
        complain!("tenure: cannot prepare the command: {error}");
        return ExitCode::FAILURE;
    }
    // The keeper may have died before we asked; then nobody will ever send the signal.
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(args.parent) {
        return ExitCode::FAILURE;
    }
    let error = Command::new(program).args(arguments).exec();
    complain!("tenure: cannot start {program:?}: {error}");
    // As shells have it.
    ExitCode::from(if error.kind() == ErrorKind::NotFound { 127 } else { 126 })
}

struct Keeper {
    stop_times: StopTimes,
    /// Until it has ended: its number may be another's then.
    command: Option<Pid>,
    /// One of our children has ended.
    children: Heard,
    /// Whoever started us is gone, or has nothing more to say.
    alone: bool,
    channel: Channel,
}

impl Keeper {
    /// Starts the command; `None` if it must not run any more.
    fn start(args: KeeperArgs) -> Result<Option<Keeper>, Failure> {
        // A signal that the terminal or a service manager sends to everybody is not meant for us.
        setsid().map_err(std::io::Error::from)?;
        if !ExecMutant::NoSubreaper.on() {
            set_child_subreaper(Some(getpid())).map_err(std::io::Error::from)?;
        }
        for kind in
            [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()]
        {
            // Caught and forgotten, from now on.
            drop(signal(kind)?);
        }
        let _ = rustix::thread::set_name(c"tenure-keeper");
        let socket = StdUnixStream::from(stdin().as_fd().try_clone_to_owned()?);
        let Some([input, output, errors]) = receive_streams(&socket)? else { return Ok(None) };
        let mut stop_times = StopTimes::new(args.until, args.grace, args.margin);
        if stop_times.tick(BootClock.now_ms()).is_some() {
            let _ = (&socket).write_all(format!("{}{}", Report::TooLate, Report::Clear).as_bytes());
            return Ok(None);
        }
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("tenure")
            .arg("bound")
            .arg(format!("--parent={}", getpid().as_raw_nonzero()))
            .arg("--")
            .args(args.command);
        command.stdin(Stdio::from(input)).stdout(Stdio::from(output)).stderr(Stdio::from(errors));
        // Before there are any: whoever started us may have had the signal ignored, and nobody could wait for them then.
        let children = signal(SignalKind::child())?;
        // Not waited for by this handle: whoever becomes our child is reaped the same way.
        let command = Some(Pid::from_child(&command.spawn()?));
        let channel = Channel::new(socket)?;
        Ok(Some(Keeper { stop_times, command, children, alone: false, channel }))
    }

    async fn keep(mut self) -> Result<(), Failure> {
        loop {
            if !self.reap() {
                self.report(Report::Clear);
                return Ok(());
            }
            let now_ms = BootClock.now_ms();
            let was_running = self.stop_times.is_running();
            let order = if was_running && ExecMutant::KeeperWithoutDeadline.on() {
                None
            } else {
                self.stop_times.tick(now_ms)
            };
            if was_running && order.is_some() {
                self.report(Report::Overdue);
            }
            self.obey(order);
            if self.stop_times.is_killing() {
                self.kill();
            }
            let most_ms = if self.stop_times.is_running() { LOOK_MS } else { LOOK_CLOSELY_MS };
            let nap =
                Duration::from_millis(self.stop_times.due_ms().saturating_sub(now_ms).clamp(1, most_ms));
            tokio::select! {
                biased;
                line = self.channel.receive(), if !self.alone => match line {
                    Some(line) => self.follow(&line),
                    None => {
                        self.alone = true;
                        if !ExecMutant::LineIgnored.on() {
                            self.wind_up();
                        }
                    }
                },
                _ = self.children.recv() => {}
                () = tokio::time::sleep(nap) => {}
            }
        }
    }

    /// One that cannot be understood was cut off; another follows.
    fn follow(&mut self, line: &str) {
        match line.parse() {
            Ok(Instruction::Until(until_ms)) => self.stop_times.extend(until_ms),
            Ok(Instruction::Stop(ask, grace_ms)) => {
                let order = self.stop_times.stop(BootClock.now_ms(), ask, grace_ms);
                self.obey(order);
            }
            Err(()) => {}
        }
    }

    fn wind_up(&mut self) {
        let order = self.stop_times.wind_up(BootClock.now_ms());
        self.obey(order);
    }

    fn obey(&self, order: Option<Order>) {
        match order {
            Some(Order::Ask(Ask::Terminate)) => descendants::ask(&self.running(), Signal::TERM),
            Some(Order::Ask(Ask::Interrupt)) => descendants::ask(&self.running(), Signal::INT),
            Some(Order::Kill) => self.kill(),
            None => {}
        }
    }

    /// What is to be ended: all there is.
    fn running(&self) -> Vec<Entry> {
        let mut running = descendants::running();
        if ExecMutant::OnlyTheChild.on() {
            running.retain(|entry| Some(entry.pid) == self.command.map(|pid| pid.as_raw_nonzero().get()));
        }
        running
    }

    fn kill(&self) {
        if !ExecMutant::OnlyTold.on() {
            descendants::kill(&self.running());
        }
    }

    /// Reaps whatever has ended below us, the command and those that lost their parent; whether anything is left.
    fn reap(&mut self) -> bool {
        let mut code = None;
        let mut left = descendants::has_children(|pid, status| {
            if self.command.take_if(|command| *command == pid).is_some() {
                code = Some(exit_code(status));
            }
        });
        if ExecMutant::TableTrusted.on() {
            left = self.command.is_some() || !self.running().is_empty();
        }
        if let Some(code) = code {
            self.report(Report::Ended(code));
            // What it left behind ends too: its time was the command's.
            if left {
                self.wind_up();
            }
        }
        left
    }

    fn report(&self, report: Report) {
        self.channel.send(&report.to_string());
    }
}

/// The exit code as shells count it.
fn exit_code(status: WaitStatus) -> u8 {
    let code = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => 1,
    };
    u8::try_from(code).unwrap_or(1)
}

/// The command's stdin, stdout and stderr, which come over the socket that is our own stdin; `None` if whoever should have
/// sent them is gone.
fn receive_streams(socket: &StdUnixStream) -> Result<Option<[OwnedFd; 3]>, Failure> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC);
    if received.map_err(std::io::Error::from)?.bytes == 0 {
        return Ok(None);
    }
    let mut streams = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            streams.extend(sent);
        }
    }
    let streams = <[OwnedFd; 3]>::try_from(streams);
    streams.map(Some).map_err(|_| Failure::other("this command is for internal use by tenure"))
}
