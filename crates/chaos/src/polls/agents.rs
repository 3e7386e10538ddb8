//! The agents: processes of the binary that run the jobs the leader assigns.

use crate::clock::boot_ms;
use crate::cluster::Launch;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

/// The longest a drain may take: agents have nothing long to do.
const DRAIN_LIMIT_MS: u64 = 60_000;

/// What an agent reports about itself when it has drained.
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
    log: PathBuf,
    child: Child,
}

impl Drop for Agent {
    fn drop(&mut self) {
        // An error means that it is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
pub(super) struct Agents(Vec<Agent>);

impl Agents {
    /// Starts them, each with its own address of the store. The last one's wall clock is an hour ahead, if that is possible:
    /// nothing may depend on it.
    pub(super) fn start(launch: &Launch, dir: &Path, endpoints: &[Option<String>]) -> Result<Agents> {
        std::fs::create_dir_all(dir.join("logs"))?;
        let mut agents = Vec::new();
        for (number, endpoint) in endpoints.iter().enumerate() {
            let name = format!("agent-{}", number + 1);
            let log = dir.join(format!("logs/{name}.log"));
            let mut command = launch.command(dir);
            command.args(["agent", "--id", &name, "--slots", "64"]).args(launch.settings());
            command.envs(endpoint.iter().map(|endpoint| ("AWS_ENDPOINT_URL", endpoint)));
            if let Some(library) = launch.faketime.as_ref().filter(|_| number + 1 == endpoints.len()) {
                command.env("LD_PRELOAD", library).env("FAKETIME", "+3600s");
                command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
            }
            let child = command.stdout(Stdio::null()).stderr(File::create(&log)?).spawn();
            agents.push(Agent { name, log, child: child.context("cannot start an agent")? });
        }
        Ok(Agents(agents))
    }

    /// Asks all of them to end, and returns what they did.
    pub(super) fn drain(mut self) -> Result<Tally> {
        for agent in &self.0 {
            if kill_process(Pid::from_child(&agent.child), Signal::TERM).is_err() {
                bail!("{} is gone before it was asked to drain; see {}", agent.name, agent.log.display());
            }
        }
        let limit_ms = boot_ms() + DRAIN_LIMIT_MS;
        let mut all = Tally::default();
        for agent in &mut self.0 {
            let status = loop {
                match agent.child.try_wait()? {
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
        }
        Ok(all)
    }
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
}
