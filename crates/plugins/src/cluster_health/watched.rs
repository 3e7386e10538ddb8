//! One node under watch: when its presence last changed, and what follows from its silence.

use super::assessment::{AssessmentConfig, Facts};
use super::document::{NodeHealth, NodeState, Told};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Watched {
    pub(super) state: NodeState,
    pub(super) told: Option<Told>,
    pub(super) modified: u64,
    /// This leader has found it on a list.
    pub(super) listed: bool,
    /// It has neither been seen alive nor watched for long enough.
    pub(super) undecided: bool,
    /// When its presence last changed, or its watch began.
    pub(super) changed_ms: u64,
    pub(super) flaps: u32,
    pub(super) flapped_ms: u64,
    /// Since when a flapping node has been steady.
    pub(super) steady_ms: Option<u64>,
    /// When it went down or left, as far as this leader knows.
    pub(super) ended_ms: u64,
    pub(super) forgotten: bool,
    pub(super) facts: Option<Facts>,
    pub(super) read_ms: Option<u64>,
    /// Its count of slow heartbeats rose between the last two reads.
    pub(super) contended: bool,
}

impl Watched {
    pub(super) fn new(state: NodeState, told: Option<Told>, modified: u64, now_ms: u64) -> Watched {
        Watched {
            state,
            told,
            modified,
            listed: true,
            undecided: false,
            changed_ms: now_ms,
            flaps: 0,
            flapped_ms: now_ms,
            steady_ms: None,
            ended_ms: now_ms,
            forgotten: false,
            facts: None,
            read_ms: None,
            contended: false,
        }
    }

    pub(super) fn inherited(row: &NodeHealth) -> Watched {
        let facts = row.incarnation.clone().map(|incarnation| Facts {
            incarnation,
            version: row.version.clone().unwrap_or_default(),
            ..Facts::default()
        });
        Watched {
            listed: false,
            flaps: row.flaps,
            forgotten: row.forgotten,
            facts,
            ..Watched::new(row.state, row.told, row.last_seen, 0)
        }
    }

    /// It went down and has not been announced as back: it is held as `suspect`.
    pub(super) fn is_held(&self) -> bool {
        self.state == NodeState::Suspect && self.told == Some(Told::Down)
    }

    pub(super) fn learn(&mut self, now_ms: u64, facts: Facts) {
        let same = self.facts.as_ref().filter(|before| before.incarnation == facts.incarnation);
        // A field missing from an inherited row must not look like a rise.
        self.contended =
            self.read_ms.is_some() && same.is_some_and(|before| facts.contention > before.contention);
        (self.facts, self.read_ms) = (Some(facts), Some(now_ms));
    }

    pub(super) fn lives(&mut self, config: &AssessmentConfig, now_ms: u64) {
        self.changed_ms = now_ms;
        (self.forgotten, self.undecided) = (false, false);
        let flaps = self.told == Some(Told::Down) && self.flaps >= 2;
        if flaps && now_ms.saturating_sub(*self.steady_ms.get_or_insert(now_ms)) < config.flap_hold_ms {
            self.state = NodeState::Suspect;
            return;
        }
        (self.state, self.told, self.steady_ms) = (NodeState::Up, Some(Told::Up), None);
        if now_ms.saturating_sub(self.flapped_ms) >= config.flap_window_ms {
            self.flaps = 0;
        }
    }

    pub(super) fn is_down(&mut self, config: &AssessmentConfig, now_ms: u64) {
        let again = now_ms.saturating_sub(self.flapped_ms) < config.flap_window_ms;
        self.flaps = if again { self.flaps.saturating_add(1) } else { 1 };
        (self.flapped_ms, self.ended_ms, self.steady_ms) = (now_ms, now_ms, None);
        (self.state, self.told, self.undecided) = (NodeState::Down, Some(Told::Down), false);
    }

    pub(super) fn is_silent(&mut self, config: &AssessmentConfig, sent_ms: u64, now_ms: u64) {
        let silent_ms = sent_ms.saturating_sub(self.changed_ms);
        if self.state == NodeState::Down {
            self.forgotten |= now_ms.saturating_sub(self.ended_ms) >= config.retention_ms;
        } else if silent_ms >= config.down_ms {
            self.is_down(config, now_ms);
        } else if silent_ms >= config.suspect_ms {
            (self.state, self.steady_ms) = (NodeState::Suspect, None);
        }
    }
}
