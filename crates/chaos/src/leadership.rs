//! The judge: by the nodes' own events, did two ever lead at once?
//!
//! A node may act from `became_leader` until the moment it says its work had stopped, or until its last deadline if it says
//! nothing. Killed and paused processes are held to the lease they had, which is stricter than to the moment they were stopped.
//! What a killed process did not get to print is not seen here; the seat's own history ([`crate::linearizable`]) shows it.
//!
//! Each event that reports a step of the election is one of the transitions of `proof/seat.py`, and its guard is checked as far
//! as events show it:
//!
//! | event | transition | what is checked |
//! |---|---|---|
//! | `became_leader` | `lead` | it does not lead; the epoch is above every one before; nobody else may act |
//! | `lease_renewed` | `renewed` | it leads in that epoch, and its deadline is not over |
//! | `lease_recovered` | `recover` | it leads in that epoch, and its work had been told to stop |
//! | `lost_leadership` | `lose`, after `vacate` if it vacated | it leads in that epoch, and acted no longer than its deadline |
//! | `leader:changed` | `standby_read` or `lead` | no epoch below one that it has named before |
//!
//! Not seen here: which requests were sent and when each landed, lost claims, records vacated without ever leading, work that is
//! spared, retired epochs, marks, and what a node read without reporting it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// One event, as a process printed it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Said {
    /// The number of the process, in order of start.
    pub life: usize,
    pub node: String,
    pub event: Value,
    /// When it was read, on the judge's own reading of the boot-time clock; unknown in records made by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_ms: Option<u64>,
}

impl Said {
    /// The event's name without its prefix; `leader:changed` has no prefix.
    pub fn name(&self) -> &str {
        let name = self.event["event"].as_str().unwrap_or_default();
        name.rsplit_once('.').map_or(name, |(_, last)| last)
    }

    /// A number that must be there.
    ///
    /// # Panics
    ///
    /// If it is missing: an event without its documented fields cannot be judged.
    pub fn number(&self, field: &str) -> u64 {
        self.event[field].as_u64().unwrap_or_else(|| panic!("no number {field:?} in {}", self.event))
    }

    pub fn epoch(&self) -> u64 {
        self.number("epoch")
    }

    /// The time of the event, on the machine's boot-time clock.
    pub fn boot_ms(&self) -> u64 {
        self.number("bootMs")
    }

