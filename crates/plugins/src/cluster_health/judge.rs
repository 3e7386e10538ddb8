//! The judge: who is there and how the cluster is doing, from what the leader saw. Pure: no IO, and time is an input.
//!
//! A node's silence is counted on the leader's own clock, from the answer that showed its presence changed to the *sending*
//! of the list that shows it unchanged since. Store times are marks: another one means a sign of life. The store's present only
//! shows who wrote lately when a leader begins, so that it need not watch those for a full timeout first.
//!
//! Not promised: a node that lives but cannot write its presence counts as silent.

use super::document::{
    HealthDocument, HealthStatus, NodeHealth, NodeState, ProbeHealth, REASONS_MAX, ROWS_MAX, Reason,
    ReasonCode, Told, VERSION, WorkersHealth,
};
use super::watched::Watched;
use std::collections::BTreeMap;

/// Presences read in one look because they are new or back; the others wait for the next.
const READS_NEW_MAX: usize = 256;

/// The times the judge goes by, in ms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JudgeConfig {
    /// A node unchanged for this long is `suspect`.
    pub suspect_ms: u64,
    /// A node unchanged for this long is `down`. A new leader watches this long before it judges.
    pub down_ms: u64,
    /// A node that is down or left for this long is no longer shown.
    pub retention_ms: u64,
    /// A status gets better only once it has been better for this long.
    pub calm_ms: u64,
    /// A node that goes down twice within this time flaps …
    pub flap_window_ms: u64,
    /// … and must be steady for this long before it is `up` again.
    pub flap_hold_ms: u64,
    /// A look this late means that this process did not get to run.
    pub stall_ms: u64,
    /// Heartbeats whose 99th percentile takes this long mean a slow store.
    pub slow_ms: u64,
    /// How often a document is written at least.
    pub refresh_ms: u64,
    /// Presences read again in each look, the ones read longest ago first.
    pub rereads: usize,
}

/// What one look saw.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Look {
    /// When the list was sent.
    pub sent_ms: u64,
    /// When it was answered.
    pub now_ms: u64,
    /// How much later than due it was sent.
    pub late_ms: u64,
    /// The presences, and whether that is all of them; `None` if there was no answer.
    pub list: Option<(Vec<Listed>, bool)>,
}

/// One presence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Whose.
    pub node: String,
    /// Its mark: when it was written, on the store's clock.
    pub mark: u64,
    /// How long ago that was, if the store says what time it is.
    pub age_ms: Option<u64>,
    /// It lost the seat by falling silent, and has not written since.
    pub deposed: bool,
}

/// What a presence says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// Which life.
    pub incarnation: String,
    /// Which software.
    pub version: String,
    /// Heartbeat cycles that took too long so far.
    pub contention: u64,
    /// Plugins in fallback.
    pub fallback: u64,
    /// Somebody else keeps writing its presence.
    pub conflict: bool,
}

/// What the leader knows besides.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Own {
    /// About itself.
    pub facts: Facts,
    /// The 99th percentile of its heartbeats.
    pub p99_ms: u64,
    /// The workers.
    pub workers: WorkersHealth,
    /// The component probes.
    pub probes: Vec<ProbeHealth>,
}

/// One leader's judge, for one epoch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Judge {
    config: JudgeConfig,
    epoch: u64,
    me: String,
    sequence: u64,
    /// When the first complete list was answered.
    begun_ms: Option<u64>,
    /// A list was cut: whoever is new on the next may not be new.
    cut: bool,
    /// Since when lists are not answered.
    blind_ms: Option<u64>,
    stalled: bool,
    nodes: BTreeMap<String, Watched>,
    status: HealthStatus,
    told: HealthStatus,
    better_ms: Option<u64>,
    /// Nothing was wrong but that nobody could take over.
    lonely: bool,
}

impl Judge {
    /// A judge that goes on where the last document left off.
    pub fn new(config: JudgeConfig, epoch: u64, me: &str, inherited: Option<&HealthDocument>) -> Judge {
        let rows = inherited.map_or(&[][..], |document| &document.nodes);
        Judge {
            config,
            epoch,
            me: me.to_owned(),
            sequence: inherited
                .filter(|document| document.epoch == epoch)
                .map_or(0, |document| document.sequence),
            begun_ms: None,
            cut: inherited.is_some_and(|document| document.cut),
            blind_ms: None,
            stalled: false,
            nodes: rows.iter().map(|row| (row.node.clone(), Watched::inherited(row))).collect(),
            status: HealthStatus::Unknown,
            told: inherited.map_or(HealthStatus::Unknown, |document| document.told),
            better_ms: None,
            lonely: false,
        }
    }

