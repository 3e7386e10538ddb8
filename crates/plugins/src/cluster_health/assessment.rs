//! The assessment: decides from what the leader saw which nodes are there and how the cluster is doing. Pure: no IO, and time is an
//! input.
//!
//! The leader measures a node's silence on its own clock, from the answer that showed its presence changed to the *sending* of
//! the list that shows it unchanged since. Store times are only compared: a different one means a sign of life. The store's current
//! time is used once, when a leader begins: it shows who wrote recently, so those nodes need not be watched for a full timeout
//! first.
//!
//! A node that is alive but cannot write its presence counts as silent.

use super::document::{
    HealthDocument, HealthStatus, NodeHealth, NodeState, ProbeHealth, REASONS_MAX, ROWS_MAX, Reason,
    ReasonCode, Told, WorkersHealth,
};
use super::watched::Watched;
use std::collections::BTreeMap;

/// Most presences read in one look because they are new or back; the rest wait for the next look.
const READS_NEW_MAX: usize = 256;

/// The time limits of an assessment, in ms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct AssessmentConfig {
    /// A node whose presence has not changed for this long is `suspect`.
    pub(super) suspect_ms: u64,
    /// A node whose presence has not changed for this long is `down`. A new leader watches this long before it judges.
    pub(super) down_ms: u64,
    /// A node that has been down or gone for this long is no longer shown.
    pub(super) retention_ms: u64,
    /// A status improves only after it has been better for this long.
    pub(super) calm_ms: u64,
    /// A node that goes down twice within this time flaps …
    pub(super) flap_window_ms: u64,
    /// … and must be steady for this long before it is `up` again.
    pub(super) flap_hold_ms: u64,
    /// A look that is this late means that this process was not running.
    pub(super) stall_ms: u64,
    /// A 99th percentile of heartbeats above this means a slow store.
    pub(super) slow_ms: u64,
    /// The longest time between two writes of the document.
    pub(super) refresh_ms: u64,
    /// Presences read again in each look, oldest reading first.
    pub(super) rereads: usize,
}

/// The result of one look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Listing {
    /// When the list request was sent.
    pub(super) sent_ms: u64,
    /// When it was answered.
    pub(super) now_ms: u64,
    /// How late the request was sent.
    pub(super) late_ms: u64,
    /// The presences, and whether the list is complete; `None` if there was no answer.
    pub(super) list: Option<(Vec<Listed>, bool)>,
}

/// One presence in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Listed {
    /// The node it belongs to.
    pub(super) node: String,
    /// When it was written, on the store's clock; only compared.
    pub(super) modified: u64,
    /// How long ago that was, if the store tells its time.
    pub(super) age_ms: Option<u64>,
    /// It lost the seat by falling silent and has not written since.
    pub(super) deposed: bool,
}

/// The contents of a presence.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Facts {
    /// The incarnation.
    pub(super) incarnation: String,
    /// The software version.
    pub(super) version: String,
    /// The number of heartbeat cycles so far that took too long.
    pub(super) contention: u64,
    /// The number of plugins in fallback mode.
    pub(super) fallback: u64,
    /// Another process keeps writing its presence.
    pub(super) conflict: bool,
}

/// What the leader knows beyond the list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct LeaderFacts {
    /// The facts about itself.
    pub(super) facts: Facts,
    /// The 99th percentile of its heartbeats.
    pub(super) p99_ms: u64,
    /// The state of the workers.
    pub(super) workers: WorkersHealth,
    /// The results of the component probes.
    pub(super) probes: Vec<ProbeHealth>,
    /// What is wrong with schedules.
    pub(super) schedules: Vec<Reason>,
}

/// What one leader makes of the cluster, for one epoch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Assessment {
    config: AssessmentConfig,
    epoch: u64,
    me: String,
    sequence: u64,
    /// When the first complete list was answered.
    begun_ms: Option<u64>,
    /// The last list was cut: a node that is new on the next list may not be new.
    cut: bool,
    /// Since when lists have gone unanswered.
    blind_ms: Option<u64>,
    stalled: bool,
    nodes: BTreeMap<String, Watched>,
    status: HealthStatus,
    told: HealthStatus,
    better_ms: Option<u64>,
    /// The only thing wrong was that nobody could take over.
    alone: bool,
}

