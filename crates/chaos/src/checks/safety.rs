//! What must hold whatever the machine does.

use super::Findings;
use crate::leadership::{self, Judged, Said, Term};
use crate::linearizable::{self, Action, Effective, Operation, Outcome};
use crate::record::Record;

/// Checks safety and counts; returns the terms in order.
pub(super) fn judge(record: &Record, findings: &mut Findings) -> Vec<Term> {
    let Judged { terms, transitions } = leadership::check(&record.events).unwrap_or_else(|broken| {
        findings.violations.push(broken);
        Judged::default()
    });
    findings.transitions = transitions;
    findings.leaderships = terms.len();
    findings.epochs = terms.iter().map(|term| term.epoch).max().unwrap_or(0);
    margins(&terms, findings);
    clocks(record, findings);
    seat(record, &terms, findings);
    terms
}

fn margins(terms: &[Term], findings: &mut Findings) {
    let least = |before: Option<i64>, margin: i64| Some(before.map_or(margin, |least| least.min(margin)));
    for pair in terms.windows(2).filter(|pair| pair[0].life != pair[1].life) {
        let margin = signed(pair[1].from_ms) - signed(pair[0].until_ms());
        let margins = &mut findings.margins;
        if pair[0].vacated {
            margins.vacated_min_ms = least(margins.vacated_min_ms, margin);
        } else {
            margins.expired_min_ms = least(margins.expired_min_ms, margin);
        }
    }
}

/// Milliseconds since boot fit easily.
pub(super) fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

/// A shifted wall clock must be shifted, and the clock of the leases must not.
fn clocks(record: &Record, findings: &mut Findings) {
    for life in &record.lives {
        let said = record.events.iter().filter(|said| said.life == life.life);
        let stamped = said.filter_map(|said| said.event["bootMs"].as_u64().map(|boot_ms| (said, boot_ms)));
        for (said, boot_ms) in stamped {
            let until_ms = life.ended_ms.unwrap_or(record.run.ended_ms);
            if !(life.started_ms..=until_ms).contains(&boot_ms) {
                findings.violations.push(format!("{} stamped outside its life: {}", life.node, said.event));
                return;
            }
            let wall_ms =
                said.text("time").parse::<jiff::Timestamp>().map_or(0, |time| time.as_millisecond());
            let shift_ms = wall_ms - signed(boot_ms) - signed(record.run.wall_ahead_ms);
            if (shift_ms - life.skew_s * 1000).abs() > 30_000 {
                let line = format!("{}: the wall clock was not {:+} s off", life.node, life.skew_s);
                if !findings.notices.contains(&line) {
                    findings.notices.push(line);
                }
            }
        }
    }
}

/// The history of the seat: linearizable, epochs in order, and consistent with the nodes' events.
fn seat(record: &Record, terms: &[Term], findings: &mut Findings) {
    if record.requests.is_empty() {
        return;
    }
    let operations: Vec<Operation> =
        record.requests.iter().filter_map(|exchange| exchange.clone().operation()).collect();
    let figures = &mut findings.linearizability;
    figures.recorded = true;
    figures.operations = operations.len();
    figures.stopped = record.requests.iter().filter(|exchange| exchange.stopped.is_some()).count();
    for operation in &operations {
        match &operation.action {
            Action::Saw { .. } | Action::SawNothing | Action::SawUnchanged { .. } => figures.reads += 1,
            Action::Write { outcome: Outcome::Won(_), .. } => figures.won += 1,
            Action::Write { outcome: Outcome::Lost, .. } => figures.lost += 1,
            Action::Write { outcome: Outcome::Unknown, .. } => figures.unknown += 1,
        }
    }
    match linearizable::linearize(&operations) {
        Ok(chain) => {
            figures.holds = true;
            figures.unknown_effective = chain.len() - figures.won;
            findings.violations.extend(linearizable::check_epochs(&chain).err());
            findings.violations.extend(claims(terms, &chain));
            findings.violations.extend(leases(&record.events, &chain, findings.promise.lease_ms));
        }
        Err(broken) => findings.violations.push(format!("the seat's history is not linearizable: {broken}")),
    }
}

/// Nobody leads in an epoch that it does not hold on the store.
fn claims(terms: &[Term], chain: &[Effective<'_>]) -> Option<String> {
    let stray = terms.iter().find(|term| {
        !chain.iter().any(|write| write.content.epoch == term.epoch && write.content.node == term.node)
    })?;
    Some(format!("it led without a claim on the store: {stray:?}"))
}

/// A lease counts from the sending of the write that earned it, and the proxy saw that write later than it was sent.
fn leases(events: &[Said], chain: &[Effective<'_>], lease_ms: u64) -> Option<String> {
    let granted = events.iter().filter(|said| ["became_leader", "lease_renewed"].contains(&said.name()));
    for said in granted {
        let (epoch, boot_ms) = (said.epoch(), said.boot_ms());
        let earned = chain.iter().filter(|write| {
            let sent_ms = write.operation.invoke_us / 1000;
            write.content.epoch == epoch && write.operation.node == said.node && sent_ms <= boot_ms
        });
        let sent_ms = earned.map(|write| write.operation.invoke_us / 1000).max();
        // Both are truncated to milliseconds.
        if sent_ms.is_none_or(|sent_ms| said.number("deadlineBootMs") > sent_ms + lease_ms + 1) {
            return Some(format!(
                "a lease longer than its renewal earned, sent at {sent_ms:?}: {}",
                said.event
            ));
        }
    }
    None
}
