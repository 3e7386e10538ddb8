//! The truth about the history: what it takes in has happened, and what it has it keeps.

use super::name;
use crate::store::{Key, Value};
use crate::world::World;
use std::collections::BTreeSet;
use std::sync::Arc;
use tenure_core::{HistoryHead, HistoryKey, HistoryPart, HistoryRow, JobState, Kept, NoticesDoc};

impl World {
    /// A write of the history lands.
    pub(crate) fn check_history_landed(&mut self, before: Option<&Value>, after: &Value) {
        if let Value::HistoryHead(_, head) = after {
            let before = before.and_then(Value::history_head).map(|(_, head)| head.clone());
            self.check_head(&before.unwrap_or_default(), head);
        }
        if let Value::HistoryPart(_, part) = after {
            let before = before.and_then(Value::history_part).map(|(_, part)| part.clone());
            self.check_part(&before.unwrap_or_default(), part);
        }
        self.report_jobs();
    }

    fn check_head(&mut self, before: &HistoryHead, after: &HistoryHead) {
        for (number, record) in &after.jobs {
            let (id, end) = (&record.id, (record.id.clone(), record.epoch, record.ending));
            // By now it may be tried again, because somebody asked for that while this write was on its way.
            let is_over = self.job_checks.over.get(&end) == Some(&record.state);
            match self.job_checks.ends.insert(end, *number) {
                Some(other) if other != *number => {
                    let what = format!("the end of {id} is recorded as number {other} and as {number}");
                    self.job_checks.say(name::HISTORY_TRUE, what);
                }
                Some(_) => {}
                None if !record.state.is_final() || !is_over => {
                    let known = self.job_checks.known(id);
                    let what = format!("{id} is recorded as {:?}, the ledger has {known:?}", record.state);
                    self.job_checks.say(name::HISTORY_TRUE, what);
                }
                None => {}
            }
        }
        let here: BTreeSet<u64> = after.jobs.iter().map(|(number, _)| *number).collect();
        for (number, record) in before.jobs.iter().filter(|(number, _)| !here.contains(number)) {
            let row = HistoryRow::of(*number, record, &"".into());
            let missing: Vec<HistoryKey> =
                row.keys().into_iter().filter(|key| !self.is_in_part(key, *number)).collect();
            for key in missing {
                let what =
                    format!("number {number}, {}, leaves the head, and {key:?} does not have it", record.id);
                self.job_checks.say(name::HISTORY_KEPT, what);
            }
            let kind = if record.state == JobState::Expired { "job_expired" } else { "job_failed" };
            let notice: Arc<str> = format!("{kind}-{number}").into();
            if record.state.is_undone() && !self.is_told(&notice) && !self.waits_to_be_told(&notice) {
                let what = format!("{} leaves the head, and nobody is going to be told {notice}", record.id);
                self.job_checks.say(name::NOTICE_KEPT, what);
            }
        }
    }

    fn is_told(&self, notice: &Arc<str>) -> bool {
        self.store.get(&Key::Told(Arc::clone(notice))).is_some()
    }

    fn waits_to_be_told(&self, notice: &Arc<str>) -> bool {
        let doc = self.store.get(&Key::Notices).and_then(|object| object.value.notices());
        doc.is_some_and(|(_, doc)| doc.waiting.iter().any(|waiting| waiting.id == *notice))
    }

    /// How many notices wait to be delivered.
    pub(crate) fn untold(&self) -> usize {
        let doc = self.store.get(&Key::Notices).and_then(|object| object.value.notices());
        doc.map_or(0, |(_, doc)| doc.waiting.len())
    }

    pub(crate) fn check_notices_landed(&mut self, before: Option<&Value>, after: &NoticesDoc) {
        let before = before.and_then(Value::notices).map_or(&[][..], |(_, before)| &before.waiting);
        let gone = before.iter().filter(|notice| !after.waiting.iter().any(|other| other.id == notice.id));
        let lost: Vec<Arc<str>> =
            gone.filter(|notice| !self.is_told(&notice.id)).map(|notice| Arc::clone(&notice.id)).collect();
        for id in lost {
            self.job_checks.say(name::NOTICE_KEPT, format!("{id} is no longer sent, and nobody took it"));
        }
        self.report_jobs();
    }

    fn is_in_part(&self, key: &HistoryKey, number: u64) -> bool {
        let part = key.part(self.workload.dispatcher.history.parts);
        let part = self.store.get(&Key::HistoryPart(part)).and_then(|object| object.value.history_part());
        part.is_some_and(|(_, part)| self.has_row(part, key, number))
    }

    fn has_row(&self, part: &HistoryPart, key: &HistoryKey, number: u64) -> bool {
        let rows = part.rows.get(key).into_iter().flatten();
        rows.clone().any(|row| row.number == number)
            || part.chunks.get(key).into_iter().flatten().any(|chunk| {
                let object = self.store.get(&Key::Kept(chunk.name.clone()));
                let Some(Value::Kept(Kept::Rows(rows))) = object.map(|object| &*object.value) else {
                    return false;
                };
                rows.iter().any(|row| row.number == number)
            })
    }

    fn check_part(&mut self, before: &HistoryPart, after: &HistoryPart) {
        let rows = before.rows.iter().flat_map(|(key, rows)| rows.iter().map(move |row| (key, row.number)));
        let lost: Vec<String> = rows
            .filter(|(key, number)| !self.has_row(after, key, *number))
            .map(|(key, number)| format!("{key:?} loses number {number}"))
            .collect();
        lost.into_iter().for_each(|what| self.job_checks.say(name::HISTORY_KEPT, what));
        for (key, chunks) in &before.chunks {
            let (old, new) = (chunks.last(), after.chunks.get(key).and_then(|chunks| chunks.last()));
            let covered = old.is_none_or(|old| new.is_some_and(|new| new.numbers.1 >= old.numbers.1));
            let first = chunks.first().map(|chunk| chunk.numbers.0);
            let same =
                after.chunks.get(key).and_then(|chunks| chunks.first()).map(|chunk| chunk.numbers.0) == first;
            if !covered || !same {
                self.job_checks.say(name::HISTORY_KEPT, format!("{key:?} loses chunks"));
            }
        }
        let twice = after.rows.iter().find(|(_, rows)| !rows.is_sorted_by_key(|row| row.number));
        if let Some((key, rows)) = twice {
            self.job_checks.say(name::HISTORY_TRUE, format!("{key:?} is out of order: {rows:?}"));
        }
    }
}
