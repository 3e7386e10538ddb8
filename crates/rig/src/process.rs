//! Child processes: each in a group of its own, each with a time limit, none left behind.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use crate::interrupt;
use crate::proc::Stat;

const POLL: Duration = Duration::from_millis(20);
/// How long a group may take to end after SIGTERM before it gets SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// A process identified by more than its number, so that a reused number is never mistaken for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub pid: u32,
    born: String,
}

impl Identity {
    /// The identity of a live process; `None` if there is none (a zombie does not count).
    pub fn of(pid: u32) -> Option<Self> {
        born(pid).map(|born| Self { pid, born })
    }

    pub fn alive(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }

    /// Ends the group this process leads: asks, waits, insists. Does nothing if it is already gone.
    pub fn end(&self) {
        if !self.alive() {
            return;
        }
        signal_group(self.pid, Signal::TERM);
        let deadline = Instant::now() + GRACE;
        while self.alive() && Instant::now() < deadline {
            thread::sleep(POLL);
        }
        signal_group(self.pid, Signal::KILL);
    }
}

/// When a process started, in whatever unit the system uses; only ever compared for equality.
fn born(pid: u32) -> Option<String> {
    if cfg!(target_os = "linux") {
        return Stat::of(pid).filter(|stat| !stat.is_over()).map(|stat| stat.began.to_string());
    }
    let output = Command::new("ps").args(["-o", "stat=,lstart=", "-p", &pid.to_string()]).output().ok()?;
    let line = String::from_utf8(output.stdout).ok()?;
    let (state, started) = line.trim().split_once(' ')?;
    (!state.starts_with('Z')).then(|| started.trim().to_owned())
}

fn signal_group(pid: u32, signal: Signal) {
    // An error means that nobody is left to receive it, which is what the caller wants.
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(pid, signal);
    }
}

pub struct Captured {
    pub success: bool,
    pub stdout: String,
    pub stderr: String,
}

impl Captured {
    /// The output if the command succeeded, otherwise an error that includes the output.
    pub fn ok(self, what: &str) -> Result<String> {
        if self.success {
            return Ok(self.stdout);
        }
        bail!("{what} failed:\n{}{}", self.stdout, self.stderr)
    }
}

/// Runs a command with its output on our terminal; `Ok(false)` if it failed.
pub fn run(command: &mut Command, limit: Duration) -> Result<bool> {
    Ok(supervise(start(command)?, limit, |_| ())?.success())
}

/// Runs a command, passing its standard output on line by line and showing each line to `see`.
pub fn tee(command: &mut Command, limit: Duration, mut see: impl FnMut(&str) + Send) -> Result<bool> {
    let mut child = start(command.stdout(Stdio::piped()))?;
    let lines = BufReader::new(child.stdout.take().context("stdout is piped")?).split(b'\n');
    let status = thread::scope(|scope| {
        scope.spawn(move || {
            for line in lines.map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line);
                println!("{line}");
                see(&line);
            }
        });
        supervise(child, limit, |_| ())
    })?;
    Ok(status.success())
}

pub fn capture(command: &mut Command, limit: Duration) -> Result<Captured> {
    capture_while(command, limit, || Ok(()))
}

/// Like [`capture`], but gives up as soon as `condition` fails.
pub fn capture_while(
    command: &mut Command,
    limit: Duration,
    mut condition: impl FnMut() -> Result<()>,
) -> Result<Captured> {
    let mut child = start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let stdout = drain(child.stdout.take().context("stdout is piped")?);
    let stderr = drain(child.stderr.take().context("stderr is piped")?);
    let mut broken = None;
    let status = supervise(child, limit, |stop| {
        if let Err(error) = condition() {
            broken = Some(error);
            *stop = true;
        }
    })?;
    let text =
        |reader: thread::JoinHandle<String>| reader.join().map_err(|_| anyhow!("output reader panicked"));
    let captured = Captured { success: status.success(), stdout: text(stdout)?, stderr: text(stderr)? };
    broken.map_or(Ok(captured), Err)
}

