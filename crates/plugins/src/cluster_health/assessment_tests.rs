//! Tests of the assessment on simulated time.

use super::*;
use crate::cluster_health::document::{Transition, transitions};

const P: u64 = 100;

fn config() -> AssessmentConfig {
    AssessmentConfig {
        suspect_ms: 2 * P,
        down_ms: 3 * P,
        retention_ms: 100 * P,
        calm_ms: 3 * P,
        flap_window_ms: 30 * P,
        flap_hold_ms: 6 * P,
        stall_ms: 50,
        slow_ms: 50,
        refresh_ms: 3 * P,
        rereads: 0,
    }
}

/// An assessment, the presences on a simulated store, and everything that was published and announced.
struct Bench {
    assessment: Assessment,
    now_ms: u64,
    modified: BTreeMap<String, u64>,
    /// How old each presence is, if the store tells its time.
    ages: BTreeMap<String, u64>,
    /// Nodes that lost the seat by falling silent.
    deposed: Vec<String>,
    leader_facts: LeaderFacts,
    last: Option<HealthDocument>,
    told: Vec<Transition>,
}

impl Bench {
    fn new(epoch: u64, last: Option<HealthDocument>, names: &[&str]) -> Bench {
        let assessment = Assessment::new(config(), epoch, "a", last.as_ref());
        let modified = names.iter().map(|name| ((*name).to_owned(), 1)).collect();
        let (ages, deposed) = Default::default();
        Bench {
            assessment,
            now_ms: 5_000,
            modified,
            ages,
            deposed,
            leader_facts: LeaderFacts::default(),
            last,
            told: Vec::new(),
        }
    }

    /// One interval passes in which these nodes write their presence, then a look follows.
    fn tick(&mut self, alive: &[&str]) -> HealthDocument {
        self.now_ms += P;
        for name in alive {
            *self.modified.entry((*name).to_owned()).or_default() += 1;
        }
        self.look(0, true)
    }

    fn look(&mut self, late_ms: u64, answered: bool) -> HealthDocument {
        let listed = |(node, modified): (&String, &u64)| Listed {
            node: node.clone(),
            modified: *modified,
            age_ms: self.ages.get(node).copied(),
            deposed: self.deposed.contains(node),
        };
        let list = answered.then(|| (self.modified.iter().map(listed).collect(), true));
        self.assessment.take_list(Listing { sent_ms: self.now_ms, now_ms: self.now_ms, late_ms, list });
        self.publish()
    }

    fn publish(&mut self) -> HealthDocument {
        let document = self.assessment.assess(self.now_ms, self.leader_facts.clone());
        self.told.extend(transitions(self.last.as_ref(), &document));
        self.last = Some(document.clone());
        document
    }

    fn ticks(&mut self, count: usize, alive: &[&str]) -> HealthDocument {
        (0..count).map(|_| self.tick(alive)).last().expect("at least one")
    }

    fn said(&mut self) -> Vec<String> {
        let say = |told: Transition| match told {
            Transition::NodeUp { node } => format!("+{node}"),
            Transition::NodeDown { node } => format!("-{node}"),
            Transition::HealthChanged { from, to, .. } => format!("{}>{}", from.as_str(), to.as_str()),
        };
        self.told.drain(..).map(say).collect()
    }
}

fn state(document: &HealthDocument, name: &str) -> NodeState {
    document.nodes.iter().find(|row| row.node == name).unwrap_or_else(|| panic!("no {name}")).state
}

fn codes(document: &HealthDocument) -> Vec<&'static str> {
    document.reasons.iter().map(|reason| reason.code.as_str()).collect()
}

#[test]
fn a_new_leader_is_unknown_and_tells_nobody_dead_before_a_full_timeout() {
    let mut bench = Bench::new(1, None, &["a", "b", "c"]);
    for _ in 0..3 {
        let document = bench.tick(&["a", "b"]);
        assert_eq!(document.status, HealthStatus::Unknown);
        assert_ne!(state(&document, "c"), NodeState::Down);
        assert!(codes(&document).contains(&"settling"));
        assert!(!codes(&document).contains(&"no_eligible_standby"), "nobody was watched for long enough");
    }
    assert_eq!(bench.said(), ["+a", "+b"], "a corpse is not told to be up");
    let document = bench.tick(&["a", "b"]);
    assert_eq!((document.status, state(&document, "c")), (HealthStatus::Degraded, NodeState::Down));
    assert_eq!(bench.said(), ["-c", "unknown>degraded"]);
}

