//! Whether anything a command started is still alive after `tenure lock` has ended: many short runs of commands that start
//! daemons by forking twice, again and again, at random moments.
//!
//! The check is exact. This process is a child subreaper, so anything that outlives its `tenure` becomes our child, and `wait`
//! says whether we have one. Only for a process that has no other children.

use anyhow::{Context, Result, bail};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The exit code of a `tenure lock` that lost its lock.
const LOST: i32 = 12;

/// The longest any run takes, however busy the machine is.
const RUN_LIMIT: Duration = Duration::from_secs(120);

/// Starts $1 daemons at once, each after $2 hops; at each hop a process forks and ends. The last one leaves its session and
/// stays. The command itself ends while they are still hopping. $3 says what they do on SIGTERM.
const SCRIPT: &str = r#"
[ "$3" = ignore ] && trap "" TERM
hop() { if [ "$1" -gt 0 ]; then ( hop $(($1 - 1)) & ); else exec setsid sleep 3600; fi; }
i=0
while [ $i -lt "$1" ]; do ( hop "$2" & ); i=$((i + 1)); done
exit 0
"#;

#[derive(Clone, Debug)]
pub struct Plan {
    pub tenure: PathBuf,
    pub runs: u32,
    pub at_once: u32,
    /// Determines how many daemons there are, and how many hops they take.
    pub seed: u64,
    /// Variables for `tenure`, in addition to those of this process.
    pub environment: Vec<(String, String)>,
    /// Where the databases are created.
    pub dir: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    pub runs: u32,
    /// Runs that lost the lock, on a machine too busy to renew it. They count all the same: they may leave nothing behind either.
    pub lost: u32,
    /// Processes that outlived the `tenure` they ran under.
    pub left: u32,
}

impl Outcome {
    /// In the format of the other judges' findings.
    pub fn findings(&self) -> serde_json::Value {
        let violations: Vec<String> = (self.left > 0)
            .then(|| format!("{} processes alive after their `tenure`", self.left))
            .into_iter()
            .collect();
        serde_json::json!({"rounds": {"leftovers": self.runs}, "violations": violations})
    }
}

/// Runs them all; stops at the first batch that leaves something behind.
pub fn run(plan: &Plan, tell: &mut dyn FnMut(&str)) -> Result<Outcome> {
    set_child_subreaper(Some(getpid())).context("cannot become a child subreaper")?;
    if has_children() {
        bail!("this process has children already: nothing could be told from them");
    }
    let mut dice = ChaCha8Rng::seed_from_u64(plan.seed);
    let mut outcome = Outcome::default();
    let began = Instant::now();
    while outcome.runs < plan.runs && outcome.left == 0 {
        let batch = plan.at_once.min(plan.runs - outcome.runs);
        let mut started = Vec::new();
        for slot in 0..batch {
            started.push(one(plan, slot, &mut dice)?);
        }
        for (number, child) in (outcome.runs..).zip(started) {
            match ends(child) {
                Ok(lost) => outcome.lost += u32::from(lost),
                Err(problem) => {
                    end_all();
                    bail!("run {number}: {problem:#}");
                }
            }
        }
        outcome.runs += batch;
        if has_children() {
            outcome.left = end_all();
            tell(&format!("{} alive after runs {} to {}", outcome.left, outcome.runs - batch, outcome.runs));
        }
        if outcome.runs % 500 < batch {
            tell(&format!("{} runs, {:.0} s", outcome.runs, began.elapsed().as_secs_f64()));
        }
    }
    Ok(outcome)
}

/// Starts one `tenure lock`, on a database that no other run uses at the time.
fn one(plan: &Plan, slot: u32, dice: &mut ChaCha8Rng) -> Result<Child> {
    let daemons = dice.random_range(1..=4_u32);
    let hops = if dice.random_bool(0.1) { 200 } else { dice.random_range(0..=24_u32) };
    let on_term = if dice.random_bool(0.3) { "ignore" } else { "obey" };
    let mut command = Command::new(&plan.tenure);
    let store = format!("sqlite:{}", plan.dir.join(format!("{slot}.db")).display());
    command.args(["lock", "--grace", "20ms", "--store", &store, "--"]);
    command.args(["sh", "-c", SCRIPT, "sh", &daemons.to_string(), &hops.to_string(), on_term]);
    command
        .envs(plan.environment.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().context("cannot start the binary")
}

/// Waits for the end of a run; returns whether it lost the lock.
fn ends(mut child: Child) -> Result<bool> {
    let deadline = Instant::now() + RUN_LIMIT;
    loop {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(false),
            Some(status) if status.code() == Some(LOST) => return Ok(true),
            Some(status) => bail!("`tenure lock` ended with {status}"),
            None if Instant::now() > deadline => bail!("`tenure lock` does not end"),
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Whether any child is left. Reaps those that have ended.
fn has_children() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(error) => return error != Errno::CHILD,
        }
    }
}

/// Kills all our descendants until none is left; returns how many there were.
fn end_all() -> u32 {
    let mut seen = std::collections::BTreeSet::new();
    let deadline = Instant::now() + RUN_LIMIT;
    while has_children() && Instant::now() < deadline {
        for pid in super::nodes::below(getpid().as_raw_nonzero().get()) {
            seen.insert(pid);
            let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::KILL));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    u32::try_from(seen.len()).unwrap_or(u32::MAX).max(1)
}
