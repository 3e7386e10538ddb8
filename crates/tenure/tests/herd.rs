//! The herd: many nodes that start at the same moment, as they are shipped, with times taken at the store.

use crate::common::spy::Spy;
use crate::common::{Member, Rig, leaders, sleep_ms};
use std::sync::Arc;
use std::time::Duration;
use tenure::event::EventKind;
use tenure::settings::SettingsBuilder;
use tokio::time::Instant;

const WINDOW_MS: u64 = 100;

/// All of them started at one moment, and that moment.
struct Herd {
    members: Vec<Member>,
    spies: Vec<Arc<Spy>>,
    began: Instant,
}

impl Herd {
    async fn start(
        rig: &Rig,
        names: impl Iterator<Item = String>,
        change: impl Fn(SettingsBuilder) -> SettingsBuilder,
    ) -> Herd {
        let (mut members, mut spies, began) = (Vec::new(), Vec::new(), Instant::now());
        for name in names {
            let (member, spy) = rig.join_spied(&name, &change).await;
            members.push(member);
            spies.push(spy);
        }
        assert_eq!(began.elapsed().as_millis(), 0, "started at one moment");
        Herd { members, spies, began }
    }

    /// When each made its first request, in order, in ms since the start.
    fn first_requests(&self) -> Vec<u64> {
        let since = |spy: &Arc<Spy>| Some((spy.first()? - self.began).as_millis() as u64);
        let mut first: Vec<u64> = self.spies.iter().filter_map(since).collect();
        first.sort_unstable();
        first
    }

    /// The leader renews, the others look, and now and then there is a presence.
    async fn assert_all_heartbeating(&self) {
        let before: Vec<usize> = self.spies.iter().map(|spy| spy.requests()).collect();
        sleep_ms(5000).await;
        for ((member, spy), before) in self.members.iter().zip(&self.spies).zip(before) {
            let beats = spy.requests() - before;
            assert!((3..=6).contains(&beats), "{} made {beats} requests in 5 s", member.node.id());
        }
    }
}

/// The most in any window, wherever it begins: it may as well begin with one of them.
fn peak(times: &[u64]) -> usize {
    let within = |from: &u64| times.iter().filter(|at| (*from..from + WINDOW_MS).contains(at)).count();
    times.iter().map(within).max().unwrap_or(0)
}

/// The wait is uniform and new at every start, so names and numbers make no difference. Draws clump: four or five in 100 ms are
/// usual; more than twelve do not happen in a lifetime (one in 10^9).
#[tokio::test(start_paused = true)]
async fn jh1_fifty_nodes_with_default_jitter_do_not_stampede() {
    for name in ["node-", "web-"] {
        let rig = Rig::new();
        let mut herd =
            Herd::start(&rig, (0..50).map(|index| format!("{name}{index:02}")), |settings| settings).await;
        sleep_ms(5000).await;
        let joined = |member: &mut Member| member.so_far().iter().any(|said| said.kind == EventKind::Joined);
        assert!(leaders(&herd.members).is_empty(), "a first election waits for the last of them");
        sleep_ms(4999).await;
        let first = herd.first_requests();
        assert_eq!(first.len(), 50, "all up within ten seconds");
        assert!(first[49] <= 5000 && first[49] - first[0] > 3000, "over most of five seconds: {first:?}");
        assert!(peak(&first) <= 12, "a burst of {} in {WINDOW_MS} ms: {first:?}", peak(&first));
        assert!(herd.members.iter_mut().all(joined), "everybody is in");
        assert_eq!(leaders(&herd.members), [format!("{name}00")], "exactly one leads");
        herd.assert_all_heartbeating().await;
    }
}

#[tokio::test(start_paused = true)]
async fn jh2_five_nodes_without_jitter_start_at_once_and_elect_sooner() {
    let rig = Rig::new();
    let names = || (0..5).map(|index| format!("node-{index}"));
    let mut herd = Herd::start(&rig, names(), |settings| settings.startup_jitter_max(Duration::ZERO)).await;
    let elected = herd.members[0].became_leader().await;
    let without_ms = herd.began.elapsed().as_millis();
    assert_eq!(herd.first_requests(), [0; 5], "all at once");
    assert_eq!(elected.epoch, 1);
    herd.assert_all_heartbeating().await;
    assert_eq!(leaders(&herd.members), ["node-0"]);

    let mut herd = Herd::start(&Rig::new(), names(), |settings| settings).await;
    herd.members[0].became_leader().await;
    let with_ms = herd.began.elapsed().as_millis();
    assert!(without_ms < 1000 && with_ms >= 5500, "{without_ms} ms without, {with_ms} ms with jitter");
}

#[tokio::test(start_paused = true)]
async fn jh3_two_hundred_nodes_over_fifteen_seconds_are_thirteen_a_second() {
    let rig = Rig::new();
    let herd = Herd::start(&rig, (0..200).map(|index| format!("web-{index}")), |settings| {
        settings.startup_jitter_min(Duration::ZERO).startup_jitter_max(Duration::from_millis(15_000))
    })
    .await;
    sleep_ms(20_000).await;
    let first = herd.first_requests();
    assert_eq!(first.len(), 200);
    // 67 are to be expected in each third; fewer than 25 or more than 110 do not happen in a lifetime.
    for third in 0..3 {
        let in_it = first.iter().filter(|at| **at / 5000 == third).count();
        assert!((25..=110).contains(&in_it), "{in_it} in third {third}: {first:?}");
    }
    assert!(peak(&first) <= 16, "a burst of {} in {WINDOW_MS} ms: {first:?}", peak(&first));
    assert_eq!(leaders(&herd.members).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn js3_a_node_that_stops_and_starts_draws_anew() {
    let rig = Rig::new();
    let mut waits = Vec::new();
    for _ in 0..8 {
        let herd = Herd::start(&rig, ["web-3".to_owned()].into_iter(), |settings| settings).await;
        sleep_ms(10_000).await;
        waits.extend(herd.first_requests());
        for member in herd.members {
            member.node.shutdown().await;
        }
    }
    assert!(waits.iter().all(|wait| *wait <= 5000), "{waits:?}");
    waits.sort_unstable();
    waits.dedup();
    // Five or fewer different ones of eight in 5001: one in 10^10.
    assert!(waits.len() > 5, "a new wait at every start: {waits:?}");
}
