//! What is wrong, in a sentence or two, the worst first; or that nothing is.

use serde::Serialize;
use tenure_plugins::cluster_health::{HealthStatus, HealthView};
use utoipa::ToSchema;

/// Most reasons spelled out; the rest is counted.
const REASONS: usize = 3;

/// The first thing to read about the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct Headline {
    /// How bad it is.
    pub tone: Tone,
    /// A sentence or two for people.
    pub text: String,
}

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tone {
    /// Nothing is known to be wrong.
    Good,
    /// It works, but something needs attention.
    Warn,
    /// It does not work.
    Bad,
}

/// What a node knows about the cluster at one moment.
#[derive(Clone, Default, Debug)]
pub(crate) struct Facts<'a> {
    /// The node that knows it.
    pub(crate) node: &'a str,
    /// Whether it may lead.
    pub(crate) eligible: bool,
    /// The highest epoch; 0 if nobody ever led.
    pub(crate) epoch: u64,
    pub(crate) leader: Option<LeaderFacts<'a>>,
    /// How long the seat has not changed.
    pub(crate) unchanged_ms: Option<u64>,
    /// How soon the node may claim the seat.
    pub(crate) claims_in_ms: Option<u64>,
    /// Its requests for the election fail.
    pub(crate) store_trouble: bool,
    pub(crate) health: Option<&'a HealthView>,
    /// How many submitted jobs no active worker may run, and why.
    pub(crate) stranded: (u64, &'a str),
}

#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct LeaderFacts<'a> {
    pub(crate) node: &'a str,
    /// It is the node that knows all this, and it may act.
    pub(crate) is_this_node: bool,
    /// How long it may act after a renewal.
    pub(crate) hold_ms: u64,
    /// How long it may still act; known of this node only.
    pub(crate) remaining_ms: Option<u64>,
    pub(crate) asked_to_step_down: bool,
}

impl Headline {
    fn new(tone: Tone, sentences: &[String]) -> Headline {
        Headline { tone, text: sentences.join(" ") }
    }

    pub(crate) fn of(facts: &Facts<'_>) -> Headline {
        let silent_ms = facts.unchanged_ms.unwrap_or(0);
        let leader = facts.leader.filter(|leader| leader.is_this_node || silent_ms <= leader.hold_ms);
        match leader {
            None if facts.store_trouble => {
                let blind = format!("{} cannot tell who leads: its requests to the store fail.", facts.node);
                Headline::new(Tone::Bad, &[blind])
            }
            None if facts.epoch == 0 => {
                let nobody = ["Nobody has led yet.".to_owned()].into_iter().chain(successor(facts));
                Headline::new(Tone::Warn, &nobody.collect::<Vec<_>>())
            }
            None => {
                let since = facts.unchanged_ms.map_or(String::new(), |ms| format!(" for {}", span(ms)));
                let nobody = [format!("No leader{since}.")].into_iter().chain(successor(facts));
                Headline::new(Tone::Bad, &nobody.collect::<Vec<_>>())
            }
            Some(leader) => led(facts, leader),
        }
    }
}

