//! Nodes that run `tenure exec`, and the processes below them.

use crate::clock::boot_ms;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
pub use tenure_rig::proc::parent;
use tenure_rig::proc::{self, Stat};

/// A process that is killed when its test is over, however that ends. Its keeper ends whatever it ran.
#[derive(Debug)]
pub struct Node {
    pub name: String,
    child: Child,
}

impl Drop for Node {
    fn drop(&mut self) {
        // An error means that it is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Node {
    pub fn start(name: &str, mut command: Command, log: &Path) -> Result<Node> {
        let log = File::options().create(true).append(true).open(log)?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        Ok(Node { name: name.to_owned(), child: child.context("cannot start the binary")? })
    }

    pub fn pid(&self) -> i32 {
        Pid::from_child(&self.child).as_raw_nonzero().get()
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    pub fn lives(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    pub fn wait(&mut self, limit_ms: u64) -> Result<ExitStatus> {
        let limit_ms = boot_ms() + limit_ms;
        loop {
            match self.child.try_wait()? {
                Some(status) => return Ok(status),
                None if boot_ms() > limit_ms => bail!("{} does not end", self.name),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

/// All descendants of a process.
pub fn below(root: i32) -> Vec<i32> {
    let all: Vec<(i32, i32)> = proc::all().into_iter().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = vec![root];
    let mut at = 0;
    while let Some(&next) = found.get(at) {
        found.extend(all.iter().filter(|(_, parent)| *parent == next).map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}

/// Stops processes, and returns once all their threads have stopped: the signal alone is only a request.
pub fn stop_all(pids: &[i32]) -> Result<()> {
    signal_all(pids, Signal::STOP);
    let limit_ms = boot_ms() + 10_000;
    while !pids.iter().all(|&pid| is_stopped(pid)) {
        if boot_ms() > limit_ms {
            bail!("a process does not stop");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Whether no thread of a process runs. True for a process that is gone.
pub fn is_stopped(pid: i32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    let mut stats = threads
        .flatten()
        .filter_map(|thread| Stat::of(format_args!("{pid}/task/{}", thread.file_name().display())));
    stats.all(|stat| stat.is_over() || matches!(stat.state, 'T' | 't'))
}

/// Sends a signal to each process that still exists.
pub fn signal_all(pids: &[i32], signal: Signal) {
    for pid in pids.iter().filter_map(|&pid| Pid::from_raw(pid)) {
        let _ = kill_process(pid, signal);
    }
}

/// Processes that were started with this variable, wherever they are now.
pub fn with_variable(name: &str, value: &Path) -> Vec<i32> {
    let wanted = [name.as_bytes(), b"=", value.as_os_str().as_bytes()].concat();
    let has = |pid: &i32| {
        // A process whose environment we may not read is not ours.
        let variables = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        variables.split(|&byte| byte == 0).any(|variable| variable == wanted) && parent(*pid).is_some()
    };
    proc::all().into_iter().filter(has).collect()
}

/// Kills all processes with this variable until none is left.
pub fn end_all(name: &str, value: &Path) {
    let limit_ms = boot_ms() + 10_000;
    loop {
        let left = with_variable(name, value);
        if left.is_empty() || boot_ms() > limit_ms {
            return;
        }
        signal_all(&left, Signal::KILL);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Holds the lock of a database file: nobody else can write in the meantime.
#[derive(Debug)]
pub struct Held(rusqlite::Connection);

impl Held {
    pub fn take(file: &PathBuf) -> Result<Held> {
        let database = rusqlite::Connection::open(file)?;
        database.busy_timeout(Duration::from_secs(60))?;
        database.execute_batch("BEGIN IMMEDIATE")?;
        Ok(Held(database))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Closing the connection rolls back as well.
        let _ = self.0.execute_batch("ROLLBACK");
    }
}