#[test]
fn those_who_wrote_lately_need_not_be_watched_first() {
    let mut bench = Bench::new(1, None, &["a", "b", "c"]);
    bench.ages = [("b", P / 2), ("c", 2 * P - 1)].map(|(name, age)| (name.to_owned(), age)).into();
    let document = bench.tick(&["a"]);
    assert_eq!((document.status, codes(&document)), (HealthStatus::Healthy, vec![]));
    assert_eq!(bench.said(), ["+a", "+b", "+c", "unknown>healthy"]);
    let mut bench = Bench::new(1, None, &["a", "b", "c"]);
    bench.ages = [("b", P / 2), ("c", 2 * P)].map(|(name, age)| (name.to_owned(), age)).into();
    let document = bench.tick(&["a"]);
    assert_eq!((document.status, codes(&document)), (HealthStatus::Unknown, vec!["settling"]));
    assert_eq!((state(&document, "b"), state(&document, "c")), (NodeState::Up, NodeState::Suspect));
}

/// Nodes are started one after another: the only thing wrong with the first was that it was alone.
#[test]
fn a_second_node_makes_a_lonely_one_healthy_at_once() {
    let mut bench = Bench::new(1, None, &["a"]);
    let document = bench.tick(&["a"]);
    assert_eq!((document.status, codes(&document)), (HealthStatus::Degraded, vec!["no_eligible_standby"]));
    let document = bench.tick(&["a", "b"]);
    assert_eq!((document.status, codes(&document)), (HealthStatus::Healthy, vec![]));
    assert_eq!(bench.said(), ["+a", "unknown>degraded", "+b", "degraded>healthy"]);
}

/// The seat was taken from it, so nobody needs to watch it first.
#[test]
fn ob2_a_leader_that_fell_silent_is_down_at_once_for_its_successor() {
    let mut first = Bench::new(1, None, &["a", "b", "z"]);
    let document = first.ticks(5, &["a", "b", "z"]);
    let mut next = Bench::new(2, Some(document), &["a", "b", "z"]);
    next.modified = first.modified.clone();
    next.ages = ["b", "z"].map(|name| (name.to_owned(), P)).into();
    next.deposed = vec!["z".to_owned()];
    let document = next.tick(&["a"]);
    assert_eq!((state(&document, "z"), document.status), (NodeState::Down, HealthStatus::Degraded));
    assert_eq!(codes(&document), ["node_down"]);
    assert_eq!(next.said(), ["-z", "healthy>degraded"]);
    next.deposed.clear();
    let document = next.tick(&["a", "b", "z"]);
    assert_eq!(state(&document, "z"), NodeState::Up, "it is back");
}

#[test]
fn two_processes_under_one_id_are_a_reason() {
    let mut bench = Bench::new(1, None, &["a", "b"]);
    bench.ticks(5, &["a", "b"]);
    let twice = Facts { conflict: true, ..Facts::default() };
    bench.assessment.read(bench.now_ms, "b", Some(twice));
    let document = bench.tick(&["a", "b"]);
    assert_eq!((document.status, codes(&document)), (HealthStatus::Degraded, vec!["duplicate_node"]));
}

#[test]
fn silence_is_suspect_then_down_then_forgotten_and_told_once() {
    let mut bench = Bench::new(1, None, &["a", "b", "c"]);
    let document = bench.ticks(5, &["a", "b", "c"]);
    assert_eq!((document.status, document.reasons), (HealthStatus::Healthy, vec![]));
    bench.said();
    assert_eq!(state(&bench.tick(&["a", "b"]), "c"), NodeState::Up);
    assert_eq!(state(&bench.tick(&["a", "b"]), "c"), NodeState::Suspect);
    let document = bench.tick(&["a", "b"]);
    assert_eq!((state(&document, "c"), codes(&document)), (NodeState::Down, vec!["node_down"]));
    assert_eq!(bench.said(), ["-c", "healthy>degraded"]);
    let document = bench.ticks(110, &["a", "b"]);
    assert!(document.visible_nodes().all(|row| row.node != "c"), "it is no longer shown");
    assert_eq!(bench.said(), ["degraded>healthy"], "and told only once");
    // A successor does not announce the forgotten node again either.
    let mut next = Bench { now_ms: 0, ..Bench::new(2, Some(document), &["a", "b", "c"]) };
    next.modified = bench.modified.clone();
    next.ticks(8, &["a", "b"]);
    assert_eq!(next.said(), Vec::<String>::new());
}

