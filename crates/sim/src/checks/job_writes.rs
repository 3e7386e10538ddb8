//! Jobs as they are written: each write of ledger and inbox is held against the truth when it takes effect.

use super::jobs::Stored;
use super::name;
use crate::kind::Kind;
use crate::shell::Who;
use crate::store::{Key, Object};
use crate::world::World;
use tenure_core::{EntryState, InboxDoc, Incarnation, JobRecord, LedgerDoc, Time, WorkerId, job_shard};

/// Most requests per second that a leader makes for jobs.
const RATE_MAX: u64 = 60;

impl World {
    /// A leader's write of a part of the ledger has landed.
    pub(crate) fn check_ledger_landed(
        &mut self,
        by: Who,
        part: usize,
        before: Option<&Object>,
        (stamp, doc): Stored<'_, LedgerDoc>,
    ) {
        let Who::Node(node) = by else { return };
        let (now, local) = (self.now, (node, self.time(by).at));
        let before = before.and_then(|object| object.value.ledger());
        self.job_checks.ledger(now, local, before, (stamp, doc));
        self.trace.say(now, || {
            let open = doc.jobs.iter().filter(|job| !job.state.is_final()).count();
            format!("== ledger {part} of {:?}: {} jobs, {open} open", stamp.epoch, doc.jobs.len())
        });
        self.report_jobs();
    }

    /// A write of an inbox has landed.
    pub(crate) fn check_inbox_landed(
        &mut self,
        worker: &WorkerId,
        before: Option<&Object>,
        (stamp, doc): Stored<'_, InboxDoc>,
        by_itself: bool,
    ) {
        let before = before.and_then(|object| object.value.inbox());
        if by_itself {
            let local: Vec<Time> =
                self.nodes.iter().map(|node| node.computer.clock.local(self.now)).collect();
            self.job_checks.work(worker, before, (stamp, doc), &local);
        } else {
            let (store, parts) = (&self.store, self.workload.dispatcher.shards);
            let owner = |record: &JobRecord| {
                let ledger = store.get(&Key::Ledger(job_shard(&record.series, parts)))?;
                ledger.value.ledger().map(|(stamp, _)| stamp.owner)
            };
            self.job_checks.dispatch(worker, before, (stamp, doc), owner);
        }
        self.trace.say(self.now, || {
            let by = if by_itself { "itself".to_owned() } else { format!("{:?}", stamp.epoch) };
            format!("== inbox of {worker} by {by}: {}", entries(doc))
        });
        self.report_jobs();
    }

    /// Turns everything that is wrong with jobs into violations.
    pub(crate) fn report_jobs(&mut self) {
        for (check, what) in std::mem::take(&mut self.job_checks.wrong) {
            self.violated(check, || what);
        }
    }

    /// A leader's requests for jobs are bounded during faults, too.
    pub(crate) fn check_job_rate(&mut self, node: usize, kind: Kind) {
        if !kind.is_for_jobs() {
            return;
        }
        let second = self.now / 1000;
        let before = self.job_second.get(&node).copied().filter(|(last, ..)| *last == second);
        let (_, count, updates) = before.unwrap_or((second, 0, self.job_checks.updates));
        self.job_second.insert(node, (second, count + 1, updates));
        // Requests with an effect may add to this: a write for what was seen, and one for what follows from it.
        let most = RATE_MAX + 2 * (self.job_checks.updates - updates);
        if count + 1 > most && !self.clocks_beyond_drift {
            self.violated(name::JOB_BUDGET, || {
                format!("{node} makes more than {most} requests for jobs in second {second}")
            });
        }
    }
}

fn entries(doc: &InboxDoc) -> String {
    let entry = |entry: &tenure_core::Entry| {
        let state = match &entry.state {
            EntryState::Dispatched => "new".to_owned(),
            EntryState::Acked { by: Incarnation(by) } => format!("claimed by life {by}"),
            EntryState::Running { by: Incarnation(by) } => format!("run by life {by}"),
            EntryState::Finished { outcome } => outcome.kind.as_str().to_owned(),
        };
        format!("{}/{} {state}", entry.id, entry.dispatch)
    };
    let serves = doc.serves.as_ref().map_or("nothing known".to_owned(), |(_, serves)| {
        serves.queues.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
    });
    let entries = doc.entries.iter().map(entry).collect::<Vec<_>>().join(", ");
    format!("{entries}{}", if serves.is_empty() { serves } else { format!(" (serves {serves})") })
}
