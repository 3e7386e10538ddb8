//! What the signs of life say about a run.

use super::signs_of_life::{self, Copy, Life, SignOfLife};
use super::{Kind, Round};
use crate::stall_watch::{Stall, stalled_ms};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    pub count: usize,
    pub least_ms: u64,
    pub median_ms: u64,
    pub most_ms: u64,
}

impl Figures {
    fn of(mut figures: Vec<u64>) -> Option<Figures> {
        figures.sort_unstable();
        Some(Figures {
            count: figures.len(),
            least_ms: *figures.first()?,
            median_ms: figures[figures.len() / 2],
            most_ms: *figures.last()?,
        })
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Findings {
    pub violations: Vec<String>,
    pub engine: String,
    pub lease_ms: u64,
    /// How long stopped processes were meant to stand still.
    pub pause_ms: u64,
    /// The number of faults of each kind.
    pub rounds: BTreeMap<&'static str, usize>,
    /// By kind: from the fault to the last sign of life of the command it hit.
    pub lived_on: BTreeMap<&'static str, Figures>,
    /// By kind: from the last sign of life of the old command to the first of the new.
    pub margins: BTreeMap<&'static str, Figures>,
    /// The margins of all kinds together.
    pub margin: Option<Figures>,
    /// How long stopped processes stood still.
    pub stood: Option<Figures>,
    /// How long frozen commands kept writing after they were woken, alongside their successors.
    pub woken: Option<Figures>,
    /// The number of lines judged.
    pub signs: usize,
}

pub(super) struct Evidence<'a> {
    pub(super) signs: &'a [SignOfLife],
    pub(super) rounds: &'a [Round],
    /// When the machine itself stood still. Excuses lateness, never two at the same instant.
    pub(super) stalls: Vec<Stall>,
    pub(super) lease_ms: u64,
    /// Processes that still existed after all nodes had left.
    pub(super) left: &'a [i32],
}

impl Evidence<'_> {
    fn woken_ms(&self, copy: Copy) -> Option<u64> {
        self.rounds.iter().find(|round| round.copy == copy)?.woken_ms
    }

    /// The lives that count. A command frozen together with its keeper is judged up to the moment it was woken; what it wrote
    /// after that is counted separately, because nothing could have prevented it.
    fn honoured(&self) -> BTreeMap<Copy, Life> {
        let frozen: BTreeMap<Copy, u64> =
            self.rounds.iter().filter_map(|round| Some((round.copy, round.woken_ms?))).collect();
        let is_honoured =
            |sign: &&SignOfLife| frozen.get(&sign.copy()).is_none_or(|&woken_ms| sign.at_ms < woken_ms);
        signs_of_life::lives(self.signs.iter().filter(is_honoured))
    }

    /// The gap from each command to the next, and what was wrong there.
    pub(super) fn gaps(&self) -> (BTreeMap<Copy, u64>, Vec<String>) {
        signs_of_life::gaps(&self.honoured())
    }

    /// From a fault to the last sign of life of the command it hit. Unknown for a frozen command.
    pub(super) fn lived_on(&self, round: &Round) -> Option<u64> {
        let signs = self.signs.iter().rev().filter(|sign| sign.copy() == round.copy);
        let last_ms = signs.map(|sign| sign.at_ms).max()?;
        (round.kind != Kind::Freeze).then(|| last_ms.saturating_sub(round.at_ms))
    }

    /// How long a frozen command kept writing after it was woken; 0 if it wrote nothing.
    fn wrote_on(&self, round: &Round) -> Option<u64> {
        let woken_ms = self.woken_ms(round.copy)?;
        let signs = self.signs.iter().filter(|sign| sign.copy() == round.copy);
        Some(signs.map(|sign| sign.at_ms).max()?.saturating_sub(woken_ms))
    }

    /// The last renewal was sent before the fault, so one lease later the command must be gone. If `tenure` is dead, it has even
    /// less time: the keeper ends it at once, and half a lease is twice what that may take.
    fn overdue(&self, round: &Round) -> Option<String> {
        let (limit_ms, whom) = match round.kind {
            Kind::Kill => (self.lease_ms / 2, "its tenure"),
            Kind::Pause | Kind::Cut => (self.lease_ms, "its lease"),
            Kind::Stop | Kind::Keeper | Kind::Freeze => return None,
        };
        let lived_ms = self.lived_on(round)?;
        let excused_ms = stalled_ms(&self.stalls, round.at_ms, round.at_ms + lived_ms);
        (lived_ms > limit_ms + excused_ms).then(|| {
            format!(
                "outlived {whom}: a command of epoch {} was alive {lived_ms} ms after {} ({limit_ms} ms are allowed)",
                round.copy.epoch,
                round.kind.name()
            )
        })
    }

