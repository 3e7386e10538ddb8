//! `tenure exec` from the outside: three nodes, a command that records that it is alive, and faults aimed at the node that runs
//! it. The judge goes by what the commands wrote: never two alive at the same instant.
//!
//! The command is as uncooperative as a command can be: it ignores SIGTERM, and it has a daemon that left its session and its
//! parent, ignores SIGTERM too, and writes as well.
//!
//! On a network, each node has its own path to the store, so that one alone can be cut off. A database file has no such paths:
//! there the store is away for all nodes.

mod checks;
#[cfg(target_os = "linux")]
pub mod leftovers;
pub mod nodes;
mod scenario;
pub mod signs_of_life;

pub use checks::{Figures, Findings};

use crate::clock::boot_ms;
use crate::stall_watch::StallWatch;
use anyhow::Result;
use checks::Evidence;
use scenario::{Lead, Scenario};
use serde::Serialize;
use signs_of_life::Copy;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The variable that tells the command where to write.
pub const SIGNS_OF_LIFE: &str = "SIGNS_OF_LIFE";

/// The variable that distinguishes one run of the command from the next.
pub const RUN: &str = "RUN";

/// A shell script that runs the command "$@" and, with one more word, its daemon. Both ignore SIGTERM; the daemon shares neither
/// parent nor session with the command.
pub const COMMAND: &str = r#"trap "" TERM; export RUN=$$; ("$@" daemon &); exec "$@""#;

/// A fault aimed at the node that runs the command.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// `tenure` is killed (kill -9).
    Kill,
    /// `tenure` is stopped (SIGSTOP) and resumes long after its successor took over; its keeper keeps running.
    Pause,
    /// The store is away: for this node, or for all if there is no network.
    Cut,
    /// `tenure` is told to leave (SIGTERM).
    Stop,
    /// The keeper is killed, and `tenure` has to notice: the same epoch continues.
    Keeper,
    /// `tenure`, keeper and command are stopped together: nothing on this machine can help.
    Freeze,
}

impl Kind {
    /// All kinds, in the order they are played.
    pub const ALL: [Kind; 6] = [Kind::Kill, Kind::Pause, Kind::Cut, Kind::Stop, Kind::Keeper, Kind::Freeze];

    /// A description for people.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Kill => "tenure killed",
            Kind::Pause => "tenure stopped",
            Kind::Cut => "store cut off",
            Kind::Stop => "tenure told to leave",
            Kind::Keeper => "keeper killed",
            Kind::Freeze => "all frozen together",
        }
    }

    /// The name used on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Kill => "kill",
            Kind::Pause => "pause",
            Kind::Cut => "cut",
            Kind::Stop => "stop",
            Kind::Keeper => "keeper",
            Kind::Freeze => "freeze",
        }
    }

    /// Whether processes stand still for the length of a pause.
    pub fn pauses(self) -> bool {
        matches!(self, Kind::Pause | Kind::Freeze)
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(word: &str) -> Result<Kind, String> {
        let words = || Kind::ALL.map(Kind::word).join(", ");
        let found = Kind::ALL.into_iter().find(|kind| kind.word() == word);
        found.ok_or_else(|| format!("there is no fault {word:?}; there are {}", words()))
    }
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub tenure: PathBuf,
    /// The store's name, for the record.
    pub engine: String,
    /// The store's URL; a database file is created in `dir`.
    pub store: String,
    /// The store's addresses, spread over the nodes, each behind a proxy of its own. Empty: there is no network.
    pub endpoints: Vec<String>,
    pub preset: String,
    /// Keys and the like, the same for all nodes.
    pub environment: Vec<(String, String)>,
    /// A command that calls [`signs_of_life::live`], as a daemon if it gets `daemon` as one more word.
    pub marker: Vec<String>,
    /// The faults, in order.
    pub rounds: Vec<Kind>,
    /// How long stopped processes stand still; always at least until a successor runs.
    pub pause: Duration,
    /// The binary is broken on purpose: the run ends once it shows.
    pub until_caught: bool,
    /// The directory for everything the run writes.
    pub dir: PathBuf,
}