impl Assessment {
    /// Continues from the last document.
    pub(super) fn new(
        config: AssessmentConfig,
        epoch: u64,
        me: &str,
        inherited: Option<&HealthDocument>,
    ) -> Assessment {
        let rows = inherited.map_or(&[][..], |document| &document.nodes);
        Assessment {
            config,
            epoch,
            me: me.to_owned(),
            sequence: inherited.map_or(0, |document| document.sequence),
            begun_ms: None,
            cut: inherited.is_some_and(|document| document.cut),
            blind_ms: None,
            stalled: false,
            nodes: rows.iter().map(|row| (row.node.clone(), Watched::inherited(row))).collect(),
            status: HealthStatus::Unknown,
            told: inherited.map_or(HealthStatus::Unknown, |document| document.told),
            better_ms: None,
            alone: false,
        }
    }

    /// Takes a list and returns the presences to read.
    pub(super) fn take_list(&mut self, listing: Listing) -> Vec<String> {
        let Listing { sent_ms, now_ms, late_ms, list } = listing;
        self.stalled = late_ms >= self.config.stall_ms;
        if self.stalled {
            // While this process did not run, perhaps nothing on the machine did: that time counts as nobody's silence.
            self.begun_ms = self.begun_ms.map(|ms| (ms + late_ms).min(now_ms));
            self.nodes
                .values_mut()
                .for_each(|node| node.changed_ms = (node.changed_ms + late_ms).min(now_ms));
        }
        let Some((entries, complete)) = list else {
            self.blind_ms.get_or_insert(now_ms);
            return Vec::new();
        };
        self.blind_ms = None;
        let mut wanted = Vec::new();
        for entry in &entries {
            let read = self.take_entry(entry, sent_ms, now_ms) && entry.node != self.me;
            if read && wanted.len() < READS_NEW_MAX {
                wanted.push(entry.node.clone());
            }
        }
        if complete {
            self.take_missing(&entries, now_ms);
            self.begun_ms.get_or_insert(now_ms);
        }
        self.cut = !complete;
        self.note_self(now_ms);
        self.reread(&mut wanted);
        wanted
    }

    /// Handles one entry of a list. Returns whether the presence should be read at once.
    fn take_entry(&mut self, entry: &Listed, sent_ms: u64, now_ms: u64) -> bool {
        let Listed { node: name, modified, age_ms, deposed } = entry;
        let lately = age_ms.is_some_and(|age_ms| age_ms < self.config.suspect_ms);
        let Some(node) = self.nodes.get_mut(name) else {
            // On the first list, the living cannot be told from the dead, except those that wrote recently: the presence of a
            // crashed node stays, and only a change is proof. On later lists, a new entry is a new node.
            let fresh = (self.begun_ms.is_some() && !self.cut || lately) && !deposed;
            let (state, told) =
                if fresh { (NodeState::Up, Some(Told::Up)) } else { (NodeState::Suspect, None) };
            let mut node = Watched { undecided: !fresh, ..Watched::new(state, told, *modified, now_ms) };
            if *deposed {
                node.is_down(&self.config, now_ms);
            }
            self.nodes.insert(name.to_owned(), node);
            return true;
        };
        let first = !std::mem::replace(&mut node.listed, true);
        let changed = std::mem::replace(&mut node.modified, *modified) != *modified;
        let was = node.state;
        if first {
            (node.changed_ms, node.flapped_ms, node.ended_ms) = (now_ms, now_ms, now_ms);
            node.undecided = !lately && matches!(was, NodeState::Up | NodeState::Suspect);
        }
        if *deposed && was != NodeState::Down {
            node.is_down(&self.config, now_ms);
            return false;
        }
        // A node published as down or gone was published with its time of change, so a different one is a sign of life. For a
        // node that was up, a different one says nothing; its watch begins with this list.
        if changed && (!first || matches!(was, NodeState::Down | NodeState::Left)) || was == NodeState::Left {
            node.lives(&self.config, now_ms);
        } else if !first {
            node.is_silent(&self.config, sent_ms, now_ms);
        }
        node.facts.is_none() && node.read_ms.is_none()
            || (was != NodeState::Up && node.state == NodeState::Up)
            || node.is_held() && was == NodeState::Down
    }

