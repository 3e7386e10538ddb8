//! The agents: processes of the binary that run the jobs the leader assigns.

use crate::clock::boot_ms;
use crate::cluster::Launch;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

/// The longest a drain may take: agents have nothing long to do.
const DRAIN_LIMIT_MS: u64 = 60_000;

/// How far the last agent's wall clock is ahead: nothing may depend on it, except that object stores refuse signatures that are a
/// quarter of an hour off.
const AHEAD: &str = "+3600s";
const AHEAD_ON_A_NETWORK: &str = "+600s";

/// What an agent reports about itself when it has drained; those that were killed report nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    pub claimed: u64,
    /// Entries of former epochs that it refused.
    pub stale: u64,
    /// Entries delivered again after it had done them.
    pub duplicates: u64,
}

#[derive(Debug)]
struct Agent {
    name: String,
    endpoint: Option<String>,
    log: PathBuf,
    child: Option<Child>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // An error means that it is gone.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[derive(Debug)]
pub(super) struct Agents {
    launch: Launch,
    dir: PathBuf,
    all: Vec<Agent>,
}

impl Agents {
    /// Starts them, each with its own address of the store.
    pub(super) fn start(
        launch: &Launch,
        dir: &std::path::Path,
        endpoints: &[Option<String>],
    ) -> Result<Agents> {
        std::fs::create_dir_all(dir.join("logs"))?;
        let mut agents = Agents { launch: launch.clone(), dir: dir.to_path_buf(), all: Vec::new() };
        for (number, endpoint) in endpoints.iter().enumerate() {
            let name = format!("agent-{}", number + 1);
            let log = dir.join(format!("logs/{name}.log"));
            agents.all.push(Agent { name, endpoint: endpoint.clone(), log, child: None });
        }
        (0..agents.all.len()).try_for_each(|number| agents.start_again(number))?;
        Ok(agents)
    }

    pub(super) fn size(&self) -> usize {
        self.all.len()
    }

    pub(super) fn name(&self, number: usize) -> &str {
        &self.all[number].name
    }

    pub(super) fn is_running(&self, number: usize) -> bool {
        self.all[number].child.is_some()
    }

    /// Starts one that does not run. The last one's wall clock is ahead, if that is possible.
    pub(super) fn start_again(&mut self, number: usize) -> Result<()> {
        let is_last = number + 1 == self.all.len();
        let agent = &mut self.all[number];
        let mut command = self.launch.command(&self.dir);
        command.args(["agent", "--id", &agent.name, "--slots", "64", "--allow-http"]);
        command.args(self.launch.settings());
        command.envs(agent.endpoint.iter().map(|endpoint| ("AWS_ENDPOINT_URL", endpoint)));
        if let Some(library) = self.launch.faketime.as_ref().filter(|_| is_last) {
            let ahead = if agent.endpoint.is_some() { AHEAD_ON_A_NETWORK } else { AHEAD };
            command.env("LD_PRELOAD", library).env("FAKETIME", ahead);
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
        }
        let log = File::options().create(true).append(true).open(&agent.log)?;
        let child = command.stdout(Stdio::null()).stderr(log).spawn().context("cannot start an agent")?;
        agent.child = Some(child);
        Ok(())
    }

    /// Kills one that runs and returns a time just before that.
    pub(super) fn kill(&mut self, number: usize) -> Result<u64> {
        let agent = &mut self.all[number];
        let Some(mut child) = agent.child.take() else { bail!("{} does not run", agent.name) };
        if let Some(status) = child.try_wait()? {
            bail!("{} ended by itself with {status}; see {}", agent.name, agent.log.display());
        }
        let now_ms = boot_ms();
        child.kill()?;
        child.wait()?;
        Ok(now_ms)
    }

    /// Asks all of them to end, and returns what they did, and what went wrong.
    pub(super) fn drain(mut self) -> Result<(Tally, Vec<String>)> {
        for agent in &self.all {
            let asked = agent.child.as_ref().map(|child| kill_process(Pid::from_child(child), Signal::TERM));
            if !matches!(asked, Some(Ok(()))) {
                bail!("{} is gone before it was asked to drain; see {}", agent.name, agent.log.display());
            }
        }
        let limit_ms = boot_ms() + DRAIN_LIMIT_MS;
        let (mut all, mut complaints) = (Tally::default(), Vec::new());
        for agent in &mut self.all {
            let Some(child) = &mut agent.child else { continue };
            let status = loop {
                match child.try_wait()? {
                    Some(status) => break status,
                    None if boot_ms() > limit_ms => bail!("{} does not end; see its log", agent.name),
                    None => std::thread::sleep(Duration::from_millis(20)),
                }
            };
            let log = std::fs::read_to_string(&agent.log)?;
            if !status.success() {
                bail!("{} ended with {status}; see {}", agent.name, agent.log.display());
            }
            let tally = tally(&log).with_context(|| format!("no tally in {}", agent.log.display()))?;
            all.claimed += tally.claimed;
            all.stale += tally.stale;
            all.duplicates += tally.duplicates;
            if !took_jobs(&log) {
                complaints.push(format!("{} never took jobs after its last start", agent.name));
            }
        }
        Ok((all, complaints))
    }
}

/// Whether it was registered at last: the store refuses one that is not set up as it should be, and the others do its work.
fn took_jobs(log: &str) -> bool {
    let last = log.rfind(" registers for pod ").unwrap_or(0);
    log[last..].contains(" takes jobs: ")
}

/// Parses `… has drained … claimed=12 stale=0 duplicates=0 …`
fn tally(log: &str) -> Option<Tally> {
    let line = log.lines().rev().find(|line| line.contains("has drained"))?;
    let number = |name: &str| {
        let words = line.split([' ', ',', '{', '}']);
        words.filter_map(|word| word.split_once('=')).find(|(key, _)| *key == name)?.1.parse().ok()
    };
    Some(Tally { claimed: number("claimed")?, stale: number("stale")?, duplicates: number("duplicates")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tally_is_read_from_the_last_line_that_has_one() {
        let log = "x INFO agent a drains\n\
                   x INFO agent a has drained claimed=12 stale=3 duplicates=0 namespace=chaos\nbye\n";
        assert_eq!(tally(log), Some(Tally { claimed: 12, stale: 3, duplicates: 0 }));
        assert_eq!(tally("agent a has drained"), None);
    }

    #[test]
    fn an_agent_takes_jobs_only_after_its_last_start() {
        let (starts, takes) = ("agent a registers for pod x\n", "agent a takes jobs: 64 at once\n");
        assert!(took_jobs(&[starts, takes, starts, takes].concat()));
        assert!(!took_jobs(&[starts, takes, starts].concat()) && !took_jobs(""));
    }
}