fn drain(mut source: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // A read error ends the text early; the exit status still tells the truth.
        let _ = source.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn start(command: &mut Command) -> Result<Child> {
    interrupt::check()?;
    let name = command.get_program().to_string_lossy().into_owned();
    // Its own group: Ctrl-C on the terminal reaches only us, and we pass it on to all the child's children.
    command.stdin(Stdio::null()).process_group(0).spawn().with_context(|| format!("cannot start `{name}`"))
}

/// Waits for the child; ends its whole group on a signal, at the limit, or when `watch` sets its flag.
fn supervise(mut child: Child, limit: Duration, mut watch: impl FnMut(&mut bool)) -> Result<ExitStatus> {
    let (pid, deadline) = (child.id(), Instant::now() + limit);
    let mut stop = false;
    loop {
        if let Some(status) = child.try_wait().context("wait for a child")? {
            // Processes it left running in its group would hold our pipes open and outlive the run.
            signal_group(pid, Signal::KILL);
            return Ok(status);
        }
        let overdue = Instant::now() >= deadline;
        if !stop {
            watch(&mut stop);
        }
        if stop || overdue || interrupt::pending() {
            let status = end_child(&mut child)?;
            interrupt::check()?;
            anyhow::ensure!(!overdue, "still running after {} s, ended", limit.as_secs());
            return Ok(status);
        }
        thread::sleep(POLL);
    }
}

fn end_child(child: &mut Child) -> Result<ExitStatus> {
    let pid = child.id();
    signal_group(pid, Signal::TERM);
    let deadline = Instant::now() + GRACE;
    while Instant::now() < deadline {
        if child.try_wait().context("wait for a child")?.is_some() {
            break;
        }
        thread::sleep(POLL);
    }
    signal_group(pid, Signal::KILL);
    child.wait().context("wait for a child")
}

/// The word by which a program knows that it is started as the wrapper of [`bound`].
const BOUND: &str = "bound-to-its-parent";

/// A command that dies with the thread that starts it, even if that is killed without a chance to clean up.
///
/// A child must request the parent-death signal itself, and doing that between fork and exec needs unsafe code. So the child is
/// this very program first, which requests the signal and then becomes the command: its `main` begins with
/// [`become_bound_if_asked`].
pub fn bound(command: &Command) -> Command {
    if !cfg!(target_os = "linux") {
        return copy_of(command);
    }
    // Not `current_exe`: cargo may have replaced the file since we started.
    let mut wrapper = Command::new("/proc/self/exe");
    wrapper.args([BOUND, &std::process::id().to_string()]).arg(command.get_program());
    copy_onto(wrapper, command)
}

/// The other half of [`bound`]; returns at once if this process is not such a wrapper.
pub fn become_bound_if_asked() {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_none_or(|word| word != BOUND) {
        return;
    }
    let parent = words.next().and_then(|word| word.to_str()?.parse().ok()).unwrap_or(0);
    eprintln!("{:#}", become_bound(parent, words));
    std::process::exit(127);
}

/// The same command, for the time that others leave.
pub fn yielding(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "10"]).arg(command.get_program());
    copy_onto(nice, command)
}

/// The same program with the same arguments, environment and directory.
pub fn copy_of(command: &Command) -> Command {
    copy_onto(Command::new(command.get_program()), command)
}

fn copy_onto(mut target: Command, source: &Command) -> Command {
    target.args(source.get_args());
    for (key, value) in source.get_envs() {
        match value {
            Some(value) => target.env(key, value),
            None => target.env_remove(key),
        };
    }
    if let Some(directory) = source.get_current_dir() {
        target.current_dir(directory);
    }
    target
}

/// Returns only if it could not become the command.
fn become_bound(parent: i32, mut command: impl Iterator<Item = OsString>) -> anyhow::Error {
    #[cfg(target_os = "linux")]
    {
        if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
            return anyhow!("cannot ask for the parent-death signal: {error}");
        }
        // The parent may have died before we asked; then nobody would ever send the signal.
        if rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(parent) {
            return anyhow!("the parent {parent} is gone");
        }
    }
    let _ = parent;
    let Some(program) = command.next() else { return anyhow!("no command given") };
    let error = Command::new(&program).args(command).exec();
    anyhow!("cannot start {}: {error}", program.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_number_is_not_the_same_process() {
        let me = Identity::of(std::process::id()).expect("this process lives");
        assert!(me.alive());
        let other = Identity { born: format!("{}0", me.born), ..me };
        assert!(!other.alive());
    }

    #[test]
    fn a_command_over_its_limit_is_ended_with_its_children() {
        let started = Instant::now();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & echo $!; wait"]);
        let mut grandchild = String::new();
        let outcome = tee(&mut command, Duration::from_millis(300), |line| grandchild = line.to_owned());
        let message = outcome.expect_err("over its limit").to_string();
        assert!(message.contains("still running after"), "{message}");
        assert!(started.elapsed() < Duration::from_secs(20));
        let pid: u32 = grandchild.trim().parse().expect("the shell printed a process number");
        // It was signalled before `tee` returned; the kernel still needs time to remove it, so wait.
        let deadline = Instant::now() + Duration::from_secs(20);
        while Identity::of(pid).is_some() {
            assert!(Instant::now() < deadline, "the grandchild outlived the limit");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn capture_keeps_both_streams_and_the_outcome() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let captured = capture(&mut command, Duration::from_secs(10)).expect("ran");
        assert!(!captured.success);
        assert_eq!((captured.stdout.as_str(), captured.stderr.as_str()), ("out\n", "err\n"));
        let message = captured.ok("the script").expect_err("it failed").to_string();
        assert!(message.contains("the script failed") && message.contains("err"), "{message}");
    }

    #[test]
    fn a_broken_condition_ends_the_wait() {
        let mut command = Command::new("sleep");
        let outcome = capture_while(command.arg("60"), Duration::from_secs(50), || bail!("the engine died"));
        assert_eq!(outcome.err().map(|error| error.to_string()).as_deref(), Some("the engine died"));
    }
}
