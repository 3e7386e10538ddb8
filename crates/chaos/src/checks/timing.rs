//! What must hold on a machine that runs and a store that answers.

use super::safety::signed;
use super::{Findings, Spread};
use crate::leadership::Term;
use crate::record::{FaultRecord, Record, RoundRecord};
use crate::schedule::Kind;
use crate::stall_watch;
use std::collections::BTreeMap;

/// A node notices its deadline at its next look at the clock; the rest is room for a busy machine.
const NOTICED_MS: u64 = 1_000;

pub(super) fn judge(record: &Record, terms: &[Term], findings: &mut Findings) {
    let timing = Timing { record, terms };
    timing.stamps(findings);
    timing.losses(findings);
    timing.ends(findings);
    let mut failovers: BTreeMap<Kind, Vec<u64>> = BTreeMap::new();
    for round in &record.rounds {
        for fault in &round.faults {
            let figures = findings.kinds.entry(fault.kind.name().to_owned()).or_default();
            figures.count += 1;
            figures.hit_leader += usize::from(fault.hit_leader);
        }
        timing.round(round, findings);
        if let Some((fault, next)) = timing.succession(round) {
            failovers.entry(fault.kind).or_default().push(next.from_ms - fault.begun_ms);
            timing.leader503(round, fault, next, findings);
        }
    }
    let of = |kind: Kind| Spread::of(failovers.get(&kind).cloned().unwrap_or_default());
    findings.crash_failover = of(Kind::Crash);
    findings.hand_over = of(Kind::Stop);
    findings.leader503.failover = of(Kind::Leader503);
    for kind in Kind::ALL {
        if let Some(figures) = findings.kinds.get_mut(kind.name()) {
            figures.failover = of(kind);
        }
    }
    findings.leader503.count = findings.kinds.get(Kind::Leader503.name()).map_or(0, |figures| figures.count);
}

struct Timing<'a> {
    record: &'a Record,
    terms: &'a [Term],
}

impl<'a> Timing<'a> {
    /// The first term after a round began, if the round was one fault and hit the leader.
    fn succession(&self, round: &'a RoundRecord) -> Option<(&'a FaultRecord, &'a Term)> {
        let [fault] = &round.faults[..] else { return None };
        let next = self.next(round)?;
        (fault.hit_leader && round.settled_ms.is_some_and(|settled_ms| next.from_ms <= settled_ms))
            .then_some((fault, next))
    }