    /// A node missing from a complete list has removed its presence.
    fn take_missing(&mut self, entries: &[Listed], now_ms: u64) {
        let listed: std::collections::BTreeSet<&str> =
            entries.iter().map(|entry| entry.node.as_str()).collect();
        let retention_ms = self.config.retention_ms;
        self.nodes.retain(|name, node| {
            if listed.contains(name.as_str()) {
                return true;
            }
            if !std::mem::replace(&mut node.listed, true) {
                node.ended_ms = now_ms;
            }
            match node.state {
                NodeState::Left => now_ms.saturating_sub(node.ended_ms) < retention_ms,
                // Somebody removed a dead node's presence.
                NodeState::Down => false,
                // No `node_down` here: an orderly leave is no alarm, and the document shows it.
                NodeState::Up | NodeState::Suspect => {
                    (node.state, node.told, node.ended_ms) = (NodeState::Left, None, now_ms);
                    true
                }
            }
        });
    }

    /// The judging node is alive, whatever happened to its presence.
    fn note_self(&mut self, now_ms: u64) {
        let fresh = || Watched::new(NodeState::Up, Some(Told::Up), 0, now_ms);
        let me = self.nodes.entry(self.me.clone()).or_insert_with(fresh);
        (me.state, me.told, me.forgotten, me.changed_ms) = (NodeState::Up, Some(Told::Up), false, now_ms);
        (me.steady_ms, me.undecided) = (None, false);
    }

    /// Adds the presences read longest ago, a few in each look. Neither size nor time reveals a new incarnation, and reading a
    /// thousand of them every time would cost more than the election.
    fn reread(&self, wanted: &mut Vec<String>) {
        let mut old: Vec<(Option<u64>, &String)> = self
            .nodes
            .iter()
            .filter(|(name, node)| node.state == NodeState::Up && **name != self.me && !wanted.contains(name))
            .map(|(name, node)| (node.read_ms, name))
            .collect();
        old.sort();
        wanted.extend(old.into_iter().take(self.config.rereads).map(|(_, name)| name.clone()));
    }