    /// Takes in a list, and says which presences to read.
    pub fn look(&mut self, look: Look) -> Vec<String> {
        let Look { sent_ms, now_ms, late_ms, list } = look;
        self.stalled = late_ms >= self.config.stall_ms;
        if self.stalled {
            // While this process did not run, perhaps nobody on the machine did: that time is nobody's silence.
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
            let read = self.saw(entry, sent_ms, now_ms) && entry.node != self.me;
            if read && wanted.len() < READS_NEW_MAX {
                wanted.push(entry.node.clone());
            }
        }
        if complete {
            self.miss(&entries, now_ms);
            self.begun_ms.get_or_insert(now_ms);
        }
        self.cut = !complete;
        self.i_live(now_ms);
        self.reread(&mut wanted);
        wanted
    }

    /// One line of a list. Whether the presence is worth reading at once.
    fn saw(&mut self, entry: &Listed, sent_ms: u64, now_ms: u64) -> bool {
        let Listed { node: name, mark, age_ms, deposed } = entry;
        let lately = age_ms.is_some_and(|age_ms| age_ms < self.config.suspect_ms);
        let Some(node) = self.nodes.get_mut(name) else {
            // On the first list the living cannot be told from the dead, but for those who wrote lately: the presence of a
            // crashed node stays, and only a change tells. Later lists show who has just come.
            let fresh = (self.begun_ms.is_some() && !self.cut || lately) && !deposed;
            let (state, told) =
                if fresh { (NodeState::Up, Some(Told::Up)) } else { (NodeState::Suspect, None) };
            let mut node = Watched { undecided: !fresh, ..Watched::new(state, told, *mark, now_ms) };
            if *deposed {
                node.is_down(&self.config, now_ms);
            }
            self.nodes.insert(name.to_owned(), node);
            return true;
        };
        let first = !std::mem::replace(&mut node.listed, true);
        let changed = std::mem::replace(&mut node.mark, *mark) != *mark;
        let was = node.state;
        if first {
            (node.changed_ms, node.flapped_ms, node.ended_ms) = (now_ms, now_ms, now_ms);
            node.undecided = !lately && matches!(was, NodeState::Up | NodeState::Suspect);
        }
        if *deposed && was != NodeState::Down {
            node.is_down(&self.config, now_ms);
            return false;
        }
        // The mark of one that was published as down or gone is the one it had then: another is a sign of life. Of one that
        // was up it is no news; its watch begins with this list.
        if changed && (!first || matches!(was, NodeState::Down | NodeState::Left)) || was == NodeState::Left {
            node.lives(&self.config, now_ms);
        } else if !first {
            node.is_silent(&self.config, sent_ms, now_ms);
        }
        node.facts.is_none() && node.read_ms.is_none()
            || (was != NodeState::Up && node.state == NodeState::Up)
            || node.is_held() && was == NodeState::Down
    }