#[test]
fn a_successor_goes_on_from_the_last_document() {
    let mut bench = Bench::new(1, None, &["a", "b", "c", "d"]);
    bench.ticks(5, &["a", "b", "c", "d"]);
    let last = bench.ticks(4, &["a", "b", "c"]);
    let modified = bench.modified;
    // Another node leads, and its clock has a different origin. `b` died with the old leader, `d` is still dead.
    let mut next = Bench { now_ms: 70, modified, ..Bench::new(2, Some(last), &[]) };
    for _ in 0..3 {
        let document = next.tick(&["a", "c"]);
        assert_eq!((document.status, document.told), (HealthStatus::Unknown, HealthStatus::Degraded));
        assert_ne!(state(&document, "b"), NodeState::Down);
        assert_eq!(next.said(), Vec::<String>::new());
    }
    next.tick(&["a", "c"]);
    assert_eq!(next.said(), ["-b"], "the status was told to be degraded already");
    next.tick(&["a", "c", "d"]);
    assert_eq!(next.said(), ["+d"]);
}

#[test]
fn one_that_takes_its_presence_away_has_left_and_comes_back() {
    let mut bench = Bench::new(1, None, &["a", "b", "c"]);
    bench.ticks(5, &["a", "b", "c"]);
    bench.said();
    bench.modified.remove("c");
    let document = bench.tick(&["a", "b"]);
    assert_eq!((state(&document, "c"), document.status), (NodeState::Left, HealthStatus::Healthy));
    assert_eq!(bench.said(), Vec::<String>::new(), "no alarm for an orderly leave");
    assert_eq!(state(&bench.tick(&["a", "b", "c"]), "c"), NodeState::Up);
    assert_eq!(bench.said(), ["+c"]);
    bench.modified.remove("c");
    let document = bench.ticks(105, &["a", "b"]);
    assert!(document.nodes.iter().all(|row| row.node != "c"));
}

#[test]
fn a_flapping_node_is_held_until_it_is_steady() {
    let mut bench = Bench::new(1, None, &["a", "b", "c"]);
    bench.ticks(5, &["a", "b", "c"]);
    bench.said();
    bench.ticks(3, &["a", "b"]);
    bench.tick(&["a", "b", "c"]);
    assert_eq!(bench.said(), ["-c", "healthy>degraded", "+c"], "the first return counts at once");
    bench.ticks(3, &["a", "b"]);
    let document = bench.tick(&["a", "b", "c"]);
    assert_eq!((state(&document, "c"), codes(&document)), (NodeState::Suspect, vec!["node_flapping"]));
    bench.ticks(3, &["a", "b", "c"]);
    bench.ticks(4, &["a", "b"]);
    bench.ticks(5, &["a", "b", "c"]);
    assert_eq!(bench.said(), ["-c"], "neither the returns nor the falls between are told");
    bench.ticks(3, &["a", "b", "c"]);
    assert_eq!(bench.said(), ["+c"]);
    assert_eq!(bench.ticks(40, &["a", "b", "c"]).nodes[2].flaps, 0, "and forgiven after the window");
}

#[test]
fn a_status_is_worse_at_once_and_better_only_after_a_calm() {
    let mut bench = Bench::new(1, None, &["a", "b"]);
    bench.ticks(5, &["a", "b"]);
    bench.said();
    let probe = |ok, critical| ProbeHealth { name: "db".to_owned(), ok, critical, detail: "gone".to_owned() };
    bench.leader_facts.probes = vec![probe(false, false)];
    assert_eq!(bench.tick(&["a", "b"]).status, HealthStatus::Degraded);
    bench.leader_facts.probes = vec![probe(false, true)];
    assert_eq!(bench.tick(&["a", "b"]).status, HealthStatus::Critical);
    bench.leader_facts.probes = vec![probe(true, true)];
    for _ in 0..3 {
        let document = bench.tick(&["a", "b"]);
        assert_eq!((document.status, codes(&document)), (HealthStatus::Critical, vec!["recovering"]));
    }
    assert_eq!(bench.tick(&["a", "b"]).status, HealthStatus::Healthy);
    assert_eq!(bench.said(), ["healthy>degraded", "degraded>critical", "critical>healthy"]);
}