/// Somebody leads.
fn led(facts: &Facts<'_>, leader: LeaderFacts<'_>) -> Headline {
    let mut tone = Tone::Good;
    let mut sentences = Vec::new();
    let silent_ms = facts.unchanged_ms.unwrap_or(0);
    // When a leader that cannot renew stops its work.
    if !leader.is_this_node && silent_ms > leader.hold_ms / 5 * 4 {
        sentences.push(format!("The leader {} has been silent for {}.", leader.node, span(silent_ms)));
        sentences.extend(successor(facts));
    } else if facts.store_trouble {
        let until = leader
            .remaining_ms
            .map_or(String::new(), |ms| format!(", and it leads for at most {} more", span(ms)));
        sentences.push(format!("Requests of {} to the store fail{until}.", facts.node));
    }
    if leader.asked_to_step_down {
        sentences.push(format!("{} was asked to step down.", leader.node));
    }
    match facts.health {
        None => sentences.push("Nobody judges the cluster's health.".to_owned()),
        Some(health) => {
            if health.status == HealthStatus::Critical {
                tone = Tone::Bad;
            }
            let mut reasons: Vec<_> = health.reasons.iter().collect();
            reasons.sort_by_key(|reason| reason.code.rank());
            sentences.extend(reasons.iter().take(REASONS).map(|reason| reason.sentence()));
            if reasons.len() > REASONS {
                sentences.push(format!("And {} more.", reasons.len() - REASONS));
            }
        }
    }
    match facts.stranded {
        (0, _) => {}
        (1, why) => sentences.push(format!("A job waits: {why}.")),
        (count, why) => sentences.push(format!("{count} jobs wait: {why}.")),
    }
    match sentences.is_empty() {
        true => Headline::new(Tone::Good, &["Nothing is wrong.".to_owned()]),
        false if tone == Tone::Bad => Headline::new(Tone::Bad, &sentences),
        false => Headline::new(Tone::Warn, &sentences),
    }
}

/// When this node may take over.
fn successor(facts: &Facts<'_>) -> Option<String> {
    let node = facts.node;
    match facts.claims_in_ms {
        Some(0) => Some(format!("{node} may claim now.")),
        Some(ms) => Some(format!("{node} may claim in {}.", span(ms.max(1000)))),
        None if !facts.eligible => Some(format!("{node} only watches: it may not lead.")),
        None => None,
    }
}