    fn next(&self, round: &RoundRecord) -> Option<&'a Term> {
        let leader = round.leader.as_ref()?;
        self.terms.iter().find(|term| term.epoch > leader.epoch)
    }

    /// A node leads in time: within the failover bound if one fault silenced the leader, otherwise within the recovery bound,
    /// counted from when all faults had ended.
    fn round(&self, round: &RoundRecord, findings: &mut Findings) {
        let Some(settled_ms) = round.settled_ms else {
            findings.violations.push(format!("nobody led again after {round:?}"));
            return;
        };
        let (promise, nodes) = (&self.record.run.promise, self.record.run.nodes);
        let lingering_ms = round.faults.iter().map(|fault| lingering_ms(fault.kind, promise.lease_ms)).max();
        let recovered_by_ms = round.healed_ms + promise.recovery_ms(nodes) + lingering_ms.unwrap_or(0);
        if let Some((fault, next)) = self.succession(round).filter(|(_, next)| next.from_ms <= settled_ms) {
            let bound_ms = match fault.kind == Kind::Stop {
                true => promise.hand_over_ms() + 2 * promise.request_timeout_ms,
                false => promise.failover_ms(nodes),
            };
            let by_ms = match silences(fault, promise.lease_ms) {
                true => fault.begun_ms + bound_ms,
                false => recovered_by_ms,
            };
            self.late(round, fault.begun_ms, next, by_ms, findings);
        }
        self.leader_in_time(round, recovered_by_ms, findings);
    }

    /// The leader at the end of the round began in time after all faults had ended.
    fn leader_in_time(&self, round: &RoundRecord, by_ms: u64, findings: &mut Findings) {
        let settled_ms = round.settled_ms.unwrap_or(u64::MAX);
        if let Some(last) = self.terms.iter().rev().find(|term| term.from_ms <= settled_ms) {
            self.late(round, round.healed_ms, last, by_ms, findings);
        }
    }

    fn late(&self, round: &RoundRecord, from_ms: u64, term: &Term, by_ms: u64, findings: &mut Findings) {
        let late_ms = term.from_ms.saturating_sub(by_ms);
        if late_ms == 0 {
            return;
        }
        let faults: Vec<&str> = round.faults.iter().map(|fault| fault.kind.name()).collect();
        let what = format!("round {} ({}): {} led", round.number + 1, faults.join(" + "), term.node);
        self.file(
            &what,
            late_ms,
            from_ms,
            term.from_ms,
            self.store_ms(&term.node, from_ms, term.from_ms),
            findings,
        );
    }

    /// How long the store took to answer this node in this period.
    fn store_ms(&self, node: &str, from_ms: u64, until_ms: u64) -> u64 {
        let within = self.record.requests.iter().filter(|exchange| {
            let at_ms = exchange.invoke_us / 1000;
            exchange.node == node && (from_ms..=until_ms).contains(&at_ms)
        });
        within.map(|exchange| (exchange.return_us - exchange.invoke_us) / 1000).sum()
    }

    fn file(
        &self,
        what: &str,
        late_ms: u64,
        from_ms: u64,
        until_ms: u64,
        store_ms: u64,
        findings: &mut Findings,
    ) {
        let stalled_ms = stall_watch::stalled_ms(&self.record.stalls, from_ms, until_ms);
        let line = format!(
            "{what} {late_ms} ms later than promised; meanwhile the machine stood still for {stalled_ms} ms and the \
             store took {store_ms} ms to answer"
        );
        let excused = late_ms <= 2 * stalled_ms + store_ms;
        if excused { &mut findings.excused } else { &mut findings.violations }.push(line);
    }

    /// An event is heard when the node says it happened, apart from the time the node itself stood still. Otherwise its clock is
    /// behind, and by its own account it would look innocent of anything.
    fn stamps(&self, findings: &mut Findings) {
        for life in &self.record.lives {
            let said = self.record.events.iter().filter(|said| said.life == life.life);
            let late = said.filter_map(|said| {
                let (heard_ms, boot_ms) = (said.heard_ms?, said.event["bootMs"].as_u64()?);
                let asleep = |(from_ms, until_ms): &(u64, u64)| {
                    (*until_ms).min(heard_ms).saturating_sub((*from_ms).max(boot_ms))
                };
                let asleep_ms: u64 = life.pauses.iter().map(asleep).sum();
                let late_ms = heard_ms.saturating_sub(boot_ms + asleep_ms).checked_sub(NOTICED_MS)?;
                Some((late_ms, boot_ms, heard_ms))
            });
            if let Some((late_ms, boot_ms, heard_ms)) = late.max().filter(|(late_ms, ..)| *late_ms > 0) {
                let what = format!("the clock of {} is behind: what it said was heard", life.node);
                self.file(&what, late_ms, boot_ms, heard_ms, 0, findings);
            }
        }
    }

    /// Every loss is reported by its deadline, or as soon as a paused process resumes.
    fn losses(&self, findings: &mut Findings) {
        for term in self.terms {
            let Some(lost_ms) = term.lost_ms else { continue };
            let pauses =
                self.record.lives.iter().find(|life| life.life == term.life).map(|life| &life.pauses);
            let asleep_until_ms = pauses
                .into_iter()
                .flatten()
                .filter(|(from_ms, until_ms)| *from_ms <= term.deadline_ms && term.deadline_ms <= *until_ms)
                .map(|(_, until_ms)| *until_ms)
                .max();
            let due_ms = term.deadline_ms.max(asleep_until_ms.unwrap_or(0));
            let late_ms = lost_ms.saturating_sub(due_ms);
            findings.loss_told_late_max_ms = findings.loss_told_late_max_ms.max(late_ms);
            if let Some(late_ms) = late_ms.checked_sub(NOTICED_MS).filter(|late_ms| *late_ms > 0) {
                let what = format!("{} said that it lost epoch {}", term.node, term.epoch);
                self.file(&what, late_ms, due_ms, lost_ms, 0, findings);
            }
        }
    }

    /// A process that was told to stop is gone, at the latest, after the drain and one lease.
    fn ends(&self, findings: &mut Findings) {
        let promise = &self.record.run.promise;
        for life in self.record.lives.iter().filter(|life| !life.killed) {
            let (Some(told_ms), Some(ended_ms)) = (life.told_ms, life.ended_ms) else { continue };
            let by_ms = told_ms + promise.drain_ms + promise.lease_ms + NOTICED_MS;
            if ended_ms > by_ms {
                let what = format!("{} ended", life.node);
                self.file(&what, ended_ms - by_ms, told_ms, ended_ms, 0, findings);
            }
        }
    }

    /// The leader stands down by its deadline, before the next one leads.
    fn leader503(&self, round: &RoundRecord, fault: &FaultRecord, next: &Term, findings: &mut Findings) {
        let Some(leader) = round.leader.as_ref().filter(|_| fault.kind == Kind::Leader503) else { return };
        let Some(old) = self.terms.iter().find(|term| term.epoch == leader.epoch) else { return };
        let figures = &mut findings.leader503;
        figures.replaced += usize::from(next.node != old.node && next.from_ms <= fault.ended_ms);
        let least = |before: Option<i64>, new: i64| Some(before.map_or(new, |before| before.min(new)));
        figures.margin_min_ms = least(figures.margin_min_ms, signed(next.from_ms) - signed(old.until_ms()));
        figures.before_deadline_min_ms =
            least(figures.before_deadline_min_ms, signed(old.deadline_ms) - signed(old.until_ms()));
    }
}

/// Whether a fault of the leader is sure to end its leadership and lets none of its later writes through. Then the successor's
/// time counts from the start of the fault.
fn silences(fault: &FaultRecord, lease_ms: u64) -> bool {
    match fault.kind {
        Kind::Crash | Kind::Stop | Kind::Skew => true,
        Kind::Pause | Kind::Cut | Kind::CutRequests | Kind::Refuse | Kind::Leader503 => {
            fault.ended_ms - fault.begun_ms > lease_ms
        }
        Kind::CutAnswers
        | Kind::SlowAnswers
        | Kind::LateRequests
        | Kind::DropAnswers
        | Kind::Storm
        | Kind::Lie
        | Kind::Outage
        | Kind::StoreRestart
        | Kind::StoreHeld => false,
    }
}

/// How long after its end a fault may still let writes of an earlier leader through; each is a sign of life.
fn lingering_ms(kind: Kind, lease_ms: u64) -> u64 {
    if kind == Kind::LateRequests { 2 * lease_ms } else { 0 }
}
