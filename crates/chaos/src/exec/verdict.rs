//! What the marks say about a run.

use super::marks::{self, Life, Mark};
use super::{Kind, Round};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Least, middle and most of some figures, in ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// How many.
    pub count: usize,
    /// The least.
    pub least_ms: u64,
    /// The middle one.
    pub median_ms: u64,
    /// The most.
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

/// The judgement.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// What must not have happened and did.
    pub violations: Vec<String>,
    /// How many faults of each kind.
    pub rounds: BTreeMap<&'static str, usize>,
    /// By kind: from the last sign of life of the old command to the first of the new.
    pub margins: BTreeMap<&'static str, Figures>,
    /// Over all of them.
    pub margin: Option<Figures>,
    /// How long frozen commands wrote on after they were woken, beside their successors.
    pub woken: Option<Figures>,
    /// How many lines were judged.
    pub marks: usize,
}

/// Judges. Commands that were frozen together with their keeper are judged up to the moment they were woken; what they wrote
/// after that is counted apart, because nothing could have kept them from it.
pub(super) fn judge(marks: &[Mark], rounds: &[Round]) -> Verdict {
    let frozen: BTreeMap<u64, u64> =
        rounds.iter().filter_map(|round| Some((round.epoch, round.woken_ms?))).collect();
    let is_woken = |mark: &&Mark| frozen.get(&mark.epoch).is_some_and(|&woken_ms| mark.at_ms >= woken_ms);
    let (woken, honoured): (Vec<&Mark>, Vec<&Mark>) = marks.iter().partition(is_woken);
    let honoured: Vec<Mark> = honoured.into_iter().copied().collect();
    let mut violations = Vec::new();
    let margins = marks::margins(&honoured).unwrap_or_else(|error| {
        violations.push(error.to_string());
        BTreeMap::new()
    });
    violations.extend(within_one_epoch(&honoured, rounds));
    let mut by_kind: BTreeMap<&'static str, Vec<u64>> = BTreeMap::new();
    for round in rounds {
        if let Some(&margin_ms) = margins.get(&round.epoch).filter(|_| round.kind != Kind::Keeper) {
            by_kind.entry(round.kind.name()).or_default().push(margin_ms);
        }
    }
    let woken: Vec<Mark> = woken.into_iter().copied().collect();
    let woken: BTreeMap<u64, Life> = marks::lives(&woken);
    // One that wrote nothing more counts, too.
    let lived = |(epoch, &woken_ms): (&u64, &u64)| woken.get(epoch).map_or(0, |life| life.last_ms - woken_ms);
    let mut counts = BTreeMap::new();
    for round in rounds {
        *counts.entry(round.kind.name()).or_default() += 1;
    }
    Verdict {
        violations,
        rounds: counts,
        margins: by_kind.into_iter().filter_map(|(kind, all)| Some((kind, Figures::of(all)?))).collect(),
        margin: Figures::of(margins.into_values().collect()),
        woken: Figures::of(frozen.iter().map(lived).collect()),
        marks: marks.len(),
    }
}

/// A command whose keeper was killed is followed by another in the same epoch: all that wrote before the kill must have ended
/// before anybody else wrote.
fn within_one_epoch(marks: &[Mark], rounds: &[Round]) -> Vec<String> {
    let mut found = Vec::new();
    for round in rounds.iter().filter(|round| round.kind == Kind::Keeper) {
        let of_epoch = || marks.iter().filter(|mark| mark.epoch == round.epoch);
        let old: BTreeSet<i32> =
            of_epoch().filter(|mark| mark.at_ms < round.at_ms).map(|mark| mark.pid).collect();
        let last = of_epoch().filter(|mark| old.contains(&mark.pid)).map(|mark| mark.at_ms).max();
        let first = of_epoch().filter(|mark| !old.contains(&mark.pid)).map(|mark| mark.at_ms).min();
        if let (Some(last_ms), Some(first_ms)) = (last, first)
            && last_ms >= first_ms
        {
            found.push(format!(
                "epoch {}: a command whose keeper was killed was alive at {last_ms} ms, the next since {first_ms} ms",
                round.epoch
            ));
        }
    }
    found
}

impl Verdict {
    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let line = |name: &str, rounds: usize, figures: Option<&Figures>| match figures {
            Some(f) => {
                format!("{name:<22} {rounds:>6} {:>9} {:>9} {:>9}", f.least_ms, f.median_ms, f.most_ms)
            }
            None => format!("{name:<22} {rounds:>6}         -         -         -"),
        };
        // Writing to a String cannot fail.
        let _ =
            writeln!(text, "{:<22} {:>6} {:>9} {:>9} {:>9}", "FAULT", "ROUNDS", "LEAST ms", "MEDIAN", "MOST");
        for (name, rounds) in &self.rounds {
            let _ = writeln!(text, "{}", line(name, *rounds, self.margins.get(name)));
        }
        let _ = writeln!(
            text,
            "{}",
            line("all changes of epoch", self.margin.map_or(0, |all| all.count), self.margin.as_ref())
        );
        let _ = writeln!(text, "from the old command's last sign of life to the new one's first");
        if let Some(woken) = &self.woken {
            let _ = writeln!(
                text,
                "frozen commands wrote on for {} to {} ms (median {}) after they were woken, {} times: beside their successors",
                woken.least_ms, woken.most_ms, woken.median_ms, woken.count
            );
        }
        let _ = writeln!(text, "{} signs of life", self.marks);
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

    fn mark(at_ms: u64, pid: i32, epoch: u64) -> Mark {
        Mark { at_ms, pid, epoch }
    }

    fn round(kind: Kind, epoch: u64, at_ms: u64, woken_ms: Option<u64>) -> Round {
        Round { kind, epoch, at_ms, woken_ms }
    }

    #[test]
    fn the_woken_are_counted_apart_and_no_others_are_excused() {
        let marks = [mark(100, 1, 1), mark(2000, 2, 2), mark(3000, 1, 1), mark(3030, 1, 1), mark(3040, 2, 2)];
        let verdict = judge(&marks, &[round(Kind::Freeze, 1, 110, Some(2990))]);
        assert!(verdict.violations.is_empty(), "{verdict:?}");
        assert_eq!(verdict.woken.map(|woken| woken.most_ms), Some(40));
        assert_eq!(verdict.margins["all frozen together"].least_ms, 1900);
        // The same marks after any other fault, or before it was woken.
        assert_eq!(judge(&marks, &[round(Kind::Pause, 1, 110, None)]).violations.len(), 1);
        assert_eq!(judge(&marks, &[round(Kind::Freeze, 1, 110, Some(3010))]).violations.len(), 1);
    }

    #[test]
    fn two_of_one_epoch_are_noticed_where_a_keeper_was_killed() {
        let good = [mark(100, 1, 1), mark(205, 1, 1), mark(400, 2, 1)];
        let kill = [round(Kind::Keeper, 1, 200, None)];
        assert!(judge(&good, &kill).violations.is_empty());
        let bad = [mark(100, 1, 1), mark(205, 1, 1), mark(400, 2, 1), mark(405, 1, 1)];
        assert_eq!(judge(&bad, &kill).violations.len(), 1);
    }
}
