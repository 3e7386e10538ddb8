//! How a node dies, comes back with a new life, stands still and resumes.

use crate::neglect::Neglect;
use crate::node::Gate;
use crate::queue::Happening;
use crate::trace::Noted;
use crate::world::World;
use tenure_core::{Coordinator, Epoch, Holder, Incarnation};

impl World {
    pub(crate) fn crash(&mut self, node: usize) {
        let target = &mut self.nodes[node];
        (target.alive, target.paused, target.acting) = (false, false, None);
        (target.running, target.stopping, target.crash_in) = (false, false, None);
        self.trace.note(self.now, node, || Noted::Crashed);
        for worker in self.workers_on(node) {
            self.crash_worker(worker);
        }
    }

    /// Starts a new life of a dead node.
    pub(crate) fn restart(&mut self, node: usize, random: u64) {
        let life = self.new_life();
        let target = &mut self.nodes[node];
        let me = Holder { node: target.id.clone(), incarnation: Incarnation(life) };
        target.core = Coordinator::new(target.config.clone(), me);
        (target.life, target.alive, target.paused) = (life, true, false);
        (target.acting, target.ended, target.wake, target.lost) = (None, None, None, Epoch(0));
        target.outstanding.clear();
        target.held.clear();
        target.gate = Gate::default();
        self.trace.note(self.now, node, || Noted::Restarted);
        self.new_sweep(node);
        self.new_office(node);
        self.start(node, random);
        for worker in self.workers_on(node) {
            self.begin_worker(worker);
        }
    }

    pub(crate) fn pause(&mut self, node: usize, ms: u64) {
        let (at, life, rate) = (self.now + ms, self.nodes[node].life, self.nodes[node].clock.rate());
        self.nodes[node].paused = true;
        if self.neglect == Some(Neglect::ClockSleeps) {
            if rate > 0 {
                self.nodes[node].awake_rate = rate;
            }
            self.nodes[node].clock.set_rate(self.now, 0);
        }
        self.trace.note(self.now, node, || Noted::Paused(ms));
        self.schedule(at, node, life, Happening::Resume);
    }

    pub(crate) fn resume(&mut self, node: usize) {
        if !std::mem::take(&mut self.nodes[node].paused) {
            return;
        }
        if self.neglect == Some(Neglect::ClockSleeps) {
            let rate = self.nodes[node].awake_rate;
            self.nodes[node].clock.set_rate(self.now, rate);
            self.rearm(node);
        }
        self.trace.note(self.now, node, || Noted::Resumed);
        let mut held = std::mem::take(&mut self.nodes[node].held);
        // What came in during the pause is handled in any order.
        use rand::seq::SliceRandom;
        held.shuffle(&mut self.rng);
        for input in held {
            self.feed(node, input);
        }
        self.resume_sweep(node);
        self.resume_office(node);
        for worker in self.workers_on(node) {
            self.resume_worker(worker);
        }
    }
}
