//! What must hold for the processes of leaders.

use super::name;
use crate::shell::Who;
use crate::world::World;
use tenure_core::Epoch;

impl World {
    /// The supervision says that leadership in this epoch is over.
    pub(crate) fn check_released(&mut self, who: Who, epoch: Epoch) {
        let Who::Node(node) = who else { return };
        let Some(processes) = &self.nodes[node].processes else { return };
        let running = processes.running().find(|one| one.epoch == epoch && !one.aborted);
        if let Some(number) = running.map(|one| one.number) {
            self.violated(name::ENDED_FIRST, || {
                format!("{node} says that {epoch:?} is over, and instance {number} runs")
            });
        }
    }

    /// Nothing runs past the lease, except what was aborted and ignores that.
    pub(crate) fn check_guarded(&mut self, who: Who) {
        let Who::Node(node) = who else { return };
        let target = &self.nodes[node];
        let local = target.computer.clock.local(self.now);
        let acting = target.acting.filter(|acting| local < acting.deadline).map(|acting| acting.epoch);
        let Some(processes) = &target.processes else { return };
        let running = processes.running().find(|one| !one.aborted && acting != Some(one.epoch));
        if let Some((number, epoch)) = running.map(|one| (one.number, one.epoch)) {
            self.violated(name::GUARDED, || {
                format!("instance {number} of {epoch:?} runs on {node}, and its lease is over")
            });
        }
    }

    /// A node's work begins: nothing of an earlier epoch may run on another computer that is awake.
    pub(crate) fn check_processes_over(&mut self, leader: usize, epoch: Epoch) {
        if self.clocks_beyond_drift || self.seat_edited {
            return;
        }
        let runs = self.nodes.iter().enumerate().position(|(index, node)| {
            let awake = index != leader && node.alive && !node.computer.paused;
            let mut running = node.processes.iter().flat_map(|processes| processes.running());
            awake && running.any(|one| !one.aborted && one.epoch < epoch)
        });
        if let Some(node) = runs {
            self.violated(name::GUARDED, || {
                format!("{leader} leads in {epoch:?}, and processes of an earlier epoch run on {node}")
            });
        }
    }
}