    /// Who is not on a complete list has taken its presence away.
    fn miss(&mut self, entries: &[Listed], now_ms: u64) {
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
                // Somebody cleared a dead one away.
                NodeState::Down => false,
                // Not told as `node_down`: an orderly leave is no alarm, and the document shows it.
                NodeState::Up | NodeState::Suspect => {
                    (node.state, node.told, node.ended_ms) = (NodeState::Left, None, now_ms);
                    true
                }
            }
        });
    }

    /// Whoever judges is there, whatever became of its presence.
    fn i_live(&mut self, now_ms: u64) {
        let fresh = || Watched::new(NodeState::Up, Some(Told::Up), 0, now_ms);
        let me = self.nodes.entry(self.me.clone()).or_insert_with(fresh);
        (me.state, me.told, me.forgotten, me.changed_ms) = (NodeState::Up, Some(Told::Up), false, now_ms);
        (me.steady_ms, me.undecided) = (None, false);
    }

    /// Adds those that were read longest ago, a few in each look: neither size nor time tells a new incarnation, and reading all
    /// of a thousand every time would cost more than the election.
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

    /// A presence was read; `None` if it could not be, or is none.
    pub fn read(&mut self, now_ms: u64, name: &str, facts: Option<Facts>) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        match facts {
            Some(facts) => node.learn(now_ms, facts),
            // Others first; it has its turn again.
            None => node.read_ms = Some(now_ms),
        }
    }

    /// Whether this leader knows of everybody, or has watched for a full timeout.
    pub fn is_settled(&self, now_ms: u64) -> bool {
        let Some(begun_ms) = self.begun_ms else { return false };
        now_ms.saturating_sub(begun_ms) >= self.config.down_ms
            || !self.nodes.values().any(|node| node.undecided && node.state != NodeState::Left)
    }

    /// The document as of now.
    pub fn judge(&mut self, now_ms: u64, own: Own) -> HealthDocument {
        let Own { facts, p99_ms, workers, probes } = own;
        if let Some(me) = self.nodes.get_mut(&self.me) {
            me.learn(now_ms, facts);
        }
        let mut reasons = self.reasons(p99_ms, &workers, &probes);
        let raw = self.raw_status(&reasons, &probes);
        let was_lonely = std::mem::replace(
            &mut self.lonely,
            !reasons.is_empty() && reasons.iter().all(|reason| reason.code == ReasonCode::NoEligibleStandby),
        );
        let blind = self.blind_ms.is_some_and(|ms| now_ms.saturating_sub(ms) >= self.config.down_ms);
        if !self.is_settled(now_ms) {
            // Not told: every hand-over would be told as two changes of health, of which neither happened.
            (self.status, self.better_ms) = (HealthStatus::Unknown, None);
            // Standbys that were not seen to change yet are no sign that there are none.
            reasons.retain(|reason| reason.code != ReasonCode::NoEligibleStandby);
            reasons.insert(
                0,
                Reason::new(
                    ReasonCode::Settling,
                    None,
                    "a new leader watches those it has not seen alive for a full timeout",
                ),
            );
        } else {
            self.damp(now_ms, if blind { HealthStatus::Unknown } else { raw }, was_lonely);
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
            v: VERSION,
            epoch: self.epoch,
            sequence: self.sequence,
            nonce: String::new(),
            refresh: self.config.refresh_ms,
            status: self.status,
            told: self.told,
            reasons,
            nodes,
            cut: cut || self.cut,
            workers,
            probes,
            extra: serde_json::Map::new(),
        }
    }

    /// Worse at once; better only when it has been better for the whole calm. To and from `unknown` at once, and when a second node
    /// has come to one that was alone.
    fn damp(&mut self, now_ms: u64, raw: HealthStatus, was_lonely: bool) {
        let unknown = HealthStatus::Unknown;
        let better = raw < self.status && self.status != unknown;
        let calm = |since_ms: u64| now_ms.saturating_sub(since_ms) >= self.config.calm_ms;
        if !better || was_lonely || calm(*self.better_ms.get_or_insert(now_ms)) {
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
                add(ReasonCode::NodeDown, "its presence did not change for a full timeout");
                continue;
            }
            if node.is_held() {
                add(ReasonCode::NodeFlapping, "it goes up and down; held until it is steady");
            }
            if node.state == NodeState::Left {
                continue;
            }
            if node.facts.as_ref().is_some_and(|facts| facts.fallback > 0) {
                add(ReasonCode::FallbackMode, "the store refuses it the shared seat");
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
            add(ReasonCode::NoEligibleStandby, "nobody could take over");
        }
        if self.stalled {
            add(ReasonCode::ClockStall, "the leader did not get to run in time");
        }
        if self.blind_ms.is_some() {
            add(ReasonCode::SlowStore, "the nodes cannot be listed");
        } else if p99_ms >= self.config.slow_ms {
            add(ReasonCode::SlowStore, "heartbeats take longer than they are apart");
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

    /// The rows, in order of the ids; if not all fit, the dead first, then those that are not well. The dead must not be cut
    /// away: a successor would tell them again.
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
            last_seen: node.mark,
            told: node.told,
            flaps: node.flaps,
            forgotten: node.forgotten,
        };
        (order.into_iter().map(row).collect(), cut)
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