/// A time as somebody would say it: `8 s`, `12 min`, `5 h`, `3 d`.
fn span(ms: u64) -> String {
    const MINUTE: u64 = 60;
    let seconds = ms.saturating_add(500) / 1000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / MINUTE),
        7200..172_800 => format!("{} h", seconds / (60 * MINUTE)),
        _ => format!("{} d", seconds / (24 * 60 * MINUTE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_plugins::cluster_health::{Reason, ReasonCode};

    fn health(status: HealthStatus, reasons: &[(ReasonCode, Option<&str>)]) -> HealthView {
        let namespace = tenure::Namespace::new("test").expect("valid");
        let reason = |(code, subject): &(ReasonCode, Option<&str>)| Reason {
            code: *code,
            subject: subject.map(str::to_owned),
            detail: "something".to_owned(),
        };
        HealthView {
            status,
            reasons: reasons.iter().map(reason).collect(),
            ..HealthView::nothing(&namespace)
        }
    }

    #[test]
    fn what_is_wrong_is_said_the_worst_first() {
        let a = LeaderFacts { node: "pod-a", hold_ms: 5000, ..LeaderFacts::default() };
        let own = LeaderFacts { node: "pod-b", is_this_node: true, remaining_ms: Some(2600), ..a };
        let (well, down) = (
            health(HealthStatus::Healthy, &[]),
            health(
                HealthStatus::Critical,
                &[(ReasonCode::NoEligibleStandby, None), (ReasonCode::NodeDown, Some("pod-c"))],
            ),
        );
        let many = health(
            HealthStatus::Degraded,
            &[
                (ReasonCode::WorkerDown, Some("w1")),
                (ReasonCode::NodeFlapping, Some("pod-c")),
                (ReasonCode::NodeDown, Some("pod-d")),
                (ReasonCode::Contention, Some("pod-c")),
                (ReasonCode::NodeDown, Some("pod-e")),
            ],
        );
        let new = health(HealthStatus::Unknown, &[(ReasonCode::Settling, None)]);
        let led = Facts {
            node: "pod-b",
            eligible: true,
            epoch: 4,
            leader: Some(a),
            unchanged_ms: Some(1400),
            claims_in_ms: Some(7100),
            store_trouble: false,
            health: Some(&well),
            stranded: (0, ""),
        };
        let nobody =
            Facts { leader: None, unchanged_ms: Some(8000), claims_in_ms: Some(1000), ..led.clone() };
        for (facts, tone, text) in [
            (led.clone(), Tone::Good, "Nothing is wrong."),
            (Facts { leader: Some(own), claims_in_ms: None, ..led.clone() }, Tone::Good, "Nothing is wrong."),
            (nobody.clone(), Tone::Bad, "No leader for 8 s. pod-b may claim in 1 s."),
            (
                Facts { claims_in_ms: Some(0), ..nobody.clone() },
                Tone::Bad,
                "No leader for 8 s. pod-b may claim now.",
            ),
            (
                Facts { claims_in_ms: None, eligible: false, ..nobody.clone() },
                Tone::Bad,
                "No leader for 8 s. pod-b only watches: it may not lead.",
            ),
            // It still waits for the expiry, but the leader can no longer act.
            (
                Facts { unchanged_ms: Some(5600), claims_in_ms: Some(2900), ..led.clone() },
                Tone::Bad,
                "No leader for 6 s. pod-b may claim in 3 s.",
            ),
            (Facts { unchanged_ms: None, claims_in_ms: None, ..nobody.clone() }, Tone::Bad, "No leader."),
            (
                Facts { store_trouble: true, ..nobody.clone() },
                Tone::Bad,
                "pod-b cannot tell who leads: its requests to the store fail.",
            ),
            (
                Facts { epoch: 0, unchanged_ms: None, claims_in_ms: Some(2419), ..nobody.clone() },
                Tone::Warn,
                "Nobody has led yet. pod-b may claim in 2 s.",
            ),
            (
                Facts { unchanged_ms: Some(4300), claims_in_ms: Some(4200), ..led.clone() },
                Tone::Warn,
                "The leader pod-a has been silent for 4 s. pod-b may claim in 4 s.",
            ),
            (
                Facts { leader: Some(own), store_trouble: true, ..led.clone() },
                Tone::Warn,
                "Requests of pod-b to the store fail, and it leads for at most 3 s more.",
            ),
            (
                Facts { store_trouble: true, ..led.clone() },
                Tone::Warn,
                "Requests of pod-b to the store fail.",
            ),
            (
                Facts { leader: Some(LeaderFacts { asked_to_step_down: true, ..a }), ..led.clone() },
                Tone::Warn,
                "pod-a was asked to step down.",
            ),
            (
                Facts { health: Some(&down), ..led.clone() },
                Tone::Bad,
                "pod-c is down. No other node could take over.",
            ),
            (
                Facts { health: Some(&many), ..led.clone() },
                Tone::Warn,
                "pod-d is down. pod-e is down. Heartbeats of pod-c take too long. And 2 more.",
            ),
            (
                Facts { health: Some(&new), ..led.clone() },
                Tone::Warn,
                "The leader is new and has not judged the others yet.",
            ),
            (
                Facts { stranded: (1, "no active worker serves queue mail"), ..led.clone() },
                Tone::Warn,
                "A job waits: no active worker serves queue mail.",
            ),
            (
                Facts { stranded: (7, "no active worker takes jobs"), health: Some(&down), ..led.clone() },
                Tone::Bad,
                "pod-c is down. No other node could take over. 7 jobs wait: no active worker takes jobs.",
            ),
            (Facts { health: None, ..led.clone() }, Tone::Warn, "Nobody judges the cluster's health."),
            // Without a leader, what the last one said does not count.
            (
                Facts { health: Some(&down), ..nobody },
                Tone::Bad,
                "No leader for 8 s. pod-b may claim in 1 s.",
            ),
        ] {
            assert_eq!(Headline::of(&facts), Headline { tone, text: text.to_owned() }, "{facts:?}");
        }
    }

    #[test]
    fn times_are_said_as_people_say_them() {
        for (ms, said) in [
            (0, "0 s"),
            (499, "0 s"),
            (7900, "8 s"),
            (119_000, "119 s"),
            (120_000, "2 min"),
            (7_199_000, "119 min"),
            (7_200_000, "2 h"),
            (172_800_000, "2 d"),
            (u64::MAX, "213503982334 d"),
        ] {
            assert_eq!(span(ms), said);
        }
    }
}
