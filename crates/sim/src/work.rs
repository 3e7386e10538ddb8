//! Leader-only work: when it starts and stops, and that no two nodes do any at the same instant.

use crate::check::name;
use crate::fault::FaultKind;
use crate::neglect::Neglect;
use crate::node::{Acting, Work};
use crate::queue::Happening;
use crate::world::{Began, World};
use tenure_core::{Epoch, Input, Time};

impl World {
    pub(crate) fn handed_out(&self, node: usize, deadline: Time) -> Time {
        let late = self.neglect == Some(Neglect::DeadlineDoubled);
        deadline + if late { self.nodes[node].config.hold_ms() } else { 0 }
    }

    pub(crate) fn start_work(&mut self, node: usize, epoch: Epoch, deadline: Time) {
        let (now, unchecked) = (self.now, self.neglect == Some(Neglect::DeadlineUnchecked));
        let deadline = self.handed_out(node, deadline);
        let target = &self.nodes[node];
        let (life, lease_ms, local) = (target.life, target.config.lease_ms, target.clock.local(now));
        if let Some(before) = target.acting.filter(|_| target.acts(now, unchecked)) {
            self.judge.violated(now, name::WORK_APART, || {
                format!("{} starts {epoch:?} beside {:?}", node, before.epoch)
            });
        }
        if epoch <= target.lost {
            self.judge.violated(now, name::LED_ONCE, || format!("{node} leads {epoch:?} again"));
        }
        if deadline <= local {
            self.judge.violated(now, name::LIVE_LEASE, || format!("{node} starts {epoch:?} past its lease"));
        }
        self.judge.leads(now, life, epoch);
        let counts = self.taken_over == epoch && !self.wild && !self.meddled;
        if let Some((last, last_life)) = self.last_leader.filter(|_| counts)
            && (last, last_life) != (node, life)
            && self.nodes[last].life == last_life
            && self.nodes[last].alive
            && let Some(until) = self.nodes[last].acted_until(now)
        {
            let margin = now.saturating_sub(until) * 1000 / lease_ms;
            self.margin = Some(self.margin.map_or(margin, |least| least.min(margin)));
        }
        self.last_leader = Some((node, life));
        if self.began.last().is_none_or(|began| began.epoch != epoch) {
            self.began.push(Began { at: now, node, epoch });
        }
        self.nodes[node].acting = Some(Acting { epoch, deadline, told: false, since: now });
        self.schedule(now + 50, node, life, Happening::Dispatch { epoch });
        self.lead_sweep(node);
        self.check_offices(node, epoch);
        self.nudge_office(node);
    }

    pub(crate) fn stop_work(&mut self, node: usize, epoch: Epoch, by: Time) {
        let (now, neglect) = (self.now, self.neglect);
        let target = &mut self.nodes[node];
        let life = target.life;
        if let Some(acting) = target.acting.as_mut().filter(|acting| acting.epoch == epoch) {
            acting.told = true;
        }
        self.lead_sweep(node);
        if self.staffed {
            return self.close_office(node, epoch);
        }
        let target = &mut self.nodes[node];
        if neglect == Some(Neglect::StoppedToldTooSoon) && target.work != Work::Prompt {
            // The core is told something untrue; the work continues.
            let acting = target.acting;
            self.feed(node, Input::ProcessesStopped { epoch });
            self.nodes[node].acting = acting;
            return;
        }
        match target.work {
            Work::Prompt => self.schedule(now, node, life, Happening::Stopped { epoch }),
            Work::Slow => {
                let last = target.clock.when(by).unwrap_or(now).saturating_sub(2).max(now);
                self.schedule(last, node, life, Happening::Stopped { epoch });
                self.struck.add(FaultKind::SlowWork);
            }
            Work::Stuck => self.struck.add(FaultKind::StuckWork),
        }
    }

    /// Stuck work finally stops; until then its node no longer leads.
    pub(crate) fn free_work(&mut self, node: usize) {
        let target = &mut self.nodes[node];
        // A supervisor reports itself when its processes have stopped.
        if target.work != Work::Stuck || self.staffed {
            return;
        }
        target.work = Work::Prompt;
        if let Some(acting) = target.acting.filter(|acting| acting.told) {
            let (now, life) = (self.now, target.life);
            self.schedule(now, node, life, Happening::Stopped { epoch: acting.epoch });
        }
    }

    /// The nodes that act at this instant.
    pub(crate) fn acting(&self) -> Vec<usize> {
        let unchecked = self.neglect == Some(Neglect::DeadlineUnchecked);
        (0..self.nodes.len()).filter(|index| self.nodes[*index].acts(self.now, unchecked)).collect()
    }

    pub(crate) fn check_node(&mut self, node: usize) {
        let now = self.now;
        let target = &self.nodes[node];
        let local = target.clock.local(now);
        if let Some((epoch, deadline)) = target.core.lease().filter(|(_, deadline)| *deadline <= local) {
            self.judge.violated(now, name::LIVE_LEASE, || {
                format!("{node} leads {epoch:?} at {local:?}, past {deadline:?}")
            });
        }
        let rest = target.config.hold_ms() - target.config.wind_down_ms();
        if let Some(acting) = target.acting.filter(|acting| !acting.told && target.core.lease().is_some())
            && local + rest >= acting.deadline
            && self.neglect.is_none()
        {
            self.judge.violated(now, name::WINDS_DOWN, || {
                format!(
                    "{node} acts in {:?} at {local:?} of {:?} and was not told to stop",
                    acting.epoch, acting.deadline
                )
            });
        }
        self.watch(node);
        if self.nodes.iter().filter(|node| node.acting.is_some()).count() > 1 && !self.wild {
            self.check_apart();
        }
    }

    /// No two nodes act at the same instant. If somebody took the seat away by hand, only nodes that had seen its holder are held
    /// to waiting for it. If it was only deleted, all nodes that had seen a seat are, for an expiry not longer than their own.
    fn check_apart(&mut self) {
        let acting = self.acting();
        if acting.len() < 2 {
            return;
        }
        let epoch = |index: &usize| self.nodes[*index].acting.map_or(Epoch(0), |acting| acting.epoch);
        let since = |index: &usize| self.nodes[*index].acting.map_or(0, |acting| acting.since);
        let newest = acting.iter().copied().max_by_key(since).unwrap_or(acting[0]);
        let oldest = acting.iter().copied().min_by_key(since).unwrap_or(acting[0]);
        let (seer, holder) = (self.nodes[newest].life, self.nodes[oldest].life);
        let seen = self.witnesses.saw_holder(seer, holder, epoch(&oldest), since(&newest))
            && !self.witnesses.is_deceived(seer);
        let expiry_ms = |index: usize| self.nodes[index].config.expiry_ms();
        let could_know = self.witnesses.saw_it_vanish(seer) && expiry_ms(oldest) <= expiry_ms(newest);
        if self.judge.leapt || (self.meddled && !seen && !could_know) {
            return;
        }
        let now = self.now;
        let who: Vec<String> =
            acting.iter().map(|index| format!("{} in {:?}", self.nodes[*index].id, epoch(index))).collect();
        self.judge.violated(now, name::ONE_ACTS, || format!("{who:?} act at once"));
    }
}
