//! What changed between two looks. Pure.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use tenure::Settings;
use tenure::admin::Status;
use tenure::worker::WorkerRow;

/// A namespace at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sight {
    /// `None` if the store does not exist yet.
    pub(crate) status: Option<Status>,
    pub(crate) workers: Vec<WorkerRow>,
}

impl Sight {
    pub(crate) fn json(&self, settings: &Settings) -> Value {
        let (namespace, store) = (&settings.namespace, settings.store.to_string());
        match &self.status {
            Some(status) => json!({"event": "seen", "status": status, "workers": self.workers}),
            None => {
                json!({"event": "seen", "status": {"namespace": namespace, "store": store, "epoch": 0, "leader": null, "nodes": []}, "workers": []})
            }
        }
    }

    fn epoch(&self) -> u64 {
        self.status.as_ref().map_or(0, |status| status.epoch)
    }

    /// The holder of the seat, and whether it was seen to renew.
    fn leader(&self) -> Option<(&str, bool)> {
        let leader = self.status.as_ref()?.leader.as_ref()?;
        Some((leader.node.as_str(), leader.live))
    }

    fn nodes(&self) -> BTreeMap<&str, &'static str> {
        let nodes = self.status.iter().flat_map(|status| &status.nodes);
        nodes.map(|node| (node.node.as_str(), if node.role == "gone" { "gone" } else { "there" })).collect()
    }

    fn workers(&self) -> BTreeMap<&str, &'static str> {
        self.workers.iter().map(|worker| (worker.worker_id.as_str(), worker.state.as_str())).collect()
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct News {
    event: &'static str,
    who: String,
    detail: String,
    epoch: u64,
}

impl News {
    fn new(event: &'static str, who: &str, detail: impl Into<String>, epoch: u64) -> News {
        News { event, who: who.to_owned(), detail: detail.into(), epoch }
    }

    /// A look that failed.
    pub(crate) fn trouble(words: &str) -> News {
        News::new("store_trouble", "", words, 0)
    }

    pub(crate) fn json(&self) -> Value {
        json!({"event": self.event, "who": self.who, "detail": self.detail, "epoch": self.epoch})
    }
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [self.event, &self.who, &self.detail];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        f.write_str(&words.join("  "))
    }
}

/// What changed, the leader first.
pub(crate) fn between(before: &Sight, now: &Sight) -> Vec<News> {
    let epoch = now.epoch();
    let mut news = Vec::new();
    match (before.leader(), now.leader()) {
        (old, Some((node, _))) if epoch > before.epoch() || old.is_none() => {
            let detail = match old {
                Some((old, _)) if old != node => format!("epoch {epoch}, before: {old}"),
                Some(_) | None => format!("epoch {epoch}"),
            };
            news.push(News::new("leader_changed", node, detail, epoch));
        }
        (Some((_, true)), Some((node, false))) => {
            news.push(News::new("leader_silent", node, "no renewal seen", epoch));
        }
        (Some((_, false)), Some((node, true))) => news.push(News::new("leader_recovered", node, "", epoch)),
        (Some((node, _)), None) => news.push(News::new("seat_vacant", node, "left it", epoch)),
        (Some(_), Some(_)) | (None, Some(_)) | (None, None) => {}
    }
    news.extend(moved(&before.nodes(), &now.nodes(), ["node_joined", "node_changed", "node_left"], epoch));
    let names = ["worker_registered", "worker_changed", "worker_removed"];
    news.extend(moved(&before.workers(), &now.workers(), names, epoch));
    news
}

/// Who came, who is another way now, who went.
fn moved(
    before: &BTreeMap<&str, &'static str>,
    now: &BTreeMap<&str, &'static str>,
    [came, changed, went]: [&'static str; 3],
    epoch: u64,
) -> Vec<News> {
    let mut news = Vec::new();
    for (who, state) in now {
        match before.get(who) {
            None => news.push(News::new(came, who, *state, epoch)),
            Some(old) if old != state => {
                news.push(News::new(changed, who, format!("{old} → {state}"), epoch))
            }
            Some(_) => {}
        }
    }
    let gone = before.keys().filter(|who| !now.contains_key(*who));
    news.extend(gone.map(|who| News::new(went, who, "", epoch)));
    news
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tenure::admin::{LeaderStatus, NodeStatus};

    pub(crate) fn sight(epoch: u64, leader: Option<(&str, bool)>, nodes: &[(&str, &'static str)]) -> Sight {
        let leader = leader.map(|(node, live)| LeaderStatus {
            node: node.to_owned(),
            incarnation: "1".to_owned(),
            since: None,
            lease_hold: 5000,
            lease_expiry: 7500,
            renewals: 7,
            asked_to_step_down: false,
            live,
            watched_ms: 2500,
        });
        let node = |&(node, role): &(&str, &'static str)| NodeStatus {
            node: node.to_owned(),
            role,
            last_seen_ms_ago: 0,
        };
        let nodes = nodes.iter().map(node).collect();
        let status = Status { namespace: "n".to_owned(), store: "s".to_owned(), epoch, leader, nodes };
        Sight { status: Some(status), workers: Vec::new() }
    }

    fn told(before: &Sight, now: &Sight) -> Vec<String> {
        between(before, now).iter().map(News::to_string).collect()
    }

    #[test]
    fn a_change_of_leaders_is_told_once_with_both_names() {
        let old = sight(1, Some(("a", true)), &[("a", "leader"), ("b", "standby")]);
        let new = sight(2, Some(("b", true)), &[("a", "gone"), ("b", "leader")]);
        assert_eq!(
            told(&old, &new),
            ["leader_changed  b  epoch 2, before: a", "node_changed  a  there → gone"]
        );
        assert_eq!(told(&new, &new), [""; 0]);
        // The same node in another epoch is news, too.
        assert_eq!(
            told(&old, &sight(2, Some(("a", true)), &[("a", "leader"), ("b", "standby")])),
            ["leader_changed  a  epoch 2"]
        );
    }

    #[test]
    fn a_leader_that_is_silent_or_leaves_is_told_and_so_is_its_return() {
        let (live, silent) = (sight(1, Some(("a", true)), &[]), sight(1, Some(("a", false)), &[]));
        assert_eq!(told(&live, &silent), ["leader_silent  a  no renewal seen"]);
        assert_eq!(told(&silent, &live), ["leader_recovered  a"]);
        assert_eq!(told(&live, &sight(1, None, &[])), ["seat_vacant  a  left it"]);
        assert_eq!(told(&Sight::default(), &live), ["leader_changed  a  epoch 1"]);
    }

    #[test]
    fn nodes_come_and_go() {
        let (one, two) = (sight(1, None, &[("a", "standby")]), sight(1, None, &[("b", "standby")]));
        assert_eq!(told(&one, &two), ["node_joined  b  there", "node_left  a"]);
        assert_eq!(between(&one, &two)[0].json()["event"], "node_joined");
    }
}