    /// A text field; empty if there is none.
    pub fn text(&self, field: &str) -> &str {
        self.event[field].as_str().unwrap_or_default()
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Term {
    pub node: String,
    /// The number of its process.
    pub life: usize,
    pub epoch: u64,
    /// When it began to act.
    pub from_ms: u64,
    /// The deadline of its last lease.
    pub deadline_ms: u64,
    /// When its work had stopped, by its own account; reported later if it slept, or if the seat was vacated in between.
    pub acted_until_ms: Option<u64>,
    /// When it reported that it no longer leads.
    pub lost_ms: Option<u64>,
    pub vacated: bool,
}

impl Term {
    /// The time until which it may act.
    pub fn until_ms(&self) -> u64 {
        self.acted_until_ms.map_or(self.deadline_ms, |acted_ms| acted_ms.min(self.deadline_ms))
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Judged {
    /// All terms, ordered by epoch.
    pub terms: Vec<Term>,
    /// How many events were mapped to each transition of the proof.
    pub transitions: BTreeMap<String, u64>,
}

impl Judged {
    fn count(&mut self, transition: &str) {
        *self.transitions.entry(transition.to_owned()).or_default() += 1;
    }
}

/// Finds a moment at which two processes could both act, an epoch with two holders, an epoch that went down, work past its
/// deadline, or a step that the proof does not have. Events of one process must be in the order it printed them; events of
/// different processes may be interleaved in any way.
pub fn check(history: &[Said]) -> Result<Judged, String> {
    let mut judged = follow(history)?;
    let terms = &mut judged.terms;
    terms.sort_by_key(|term| (term.from_ms, term.epoch));
    for (index, a) in terms.iter().enumerate() {
        for b in &terms[index + 1..] {
            if a.epoch == b.epoch {
                return Err(format!("one epoch, two holders: {a:?} and {b:?}"));
            }
            if a.epoch > b.epoch {
                return Err(format!("an epoch went down: {a:?} and then {b:?}"));
            }
            if a.life != b.life && b.from_ms < a.until_ms() {
                return Err(format!("two led at once: {a:?} and {b:?}"));
            }
        }
    }
    Ok(judged)
}

fn follow(history: &[Said]) -> Result<Judged, String> {
    let mut judged = Judged::default();
    let mut open: BTreeMap<usize, usize> = BTreeMap::new();
    // Leaders that were told to stop their work, and the highest epoch each process has named.
    let (mut at_risk, mut named) = (BTreeSet::new(), BTreeMap::new());
    for said in history {
        let term = open.get(&said.life).copied();
        let terms = &mut judged.terms;
        match (said.name(), term) {
            ("became_leader", Some(index)) => {
                return Err(format!("leads again without having lost: {:?}, {}", terms[index], said.event));
            }
            ("became_leader", None) => {
                open.insert(said.life, terms.len());
                terms.push(Term {
                    node: said.node.clone(),
                    life: said.life,
                    epoch: said.epoch(),
                    from_ms: said.boot_ms(),
                    deadline_ms: said.number("deadlineBootMs"),
                    acted_until_ms: None,
                    lost_ms: None,
                    vacated: false,
                });
                judged.count("lead");
            }
            ("lease_renewed", Some(index)) => {
                let term = &mut terms[index];
                if said.epoch() != term.epoch {
                    return Err(format!("renewed another epoch: {term:?}, {}", said.event));
                }
                if said.boot_ms() >= term.deadline_ms {
                    return Err(format!("renewed after its deadline: {term:?}, {}", said.event));
                }
                term.deadline_ms = term.deadline_ms.max(said.number("deadlineBootMs"));
                judged.count("renewed");
            }
            ("lease_at_risk", Some(index)) if said.epoch() == terms[index].epoch => {
                at_risk.insert(said.life);
            }
            ("lease_recovered", Some(index)) if said.epoch() == terms[index].epoch => {
                if !at_risk.remove(&said.life) {
                    return Err(format!("recovered without having been at risk: {:?}", terms[index]));
                }
                judged.count("recover");
            }
            ("lost_leadership", Some(index)) => {
                let term = &mut terms[index];
                let acted_ms = said.number("actedUntilBootMs");
                if acted_ms > term.deadline_ms {
                    return Err(format!("acted past its deadline: {term:?}, {}", said.event));
                }
                term.acted_until_ms = Some(acted_ms);
                term.lost_ms = Some(said.boot_ms());
                term.vacated = said.event["vacated"].as_bool().unwrap_or(false);
                let vacated = term.vacated;
                open.remove(&said.life);
                at_risk.remove(&said.life);
                if vacated {
                    judged.count("vacate");
                }
                judged.count("lose");
            }
            ("lease_renewed" | "lost_leadership" | "lease_at_risk" | "lease_recovered", _) => {
                return Err(format!("{} does not lead in that epoch, but says {}", said.node, said.event));
            }
            ("leader:changed", _) => {
                let highest = named.entry(said.life).or_insert(0);
                if said.epoch() < *highest {
                    return Err(format!("{} has named epoch {highest}, and now {}", said.node, said.event));
                }
                *highest = said.epoch();
                judged.count("standby_read");
            }
            _ => {}
        }
    }
    Ok(judged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn said(life: usize, name: &str, epoch: u64, boot_ms: u64, more: Value) -> Said {
        let mut event =
            json!({"event": format!("serviceradar.coordinator.{name}"), "epoch": epoch, "bootMs": boot_ms});
        event.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        Said { life, node: format!("pod-{life}"), event, heard_ms: None }
    }

    fn leads(life: usize, epoch: u64, boot_ms: u64, deadline_ms: u64) -> Said {
        said(life, "became_leader", epoch, boot_ms, json!({"deadlineBootMs": deadline_ms}))
    }

    fn changed(life: usize, epoch: u64) -> Said {
        let event = json!({"event": "leader:changed", "epoch": epoch, "bootMs": 1_000});
        Said { life, node: format!("pod-{life}"), event, heard_ms: None }
    }

    #[test]
    fn the_judge_lets_the_innocent_go() {
        let lost = said(0, "lost_leadership", 1, 9_000, json!({"actedUntilBootMs": 2_000}));
        check(&[leads(0, 1, 1_000, 2_000), lost.clone(), leads(1, 2, 2_000, 3_000)]).expect("innocent");
        // It slept past its deadline and reports the loss late.
        check(&[leads(0, 1, 1_000, 2_000), leads(1, 2, 2_000, 3_000), lost]).expect("innocent");
        // Its work had stopped before it vacated the seat; the successor was faster than the answer.
        let vacated = said(0, "lost_leadership", 1, 1_500, json!({"actedUntilBootMs": 1_400}));
        let judged =
            check(&[leads(0, 1, 1_000, 2_000), leads(1, 2, 1_490, 2_490), vacated]).expect("innocent");
        assert_eq!(
            judged.terms.iter().map(|term| (term.epoch, term.until_ms())).collect::<Vec<_>>(),
            [(1, 1_400), (2, 2_490)]
        );
    }

    #[test]
    fn events_are_transitions_of_the_proof() {
        let at_risk = said(0, "lease_at_risk", 1, 1_800, json!({}));
        let recovered = said(0, "lease_recovered", 1, 1_900, json!({}));
        let lost = said(0, "lost_leadership", 1, 1_950, json!({"actedUntilBootMs": 1_940, "vacated": true}));
        let changed = changed(1, 1);
        let judged =
            check(&[leads(0, 1, 1_000, 2_000), at_risk, changed, recovered, lost]).expect("innocent");
        let counts: Vec<(&str, u64)> =
            judged.transitions.iter().map(|(name, count)| (&**name, *count)).collect();
        assert_eq!(counts, [("lead", 1), ("lose", 1), ("recover", 1), ("standby_read", 1), ("vacate", 1)]);
    }

    #[test]
    fn the_judge_catches_every_crime() {
        let renewed = |boot_ms, deadline_ms| {
            said(0, "lease_renewed", 1, boot_ms, json!({"deadlineBootMs": deadline_ms}))
        };
        let stopped_at = |ms: u64| said(0, "lost_leadership", 1, ms, json!({"actedUntilBootMs": ms}));
        for (crime, history) in [
            ("at once", vec![leads(0, 1, 1_000, 2_000), leads(1, 2, 1_999, 3_000)]),
            ("at once", vec![leads(0, 1, 1_000, 2_000), leads(1, 2, 1_490, 3_000), stopped_at(1_500)]),
            ("at once", vec![leads(0, 1, 1_000, 2_000), renewed(1_900, 2_900), leads(1, 2, 2_000, 3_000)]),
            ("after its deadline", vec![leads(0, 1, 1_000, 2_000), renewed(2_000, 2_900)]),
            ("past its deadline", vec![leads(0, 1, 1_000, 2_000), stopped_at(2_001)]),
            ("two holders", vec![leads(0, 1, 1_000, 2_000), leads(1, 1, 5_000, 6_000)]),
            ("went down", vec![leads(0, 2, 1_000, 2_000), leads(1, 1, 5_000, 6_000)]),
            ("without having lost", vec![leads(0, 1, 1_000, 2_000), leads(0, 2, 5_000, 6_000)]),
            ("does not lead", vec![renewed(1_900, 2_900)]),
            ("does not lead", vec![said(0, "lease_at_risk", 1, 1_800, json!({}))]),
            ("at risk", vec![leads(0, 1, 1_000, 2_000), said(0, "lease_recovered", 1, 1_900, json!({}))]),
            ("has named epoch 2", vec![changed(1, 2), changed(1, 1)]),
        ] {
            let found = check(&history).expect_err("guilty");
            assert!(found.contains(crime), "{crime:?} expected: {found}");
        }
    }
}
