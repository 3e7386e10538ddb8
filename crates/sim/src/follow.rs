//! The other side of a desk: reads what the leader published, and reports what is new in it.

use crate::neglect::Neglect;
use crate::wire::{Ask, Put, SnapshotRead};
use crate::world::World;
use tenure_core::Snapshot;

impl World {
    pub(crate) fn look(&mut self, node: usize) {
        let desk = &mut self.desks[node];
        if desk.tenure.is_some() || desk.reading.is_some() {
            desk.look_again = desk.reading.is_some();
            return;
        }
        match desk.sight {
            None => {}
            Some(None) => desk.bulletin.begin_empty(),
            Some(Some((mark, _))) if desk.bulletin.applied() < Some(mark) => {
                let id = self.desk_ask(node, Ask::Snapshot);
                self.desks[node].reading = Some(id);
            }
            Some(Some(_)) => {}
        }
    }

    pub(crate) fn caught_up(&mut self, node: usize, read: SnapshotRead) {
        match read {
            SnapshotRead::Found(_, content) => {
                self.desks[node].failures = 0;
                if let Some((snapshot, _)) = content {
                    self.apply(node, &snapshot);
                }
            }
            SnapshotRead::Absent => self.desks[node].failures = 0,
            SnapshotRead::Unavailable => {
                let desk = &mut self.desks[node];
                desk.failures += 1;
                desk.ticket += 1;
                let (wait, ticket) = (1000 << desk.failures.min(5), desk.ticket);
                let at = self.nodes[node].clock.local(self.now) + wait;
                self.desk_due(node, at, ticket);
            }
        }
    }

    pub(crate) fn apply(&mut self, node: usize, snapshot: &Snapshot) {
        let events = self.desks[node].bulletin.apply(snapshot);
        for event in events {
            self.trace.worker(self.now, node, &event);
            let (now, id) = (self.now, &self.nodes[node].id);
            self.trace.say(now, || format!("{id} tells {} {:?}", event.worker, event.change));
            self.check_told(node, snapshot, &event);
        }
        if self.staffed {
            self.tell_bureau(node);
        }
    }

    /// A snapshot lands.
    pub(crate) fn land_snapshot(&mut self, snapshot: &Snapshot, writer: u64, expect: Option<u64>) -> Put {
        let before = self.registry.snapshot.as_ref().and_then(|there| there.content.as_ref());
        let before = before.map(|(snapshot, _)| snapshot.clone());
        let careless = self.neglect == Some(Neglect::SnapshotUnconditional);
        let expect = if careless { None } else { Some(expect) };
        match self.registry.publish(expect, Some((snapshot.clone(), writer))) {
            None => Put::Lost,
            Some(version) => {
                self.trace.say(self.now, || format!("== snapshot {:?} is published", snapshot.id));
                self.check_published(before.as_ref(), snapshot);
                Put::Won(version)
            }
        }
    }
}
