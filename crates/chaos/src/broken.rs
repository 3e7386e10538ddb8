//! Programs that are broken on purpose; the judges must find each of them guilty.
//!
//! They are one program, built once under a name of its own, so that nobody mistakes it for the product; the mistake is chosen at
//! run time. It can be caught only by what it shows: its events, its requests, its end. Mistakes that leave no trace there are left
//! to the simulator.

use crate::exec;
use crate::schedule::Kind;
use serde_json::Value;

/// Selects the mistake of a program built to have one; other programs ignore this variable.
pub const VARIABLE: &str = "TENURE_BROKEN";

/// The program. Never the product's own name.
pub const PROGRAM: &str = "tenure-broken";

/// Not broken: plays every fault of the others and must be found innocent, or their guilt means nothing.
pub const SOUND: &str = "none";

/// A mistake, and what brings it to light.
pub struct Variant {
    pub name: &'static str,
    pub what: &'static str,
    pub play: Play,
}

/// What is played until the mistake shows.
#[derive(Clone, Copy)]
pub enum Play {
    /// Faults at the leader, one at a time; on an engine behind proxies, or on SQLite.
    Chaos { faults: &'static [Kind], nodes: u8, network: bool, seconds: u64 },
    /// Faults at the node that runs a command.
    Exec { faults: &'static [exec::Kind], rounds: u16 },
    /// Short runs of commands that start daemons.
    Leftovers { runs: u32 },
}

const fn variant(name: &'static str, what: &'static str, play: Play) -> Variant {
    Variant { name, what, play }
}

const fn chaos(faults: &'static [Kind], nodes: u8, network: bool, seconds: u64) -> Play {
    Play::Chaos { faults, nodes, network, seconds }
}

const fn exec(faults: &'static [exec::Kind], rounds: u16) -> Play {
    Play::Exec { faults, rounds }
}

use exec::Kind as At;

#[rustfmt::skip]
pub const VARIANTS: &[Variant] = &[
    variant(SOUND, "nothing: the same build, the same faults",
        chaos(&[Kind::Pause, Kind::Crash, Kind::StoreHeld], 7, false, 60)),
    variant(SOUND, "nothing, on a network",
        chaos(&[Kind::Leader503], 3, true, 30)),
    variant("DeadlineIgnored", "core: a leader goes on past its deadline",
        chaos(&[Kind::StoreHeld], 3, false, 60)),
    // All nodes wait for the lock and claim when it is free.
    variant("LostTakenForWon", "core: a refused write is taken for one that happened",
        chaos(&[Kind::StoreHeld], 7, false, 60)),
    variant("ExpiryTooShort", "core: a standby takes over after half a hold",
        chaos(&[Kind::Crash, Kind::Pause], 3, false, 60)),
    variant("UnknownPassedAsWon", "driver: an unknown outcome is passed on as one that happened",
        chaos(&[Kind::Leader503], 3, true, 60)),
    variant("ClockStandsStill", "driver: the clock does not count the time a machine sleeps",
        chaos(&[Kind::Pause], 3, false, 60)),
    variant(SOUND, "nothing: the same build, the same faults at who runs a command",
        exec(&[At::Pause, At::Kill, At::Cut, At::Keeper, At::Stop], 15)),
    variant(SOUND, "nothing: the same build, commands that start daemons",
        Play::Leftovers { runs: 200 }),
    variant("KeeperWithoutDeadline", "the keeper has no deadline of its own, it waits for a word from tenure",
        exec(&[At::Pause], 3)),
    // Its deadline saves it: the command ends with the lease, not with tenure.
    variant("LineIgnored", "the keeper does not mind that the line to tenure was closed",
        exec(&[At::Kill], 3)),
    variant("OnlyTold", "the command is told to end, and never killed",
        exec(&[At::Cut], 3)),
    variant("OnlyTheChild", "the command alone is ended, not what it started",
        exec(&[At::Kill], 3)),
    variant("NoSubreaper", "what loses its parent gets away",
        exec(&[At::Cut], 3)),
    variant("TableTrusted", "the keeper ends when the table of processes shows nothing below it, which may have forked meanwhile",
        Play::Leftovers { runs: 1000 }),
    variant("StartedBesideTheOld", "what a killed keeper leaves behind is left alone, and the command started again",
        exec(&[At::Keeper], 3)),
    // It lives on for a grace period; a successor may or may not look sooner than that.
    variant("EndedWhenTold", "the seat is vacated when the command was told to end, not when it has",
        exec(&[At::Stop], 3)),
];

impl Variant {
    /// Whether it is about a command that runs while its node leads.
    pub fn is_exec(&self) -> bool {
        !matches!(self.play, Play::Chaos { .. })
    }

    pub fn is_sound(&self) -> bool {
        self.name == SOUND
    }

    pub fn faults(&self) -> Vec<&'static str> {
        match self.play {
            Play::Chaos { faults, .. } => faults.iter().map(|fault| fault.name()).collect(),
            Play::Exec { faults, .. } => faults.iter().map(|fault| fault.name()).collect(),
            Play::Leftovers { .. } => vec!["leftovers"],
        }
    }

    /// What the variant was found guilty of, in the judge's first words; or why it was not. Any violation convicts. So does
    /// anything the judge would have excused, because under the same faults the sound program was found innocent.
    pub fn sentence(&self, findings: &Value) -> Result<String, String> {
        let lines =
            |field: &str| findings[field].as_array().map(|lines| lines.iter().filter_map(Value::as_str));
        let mut violations = lines("violations").ok_or("no findings")?;
        if self.is_sound() {
            return violations.next().map_or_else(|| Ok("innocent".to_owned()), |line| Err(line.to_owned()));
        }
        let excused = lines("excused").into_iter().flatten();
        let crime = violations.chain(excused).next().ok_or("found nothing")?;
        Ok(crime.split(": ").next().unwrap_or(crime).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn any_violation_convicts_and_no_excuse_hides_one() {
        let findings = |lines: &[&str], excused: &[&str]| json!({"violations": lines, "excused": excused});
        let of = |name: &'static str| variant(name, "", Play::Leftovers { runs: 1 });
        let (broken, sound) = (of("ClockStandsStill"), of(SOUND));
        let epoch = findings(&["an epoch went down: 4 after 5"], &[]);
        assert_eq!(broken.sentence(&epoch).as_deref(), Ok("an epoch went down"));
        assert_eq!(broken.sentence(&findings(&[], &["led late: x"])).as_deref(), Ok("led late"));
        assert!(broken.sentence(&findings(&[], &[])).is_err() && broken.sentence(&json!({})).is_err());
        assert!(sound.sentence(&findings(&[], &["led late: x"])).is_ok(), "a busy machine is nobody's fault");
        assert!(sound.sentence(&findings(&["anything"], &[])).is_err());
        assert!(sound.sentence(&json!({})).is_err(), "no findings are no acquittal");
    }

    #[test]
    fn every_mistake_of_a_keeper_gets_played() {
        let source = include_str!("../../cli/src/exec/mutant.rs");
        let variant = |line: &'static str| {
            line.trim().strip_suffix(',').filter(|name| name.chars().all(char::is_alphanumeric))
        };
        let listed: Vec<&str> = source.lines().filter_map(variant).collect();
        let played = VARIANTS.iter().filter(|variant| variant.is_exec() && !variant.is_sound());
        assert_eq!(listed, played.map(|variant| variant.name).collect::<Vec<_>>());
    }

    #[test]
    fn the_sound_one_plays_the_faults_of_all_others() {
        let sound = |fault: &str| VARIANTS.iter().any(|one| one.is_sound() && one.faults().contains(&fault));
        for variant in VARIANTS {
            assert!(variant.faults().into_iter().all(sound), "{}", variant.name);
            if let Play::Exec { faults, rounds } = variant.play {
                assert!(usize::from(rounds) >= faults.len(), "{}", variant.name);
            }
        }
    }
}