#[test]
fn every_reason_is_given_for_its_cause() {
    let mut bench = Bench::new(1, None, &["a", "b", "c"]);
    bench.ticks(5, &["a", "b", "c"]);
    let given = |bench: &mut Bench, change: &dyn Fn(&mut Bench), code: &str| {
        change(bench);
        let document = bench.publish();
        assert!(codes(&document).contains(&code), "{code}: {:?}", document.reasons);
        assert!(document.status >= HealthStatus::Degraded, "{code}");
    };
    given(&mut bench, &|b| b.leader_facts.p99_ms = 50, "slow_store");
    given(&mut bench, &|b| b.leader_facts.facts.contention = 3, "contention");
    given(&mut bench, &|b| b.leader_facts.facts.fallback = 1, "fallback_mode");
    given(&mut bench, &|b| b.leader_facts.workers.down = 1, "worker_down");
    bench.leader_facts = LeaderFacts::default();
    let with = |contention, fallback| Some(Facts { contention, fallback, ..Facts::default() });
    bench.assessment.read(0, "b", with(7, 0));
    assert!(
        bench.publish().reasons.iter().all(|reason| reason.code == ReasonCode::Recovering),
        "a first figure is no rise"
    );
    given(&mut bench, &|b| b.assessment.read(0, "b", with(8, 0)), "contention");
    given(&mut bench, &|b| b.assessment.read(0, "b", with(8, 1)), "fallback_mode");
    given(&mut bench, &|b| drop(b.look(50, true)), "clock_stall");
    given(&mut bench, &|b| drop(b.look(0, false)), "slow_store");
    bench.now_ms += 3 * P;
    assert_eq!(
        bench.look(0, false).status,
        HealthStatus::Unknown,
        "a leader that sees nothing knows nothing"
    );
    let mut alone = Bench::new(1, None, &["a", "b"]);
    let document = alone.ticks(5, &["a"]);
    assert_eq!(
        (document.status, codes(&document)),
        (HealthStatus::Critical, vec!["node_down", "no_eligible_standby"])
    );
    let mut single = Bench::new(1, None, &["a"]);
    assert_eq!(codes(&single.ticks(5, &["a"])), ["no_eligible_standby"]);
}

#[test]
fn time_in_which_the_leader_did_not_run_is_nobodys_silence() {
    let mut bench = Bench::new(1, None, &["a", "b", "c"]);
    bench.ticks(5, &["a", "b", "c"]);
    bench.now_ms += 50 * P;
    let document = bench.look(49 * P, true);
    assert_eq!((state(&document, "b"), state(&document, "c")), (NodeState::Up, NodeState::Up));
}

/// A small seeded generator: the assessment is tested on many histories, and each can be reproduced.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Nodes come, go, fall silent and return; leaders change; lists fail or come late. Throughout: no node is announced as down
/// unless it was silent for a full timeout under one leader's watch, ups and downs alternate, and before its watch is over a
/// leader judges only if it has seen every node alive.
#[test]
fn whatever_happens_the_dead_were_silent_and_each_transition_is_told_once() {
    let names = ["a", "b", "c", "d", "e"];
    for seed in 0..400 {
        let mut random = Random(seed);
        let mut bench = Bench::new(1, None, &names);
        let mut down: BTreeMap<String, bool> = BTreeMap::new();
        let mut wrote: BTreeMap<&str, u64> = BTreeMap::new();
        let (mut alive, mut epoch, mut begun_ms) = (names.map(|_| true), 1, bench.now_ms);
        for _ in 0..200 {
            bench.now_ms += random.below(2 * P) + 1;
            let now_ms = bench.now_ms;
            for (at, name) in names.iter().enumerate().skip(1) {
                match random.below(40) {
                    0 => alive[at] = false,
                    1 | 2 => alive[at] = true,
                    3 => drop(bench.modified.remove(*name)),
                    _ => {}
                }
                if alive[at] {
                    *bench.modified.entry((*name).to_owned()).or_default() += now_ms;
                    wrote.insert(name, now_ms);
                }
            }
            if random.below(30) == 0 {
                epoch += 1;
                bench.assessment = Assessment::new(config(), epoch, "a", bench.last.as_ref());
                begun_ms = now_ms;
            }
            bench.told.clear();
            let late_ms = random.below(20).saturating_sub(18) * 60;
            let document = bench.look(late_ms, random.below(10) > 0);
            if now_ms - begun_ms < 3 * P && document.status != HealthStatus::Unknown {
                let there = document.nodes.iter().filter(|row| row.node != "a" && row.state == NodeState::Up);
                for row in there {
                    assert!(
                        wrote[row.node.as_str()] >= begun_ms,
                        "seed {seed}: {} was not seen to live",
                        row.node
                    );
                }
            }
            for transition in &bench.told {
                match transition {
                    Transition::NodeDown { node } => {
                        let silent_ms = now_ms - wrote.get(node.as_str()).copied().unwrap_or(5_000);
                        assert!(
                            silent_ms >= 3 * P && now_ms - begun_ms >= 3 * P,
                            "seed {seed}: {node} after {silent_ms}"
                        );
                        assert_ne!(
                            down.insert(node.clone(), true),
                            Some(true),
                            "seed {seed}: {node} told twice"
                        );
                    }
                    Transition::NodeUp { node } => {
                        // A node that left in between is announced again; a node last announced as down is announced as up only
                        // if it lived.
                        down.insert(node.clone(), false);
                        assert!(node == "a" || wrote.contains_key(node.as_str()), "seed {seed}: {node}");
                    }
                    Transition::HealthChanged { from, to, .. } => assert_ne!(from, to, "seed {seed}"),
                }
            }
        }
    }
}