    /// An epoch that is over stays over: a node that wakes up in it or comes back must start nothing in it.
    fn again(&self, round: &Round, lives: &BTreeMap<Copy, Life>) -> Option<String> {
        if round.kind == Kind::Keeper {
            return None;
        }
        let mut later = lives.iter().filter(|(copy, _)| copy.epoch == round.copy.epoch);
        let (_, life) = later.find(|(_, life)| life.first_ms > round.at_ms)?;
        Some(format!(
            "begun too late: a command of epoch {} at {} ms, after {} at {} ms",
            round.copy.epoch,
            life.first_ms,
            round.kind.name(),
            round.at_ms
        ))
    }
}

/// What must not have happened and did.
pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<String> {
    let lives = evidence.honoured();
    let (_, mut violations) = signs_of_life::gaps(&lives);
    for round in evidence.rounds {
        violations.extend(evidence.overdue(round));
        violations.extend(evidence.again(round, &lives));
        let amiss = round.amiss.iter();
        violations.extend(amiss.map(|amiss| format!("{} after {}: {amiss}", round.node, round.kind.name())));
    }
    if !evidence.left.is_empty() {
        violations.push(format!("left behind when all nodes had left in order: {:?}", evidence.left));
    }
    violations
}

impl Findings {
    pub(super) fn of(evidence: &Evidence<'_>, engine: String, pause_ms: u64) -> Findings {
        let (gaps, _) = evidence.gaps();
        let mut rounds = BTreeMap::new();
        let (mut lived, mut margins) = (BTreeMap::<_, Vec<u64>>::new(), BTreeMap::<_, Vec<u64>>::new());
        for round in evidence.rounds {
            let name = round.kind.name();
            *rounds.entry(name).or_default() += 1;
            lived.entry(name).or_default().extend(evidence.lived_on(round));
            margins.entry(name).or_default().extend(gaps.get(&round.copy));
        }
        let figures = |by_kind: BTreeMap<&'static str, Vec<u64>>| {
            by_kind.into_iter().filter_map(|(kind, all)| Some((kind, Figures::of(all)?))).collect()
        };
        Findings {
            violations: judge(evidence),
            engine,
            lease_ms: evidence.lease_ms,
            pause_ms,
            rounds,
            lived_on: figures(lived),
            margins: figures(margins),
            margin: Figures::of(gaps.into_values().collect()),
            stood: Figures::of(evidence.rounds.iter().filter_map(|round| round.stood_ms).collect()),
            woken: Figures::of(evidence.rounds.iter().filter_map(|round| evidence.wrote_on(round)).collect()),
            signs: evidence.signs.len(),
        }
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        let three = |figures: Option<&Figures>| match figures {
            Some(f) => format!("{:>8} {:>8} {:>8}", f.least_ms, f.median_ms, f.most_ms),
            None => format!("{0:>8} {0:>8} {0:>8}", "-"),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "on {}, lease {} ms", self.engine, self.lease_ms);
        let _ = writeln!(text, "{:<22} {:>6}   {:<26}   gap, ms", "", "", "lived on, ms");
        let heads = ["least", "median", "most"].map(|head| format!("{head:>8}")).join(" ");
        let _ = writeln!(text, "{:<22} {:>6}   {heads}   {heads}", "FAULT", "ROUNDS");
        for (name, rounds) in &self.rounds {
            let (lived, gap) = (three(self.lived_on.get(name)), three(self.margins.get(name)));
            let _ = writeln!(text, "{name:<22} {rounds:>6}   {lived}   {gap}");
        }
        let changes = self.margin.map_or(0, |all| all.count);
        let _ = writeln!(
            text,
            "{:<22} {changes:>6}   {}   {}",
            "all changes",
            three(None),
            three(self.margin.as_ref())
        );
        text.push_str(
            "lived on: from the fault to the old command's last sign of life; gap: from that to the new one's first\n",
        );
        if let Some(stood) = &self.stood {
            let _ = writeln!(text, "the stopped stood still for {} to {} ms", stood.least_ms, stood.most_ms);
        }
        if let Some(woken) = &self.woken {
            let _ = writeln!(
                text,
                "frozen commands wrote on for {} to {} ms (median {}) after they were woken, {} times: beside their successors",
                woken.least_ms, woken.most_ms, woken.median_ms, woken.count
            );
        }
        let _ = writeln!(text, "{} signs of life", self.signs);
        for violation in &self.violations {
            let _ = writeln!(text, "VIOLATION: {violation}");
        }
        if self.violations.is_empty() {
            text.push_str("never two commands alive at one instant");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sign of life of the only command of its epoch.
    fn sign(at_ms: u64, epoch: u64) -> SignOfLife {
        of_run(at_ms, epoch, 1)
    }

    fn of_run(at_ms: u64, epoch: u64, run: i32) -> SignOfLife {
        SignOfLife { at_ms, pid: run, epoch, run }
    }

    fn round(kind: Kind, epoch: u64, at_ms: u64, woken_ms: Option<u64>) -> Round {
        let copy = Copy { epoch, run: 1 };
        Round { kind, node: "pod-a", copy, at_ms, stood_ms: None, woken_ms, amiss: Vec::new() }
    }

    fn evidence<'a>(signs: &'a [SignOfLife], rounds: &'a [Round]) -> Evidence<'a> {
        Evidence { signs, rounds, stalls: Vec::new(), lease_ms: 1000, left: &[] }
    }

    fn found(signs: &[SignOfLife], rounds: &[Round]) -> Vec<String> {
        judge(&evidence(signs, rounds))
    }

    #[test]
    fn the_woken_are_counted_apart_and_no_others_are_excused() {
        let signs = [sign(100, 1), sign(2000, 2), sign(3000, 1), sign(3030, 1), sign(3040, 2)];
        let rounds = [round(Kind::Freeze, 1, 110, Some(2990))];
        let findings = Findings::of(&evidence(&signs, &rounds), "sqlite".to_owned(), 20_000);
        assert!(findings.violations.is_empty(), "{findings:?}");
        assert_eq!(findings.woken.map(|woken| woken.most_ms), Some(40));
        assert_eq!(findings.margins["all frozen together"].least_ms, 1900);
        // The same signs of life after any other fault, or before it was woken.
        assert!(found(&signs, &[round(Kind::Pause, 1, 110, None)])[0].contains("two at one instant"));
        assert_eq!(found(&signs, &[round(Kind::Freeze, 1, 110, Some(3010))]).len(), 1);
    }

    #[test]
    fn two_of_one_epoch_are_noticed_where_a_keeper_was_killed() {
        let kill = [round(Kind::Keeper, 1, 200, None)];
        let good = [of_run(100, 1, 1), of_run(205, 1, 1), of_run(400, 1, 2)];
        assert_eq!(found(&good, &kill), [""; 0]);
        let bad = [&good[..], &[of_run(405, 1, 1)]].concat();
        assert_eq!(found(&bad, &kill).len(), 1);
        // After any other fault, the epoch was over.
        assert!(found(&good, &[round(Kind::Pause, 1, 200, None)])[0].contains("begun too late"));
    }

    #[test]
    fn a_command_that_outlives_its_lease_is_guilty_even_if_nobody_followed_yet() {
        let signs = [sign(100, 1), sign(1150, 1), sign(2000, 2)];
        assert_eq!(found(&signs, &[round(Kind::Pause, 1, 150, None)]), [""; 0]);
        assert!(found(&signs, &[round(Kind::Pause, 1, 149, None)])[0].contains("outlived its lease"));
        assert!(found(&signs, &[round(Kind::Kill, 1, 649, None)])[0].contains("outlived its tenure"));
        assert_eq!(found(&signs, &[round(Kind::Kill, 1, 650, None)]), [""; 0]);
        // A machine that stood still excuses that, and nothing else.
        let rounds = [round(Kind::Pause, 1, 149, None)];
        let stalls = vec![Stall { until_ms: 900, stalled_ms: 100 }];
        assert_eq!(judge(&Evidence { stalls, ..evidence(&signs, &rounds) }), [""; 0]);
        let both = [sign(100, 1), sign(2001, 1), sign(2000, 2)];
        let stalls = vec![Stall { until_ms: 2000, stalled_ms: 1850 }];
        assert_eq!(judge(&Evidence { stalls, ..evidence(&both, &rounds) }).len(), 1);
    }

    #[test]
    fn what_is_left_behind_or_amiss_is_told() {
        let signs = [sign(100, 1)];
        assert_eq!(judge(&Evidence { left: &[7], ..evidence(&signs, &[]) }).len(), 1);
        let amiss = Round { amiss: vec!["asleep".to_owned()], ..round(Kind::Pause, 1, 150, None) };
        assert!(found(&signs, &[amiss])[0].contains("asleep"));
    }
}
