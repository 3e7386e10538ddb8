//! Which node has seen which seat. Where somebody changed the seat by hand, only nodes that could know of a holder are held to
//! waiting for it.

use std::collections::BTreeMap;
use tenure_core::{Answer, Epoch, SeatAnswer, SeatState, Version};

#[derive(Default)]
pub(crate) struct SeatEdits {
    /// When an incarnation of a node first saw a holder's incarnation in an epoch.
    holders: BTreeMap<(u64, u64, Epoch), u64>,
    /// When an incarnation of a node first saw a seat, held or vacant.
    first: BTreeMap<u64, u64>,
    /// The version an incarnation of a node saw last, and since when.
    last: BTreeMap<u64, (Version, u64)>,
    /// The only time the seat was changed by hand, if it was only deleted.
    pub(crate) deleted_once: Option<u64>,
    /// A record that was put back by hand under its former version, and when.
    put_back: Option<(Version, u64)>,
}

impl SeatEdits {
    /// An incarnation of a node receives this answer.
    pub(crate) fn hear(&mut self, now: u64, life: u64, answer: &Answer) {
        match answer {
            Answer::Seat(SeatAnswer::Found { seat, version, .. }) => {
                self.first.entry(life).or_insert(now);
                if seat.state == SeatState::Held {
                    self.holders.entry((life, seat.holder.incarnation.0, seat.epoch)).or_insert(now);
                }
                self.last.insert(life, (version.clone(), now));
            }
            Answer::Seat(SeatAnswer::Absent | SeatAnswer::Unreadable { .. }) => {
                self.last.remove(&life);
            }
            Answer::Seat(SeatAnswer::Unchanged | SeatAnswer::Unavailable | SeatAnswer::Denied)
            | Answer::SeatWritten(_)
            | Answer::Probe(_)
            | Answer::PresenceWritten(_)
            | Answer::PresenceRemoved
            | Answer::Nodes(_) => {}
        }
    }

    pub(crate) fn put_back(&mut self, now: u64, version: Version) {
        self.put_back = Some((version, now));
    }

    /// A node at rest starts again with only what it must never forget.
    pub(crate) fn forget(&mut self, life: u64) {
        self.holders.retain(|(seer, _, _), _| *seer != life);
        self.last.remove(&life);
    }

    /// Nodes that saw this holder in this epoch saw an earlier claim of it.
    pub(crate) fn forget_holder(&mut self, holder: u64, epoch: Epoch) {
        self.holders.retain(|(_, life, of), _| (*life, *of) != (holder, epoch));
    }

    /// Whether an incarnation of a node saw this holder before this time.
    pub(crate) fn saw_holder(&self, life: u64, holder: u64, epoch: Epoch, before: u64) -> bool {
        self.holders.get(&(life, holder, epoch)).is_some_and(|at| *at < before)
    }

    /// Whether it had seen any seat before the seat was deleted, if nothing else was done to it.
    pub(crate) fn saw_it_vanish(&self, life: u64) -> bool {
        self.deleted_once.zip(self.first.get(&life)).is_some_and(|(deleted, saw)| *saw < deleted)
    }

    /// Whether the very record that it saw last was put back: it never saw what was written in between, and to it the seat stood
    /// still.
    pub(crate) fn is_deceived(&self, life: u64) -> bool {
        let same = |((version, since), (back, at)): (&(Version, u64), &(Version, u64))| {
            version == back && since < at
        };
        self.last.get(&life).zip(self.put_back.as_ref()).is_some_and(same)
    }
}
