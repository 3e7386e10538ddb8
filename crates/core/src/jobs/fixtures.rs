//! What the tests of the parts start from.

use super::dispatcher::{DispatchRequest, DispatcherConfig, Sink, View};
use super::history::HistoryLimits;
use super::ledger::Ledger;
use super::model::{JobLimits, JobRecord, LedgerDoc};
use super::table::{Clocks, Table, Transition};
use super::workers::Workers;
use crate::document::{DocumentAnswer, DocumentRequest, Read, Removal, Writer};
use crate::election::{Epoch, Version, WriteAnswer};
use crate::id::{IdError, Incarnation, JobId};
use crate::machine::Effect;
use crate::time::Time;
use std::str::FromStr;
use std::sync::Arc;

pub(super) const WRITER: Writer = Writer::Owner { epoch: Epoch(2), me: Incarnation(7) };

pub(super) const HISTORY: HistoryLimits = HistoryLimits {
    parts: 2,
    delay_ms: 0,
    head_rows: 6,
    part_rows: 8,
    chunk_rows: 4,
    chunks: 50,
    retention_ms: 100_000,
};

pub(super) fn name<T: FromStr<Err = IdError>>(text: &str) -> T {
    text.parse().expect("a valid name")
}

pub(super) fn config() -> DispatcherConfig {
    DispatcherConfig {
        incarnation: Incarnation(7),
        epoch: Epoch(2),
        shards: 2,
        entries_max: 4,
        fast_ms: 100,
        slow_ms: 1000,
        orders_ms: 1_000_000,
        claim_timeout_ms: 3000,
        margin_ms: 500,
        retire_ms: 5000,
        keep_finished: 2,
        history: HISTORY,
        notify_all: false,
    }
}

pub(super) fn record(id: &str) -> JobRecord {
    let limits =
        JobLimits { timeout_ms: 2000, ttl_ms: 60_000, deadline_ms: 0, attempts_max: 2, backoff_ms: 100 };
    JobRecord { payload: Arc::from(*b"x"), ..JobRecord::new(name(id), name(id), name("k"), limits) }
}

pub(super) fn at(now: u64) -> Clocks {
    Clocks { now: Time(now), wall_ms: now as i64 }
}

/// A ledger whose shards were empty, and are this leader's own now.
pub(super) fn ledger() -> Ledger {
    let (mut ledger, table) = (Ledger::new(WRITER, 2), Table::new(Epoch(2), 2));
    let reads = serve(&mut ledger, &table, 0);
    let writes = serve(&mut ledger, &table, 1);
    assert!(matches!(reads[..], [DocumentRequest::Read { .. }, DocumentRequest::Read { .. }]));
    assert!(matches!(writes[..], [DocumentRequest::Write { .. }, DocumentRequest::Write { .. }]));
    ledger
}

/// Sends what is due at this time, and answers it: nothing is there, every write succeeds.
pub(super) fn serve(ledger: &mut Ledger, table: &Table, now: u64) -> Vec<DocumentRequest<LedgerDoc>> {
    let (now, config, workers) = (Time(now), config(), Workers::default());
    let view = View { now, wall_ms: 0, config: &config, table, workers: &workers };
    let (mut requests, mut out) = (now.0 * 10, Vec::new());
    ledger.send(&view, &mut Sink { requests: &mut requests, out: &mut out });
    let mut asked = Vec::new();
    for effect in out {
        let Effect::Request(id, DispatchRequest::Ledger(shard, request)) = effect else { continue };
        let answer = match &request {
            DocumentRequest::Read { .. } => DocumentAnswer::Read(Read::Absent),
            DocumentRequest::Write { .. } => {
                DocumentAnswer::Written(WriteAnswer::Won(Version::new(&id.0.to_string())))
            }
            DocumentRequest::Remove => DocumentAnswer::Removed(Removal::Gone),
        };
        ledger.answered(now, id, shard, answer);
        asked.push(request);
    }
    asked
}

/// A table with one job that went through these transitions, each a second after the one before.
pub(super) fn table(record: JobRecord, transitions: Vec<Transition>) -> (Table, Ledger, JobId) {
    let (mut table, mut ledger, id) = (Table::new(Epoch(2), 2), ledger(), record.id.clone());
    table.create(&mut ledger, at(0), Some(1), record);
    for (number, transition) in transitions.into_iter().enumerate() {
        table.change(&mut ledger, at(1000 * (number as u64 + 1)), &id, transition);
    }
    (table, ledger, id)
}