impl Plan {
    /// The file the commands write to.
    pub fn signs(&self) -> PathBuf {
        self.dir.join("signs_of_life")
    }

    /// This many faults, of these kinds in turn; all kinds if none is named.
    pub fn rounds(count: usize, only: &[Kind]) -> Vec<Kind> {
        let kinds = if only.is_empty() { &Kind::ALL[..] } else { only };
        kinds.iter().copied().cycle().take(count).collect()
    }
}

/// One fault, and its effects.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Round {
    pub kind: Kind,
    pub node: &'static str,
    pub copy: Copy,
    /// When it was done: any renewal that counts was sent before.
    pub at_ms: u64,
    /// How long the stopped processes stood still.
    pub stood_ms: Option<u64>,
    /// When frozen processes were resumed.
    pub woken_ms: Option<u64>,
    /// What should have happened and did not.
    pub amiss: Vec<String>,
}

pub fn run(plan: Plan, tell: &mut dyn FnMut(&str)) -> Result<Findings> {
    let stall_watch = StallWatch::start();
    let (kinds, until_caught, engine) = (plan.rounds.clone(), plan.until_caught, plan.engine.clone());
    let pause_ms = u64::try_from(plan.pause.as_millis()).unwrap_or(u64::MAX);
    let mut scenario = Scenario::new(plan)?;
    let mut rounds: Vec<Round> = Vec::new();
    let mut left = Vec::new();
    let mut play = || -> Result<()> {
        for (number, kind) in kinds.iter().enumerate() {
            let began_ms = boot_ms();
            let lead = scenario.calm()?;
            rounds.push(scenario.play(*kind, &lead)?);
            tell(&line(&scenario, &lead, &rounds[number], kinds.len(), number, began_ms));
            if until_caught
                && !checks::judge(&scenario.evidence(&rounds, stall_watch.so_far(), &[])).is_empty()
            {
                return Ok(());
            }
        }
        if !until_caught {
            left = scenario.leave()?;
        }
        Ok(())
    };
    let played = play();
    std::fs::write(scenario.dir().join("rounds.json"), serde_json::to_vec(&rounds)?)?;
    scenario.read_on()?;
    let evidence = scenario.evidence(&rounds, stall_watch.finish(), &left);
    let findings = Findings::of(&evidence, engine, pause_ms);
    match played {
        // A broken binary may well not get to the end.
        Err(error) if findings.violations.is_empty() => Err(error),
        Ok(()) | Err(_) => Ok(findings),
    }
}

fn line(scenario: &Scenario, lead: &Lead, round: &Round, of: usize, number: usize, began_ms: u64) -> String {
    let mut text = format!(
        "round {:>3}/{of}: {} ({}, epoch {})",
        number + 1,
        round.kind.name(),
        lead.name(),
        round.copy.epoch
    );
    let evidence =
        Evidence { rounds: std::slice::from_ref(round), ..scenario.evidence(&[], Vec::new(), &[]) };
    if let Some(stood_ms) = round.stood_ms {
        text.push_str(&format!(", stood still for {stood_ms} ms"));
    }
    if let Some(lived_ms) = evidence.lived_on(round) {
        text.push_str(&format!(", the command lived on for {lived_ms} ms"));
    }
    if let Some(gap_ms) = evidence.gaps().0.get(&round.copy) {
        text.push_str(&format!(", the next came {gap_ms} ms later"));
    }
    for amiss in &round.amiss {
        text.push_str(&format!(", AMISS: {amiss}"));
    }
    text.push_str(&format!(" [{:.1} s]", (boot_ms() - began_ms) as f64 / 1000.0));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_come_in_turn_and_by_their_words() {
        assert_eq!(Plan::rounds(7, &[]).last(), Some(&Kind::Kill));
        assert_eq!(Plan::rounds(3, &[Kind::Cut, Kind::Pause]), [Kind::Cut, Kind::Pause, Kind::Cut]);
        for kind in Kind::ALL {
            assert_eq!(kind.word().parse(), Ok(kind));
            assert_eq!(serde_json::to_value(kind).expect("a word"), kind.word());
        }
        assert!("nap".parse::<Kind>().expect_err("no such fault").contains("freeze"));
    }
}
