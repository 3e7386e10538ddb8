//! What callers may ask a coordinator, while it goes through an election.

use crate::world::World;
use tenure_core::{
    ElectionCause, Epoch, GaveUp, Input, NodeId, ProcessOutcome, ProcessState, Role, Time, Version,
};

fn started() -> World {
    let config = tenure_core::Config { startup_jitter_max_ms: 0, ..tenure_core::Config::default() };
    let mut world = World::new();
    for name in ["pod-a", "pod-b"] {
        world.add(name, config.clone());
        world.input(name, Input::Start { random: 0 });
    }
    world
}

fn leader(world: &mut World, name: &str) -> Option<(String, u64)> {
    world.node(name).core.leader().map(|(node, epoch)| (node.to_string(), epoch.0))
}

#[test]
fn nobody_is_known_before_the_election_and_everybody_agrees_after_it() {
    let mut world = started();
    assert_eq!(leader(&mut world, "pod-a"), None);
    assert_eq!(world.node("pod-a").core.highest_epoch(), Epoch(0));
    world.run_until(3000);
    for name in ["pod-a", "pod-b"] {
        assert_eq!(leader(&mut world, name), Some(("pod-a".to_owned(), 1)));
        assert_eq!(world.node(name).core.highest_epoch(), Epoch(1));
        assert_eq!(world.node(name).core.election(), None, "{name} has nothing to elect");
    }
    assert_eq!(world.node("pod-a").core.role(), Some(Role::Leader));
    assert_eq!(world.node("pod-b").core.me().node, NodeId::new("pod-b").expect("valid"));
}

#[test]
fn the_next_heartbeat_is_known() {
    let mut world = started();
    assert_eq!(world.node("pod-a").core.heartbeat_due(), None, "it does not stand by yet");
    world.run_until(3000);
    // Led since the claim sent at 580; looked at 40 and every second after it.
    assert_eq!(world.node("pod-a").core.heartbeat_due(), Some(Time(3580)));
    assert_eq!(world.node("pod-b").core.heartbeat_due(), Some(Time(3040)));
}

#[test]
fn an_election_is_seen_with_its_cause_while_it_lasts() {
    let mut world = started();
    world.run_until(3000);
    world.crash("pod-a");
    world.run_until(10_600);
    assert_eq!(world.node("pod-b").core.election(), Some((ElectionCause::LeaderDown, Time(11_580))));
    assert_eq!(leader(&mut world, "pod-b"), None, "it has been silent for its expiry");
    world.run_until(13_000);
    assert_eq!(world.node("pod-b").core.election(), None);
    assert_eq!(leader(&mut world, "pod-b"), Some(("pod-b".to_owned(), 2)));
}

#[test]
fn words_on_the_wire_are_what_the_reference_says() {
    use ProcessOutcome::{Aborted, Done, Failed, Panicked};
    assert_eq!(
        [Done, Failed, Panicked, Aborted].map(ProcessOutcome::as_str),
        ["done", "failed", "panicked", "aborted"]
    );
    let causes = [GaveUp::Intensity, GaveUp::CannotStart, GaveUp::StillStuck];
    assert_eq!(causes.map(GaveUp::as_str), ["restart intensity", "cannot start", "still stuck"]);
    use ProcessState::{Ended, Idle, Running, Starting, Stopping, Stuck, Waiting};
    assert_eq!(
        [Idle, Starting, Running, Waiting, Stopping, Stuck, Ended].map(ProcessState::as_str),
        ["idle", "starting", "running", "waiting", "stopping", "stuck", "ended"]
    );
    assert_eq!(Version::new("\"abc\"").as_str(), "\"abc\"");
}
