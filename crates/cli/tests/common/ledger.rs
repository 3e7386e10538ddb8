//! The judge: from what the nodes said themselves, did two ever lead at once?

use super::Said;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
struct Term {
    node: String,
    life: usize,
    epoch: u64,
    from_ms: u64,
    /// What its own lease allows.
    deadline_ms: u64,
    /// When its work had stopped, by its own word; said later if it slept, or if the seat was vacated in between.
    acted_until_ms: Option<u64>,
}

impl Term {
    /// It may act until then.
    fn until_ms(&self) -> u64 {
        self.acted_until_ms.map_or(self.deadline_ms, |acted_ms| acted_ms.min(self.deadline_ms))
    }
}

/// Finds a moment at which two processes could both act, or an epoch with two holders.
pub fn check(history: &[Said]) -> Result<(), String> {
    let mut terms: Vec<Term> = Vec::new();
    let mut open: BTreeMap<usize, usize> = BTreeMap::new();
    for said in history {
        let term = open.get(&said.life).copied();
        match (said.name(), term) {
            ("became_leader", Some(index)) => {
                return Err(format!("{:?} leads again without having lost: {}", terms[index], said.event));
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
                });
            }
            ("lease_renewed", Some(index)) => {
                let term = &mut terms[index];
                if said.epoch() != term.epoch {
                    return Err(format!("{term:?} renewed another epoch: {}", said.event));
                }
                if said.boot_ms() >= term.deadline_ms {
                    return Err(format!("{term:?} renewed after its deadline: {}", said.event));
                }
                term.deadline_ms = term.deadline_ms.max(said.number("deadlineBootMs"));
            }
            ("lost_leadership", Some(index)) => {
                terms[index].acted_until_ms = Some(said.number("actedUntilBootMs"));
                open.remove(&said.life);
            }
            ("lease_renewed" | "lost_leadership", None) => {
                return Err(format!("{} does not lead, but says {}", said.node, said.event));
            }
            _ => {}
        }
    }
    terms.sort_by_key(|term| term.from_ms);
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn said(life: usize, name: &str, epoch: u64, boot_ms: u64, more: Value) -> Said {
        let mut event =
            json!({"event": format!("serviceradar.coordinator.{name}"), "epoch": epoch, "bootMs": boot_ms});
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Said { life, node: format!("pod-{life}"), event }
    }

    fn leads(life: usize, epoch: u64, boot_ms: u64, deadline_ms: u64) -> Said {
        said(life, "became_leader", epoch, boot_ms, json!({"deadlineBootMs": deadline_ms}))
    }

    #[test]
    fn the_judge_lets_the_innocent_go() {
        let lost = said(0, "lost_leadership", 1, 9_000, json!({"actedUntilBootMs": 2_000}));
        check(&[leads(0, 1, 1_000, 2_000), lost.clone(), leads(1, 2, 2_000, 3_000)]).unwrap();
        // It slept over its deadline and says so late.
        check(&[leads(0, 1, 1_000, 2_000), leads(1, 2, 2_000, 3_000), lost]).unwrap();
        // Its work had stopped before it vacated the seat; the successor was faster than the answer.
        let vacated = said(0, "lost_leadership", 1, 1_500, json!({"actedUntilBootMs": 1_400}));
        check(&[leads(0, 1, 1_000, 2_000), leads(1, 2, 1_490, 2_490), vacated]).unwrap();
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
            ("two holders", vec![leads(0, 1, 1_000, 2_000), leads(1, 1, 5_000, 6_000)]),
            ("went down", vec![leads(0, 2, 1_000, 2_000), leads(1, 1, 5_000, 6_000)]),
            ("without having lost", vec![leads(0, 1, 1_000, 2_000), leads(0, 2, 5_000, 6_000)]),
            ("does not lead", vec![renewed(1_900, 2_900)]),
        ] {
            let found = check(&history).unwrap_err();
            assert!(found.contains(crime), "{crime:?} expected: {found}");
        }
    }
}