    /// Takes what was read from a presence; `None` if it could not be read or is not a presence.
    pub(super) fn read(&mut self, now_ms: u64, name: &str, facts: Option<Facts>) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        match facts {
            Some(facts) => node.learn(now_ms, facts),
            // The others go first; its turn comes again.
            None => node.read_ms = Some(now_ms),
        }
    }

    /// Whether this leader has seen every node alive, or has watched for a full timeout.
    pub(super) fn is_settled(&self, now_ms: u64) -> bool {
        let Some(begun_ms) = self.begun_ms else { return false };
        now_ms.saturating_sub(begun_ms) >= self.config.down_ms
            || !self.nodes.values().any(|node| node.undecided && node.state != NodeState::Left)
    }

    /// Assesses the cluster and returns the document to publish.
    pub(super) fn assess(&mut self, now_ms: u64, leader_facts: LeaderFacts) -> HealthDocument {
        let LeaderFacts { facts, p99_ms, workers, probes, schedules } = leader_facts;
        if let Some(me) = self.nodes.get_mut(&self.me) {
            me.learn(now_ms, facts);
        }
        let mut reasons = self.reasons(p99_ms, &workers, &probes);
        reasons.extend(schedules);
        let raw = self.raw_status(&reasons, &probes);
        let was_alone = std::mem::replace(
            &mut self.alone,
            !reasons.is_empty() && reasons.iter().all(|reason| reason.code == ReasonCode::NoEligibleStandby),
        );
        let blind = self.blind_ms.is_some_and(|ms| now_ms.saturating_sub(ms) >= self.config.down_ms);
        if !self.is_settled(now_ms) {
            // Not announced: otherwise every handover would announce two changes of health that never happened.
            (self.status, self.better_ms) = (HealthStatus::Unknown, None);
            // Standbys that have not been seen to change yet do not prove that there are none.
            reasons.retain(|reason| reason.code != ReasonCode::NoEligibleStandby);
            reasons.insert(
                0,
                Reason::new(
                    ReasonCode::Settling,
                    None,
                    "the leader is new: it watches the others for a full timeout before it judges them",
                ),
            );
        } else {
            self.damp(now_ms, if blind { HealthStatus::Unknown } else { raw }, was_alone);
            self.told = self.status;
            if self.status != raw && !blind {
                reasons.push(Reason::new(
                    ReasonCode::Recovering,
                    None,
                    "better, but not for long enough yet",
                ));
            }
        }
        reasons.truncate(REASONS_MAX);
        self.sequence += 1;
        let (nodes, cut) = self.rows();
        HealthDocument {
            epoch: self.epoch,
            sequence: self.sequence,
            refresh: self.config.refresh_ms,
            status: self.status,
            told: self.told,
            reasons,
            nodes,
            cut: cut || self.cut,
            workers,
            probes,
        }
    }

    /// A status worsens at once and improves only after it has been better for the whole calm period. Changes to and from
    /// `unknown` apply at once, and so does the arrival of a second node beside a alone one.
    fn damp(&mut self, now_ms: u64, raw: HealthStatus, was_alone: bool) {
        let unknown = HealthStatus::Unknown;
        let better = raw < self.status && self.status != unknown;
        let calm = |since_ms: u64| now_ms.saturating_sub(since_ms) >= self.config.calm_ms;
        if !better || was_alone || calm(*self.better_ms.get_or_insert(now_ms)) {
            (self.status, self.better_ms) = (raw, None);
        }
    }

    fn reasons(&self, p99_ms: u64, workers: &WorkersHealth, probes: &[ProbeHealth]) -> Vec<Reason> {
        let mut found = Vec::new();
        let mut standby = false;
        for (name, node) in self.nodes.iter().filter(|(_, node)| !node.forgotten) {
            let mut add = |code, detail: &str| found.push(Reason::new(code, Some(name), detail));
            standby |= *name != self.me && node.told == Some(Told::Up);
            if node.state == NodeState::Down {
                add(ReasonCode::NodeDown, "it has fallen silent");
                continue;
            }
            if node.is_held() {
                add(ReasonCode::NodeFlapping, "it keeps going up and down; suspect until it is steady");
            }
            if node.state == NodeState::Left {
                continue;
            }
            if node.facts.as_ref().is_some_and(|facts| facts.fallback > 0) {
                add(ReasonCode::FallbackMode, "the store denies it the shared seat");
            }
            if node.facts.as_ref().is_some_and(|facts| facts.conflict) {
                add(ReasonCode::DuplicateNode, "two processes run under this id");
            }
            if node.contended {
                add(ReasonCode::Contention, "heartbeats took too long");
            }
        }
        let mut add = |code, detail: &str| found.push(Reason::new(code, None, detail));
        if !standby {
            add(ReasonCode::NoEligibleStandby, "no other node could take over");
        }
        if self.stalled {
            add(ReasonCode::ClockStall, "the leader did not get to run in time");
        }
        if self.blind_ms.is_some() {
            add(ReasonCode::SlowStore, "the nodes cannot be listed");
        } else if p99_ms >= self.config.slow_ms {
            add(ReasonCode::SlowStore, "heartbeats take longer than the heartbeat interval");
        }
        found.extend(workers.silent());
        for probe in probes.iter().filter(|probe| !probe.ok) {
            found.push(Reason::new(ReasonCode::ProbeFailed, Some(&probe.name), &probe.detail));
        }
        found
    }

    fn raw_status(&self, reasons: &[Reason], probes: &[ProbeHealth]) -> HealthStatus {
        let has = |code| reasons.iter().any(|reason| reason.code == code);
        let lost = has(ReasonCode::NodeDown) && has(ReasonCode::NoEligibleStandby);
        if lost || probes.iter().any(|probe| !probe.ok && probe.critical) {
            HealthStatus::Critical
        } else if reasons.is_empty() {
            HealthStatus::Healthy
        } else {
            HealthStatus::Degraded
        }
    }

    /// The rows, sorted by id. If not all fit, dead nodes stay first, then those that are not well. Dead nodes must not be cut: a
    /// successor would announce them again.
    fn rows(&self) -> (Vec<NodeHealth>, bool) {
        let mut order: Vec<(&String, &Watched)> = self.nodes.iter().collect();
        let cut = order.len() > ROWS_MAX;
        if cut {
            order.sort_by_key(|(name, node)| {
                let rank = match node.state {
                    NodeState::Down => 0,
                    NodeState::Suspect => 1,
                    NodeState::Left => 2,
                    NodeState::Up => 3,
                };
                (rank, *name)
            });
            order.truncate(ROWS_MAX);
            order.sort_by_key(|(name, _)| *name);
        }
        let row = |(name, node): (&String, &Watched)| NodeHealth {
            node: name.clone(),
            state: node.state,
            role: if *name == self.me { "leader" } else { "standby" }.to_owned(),
            incarnation: node.facts.as_ref().map(|facts| facts.incarnation.clone()),
            version: node.facts.as_ref().map(|facts| facts.version.clone()),
            last_seen: node.modified,
            told: node.told,
            flaps: node.flaps,
            forgotten: node.forgotten,
        };
        (order.into_iter().map(row).collect(), cut)
    }
}

#[cfg(test)]
#[path = "assessment_tests.rs"]
mod tests;
