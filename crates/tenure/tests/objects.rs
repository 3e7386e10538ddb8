//! Foreign, corrupt and newer objects on the store: reported, left alone, never a panic.

use crate::common::{Rig, sleep_ms};
use tenure::event::EventKind;
use tenure::store::{Condition, Read, Store, Write};

const SEAT: &str = "plg_coordinator_global/test/seat.json";

async fn put(rig: &Rig, key: &str, body: &'static [u8]) {
    let answer = rig.store.put(key, body.into(), Condition::Any).await;
    assert!(matches!(answer, Write::Won(_)), "{answer:?}");
}

async fn get(rig: &Rig, key: &str) -> Vec<u8> {
    let read = rig.store.get(key, None).await;
    let Read::Found(object) = read else { panic!("{read:?}") };
    object.body.to_vec()
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_seat_is_reported_once_and_left_alone() {
    for body in [&b"not a seat"[..], b"{\"v\":2,\"epoch\":7}", b"", b"{\"v\":1}", &[0xff; 70_000]] {
        let rig = Rig::new();
        put(&rig, SEAT, body).await;
        let mut a = rig.join("pod-a").await;
        sleep_ms(60_000).await;
        let reports =
            a.so_far().into_iter().filter(|e| matches!(e.kind, EventKind::SeatUnreadable { .. })).count();
        assert_eq!(reports, 1);
        assert!(!a.leads());
        assert_eq!(get(&rig, SEAT).await, body, "nothing was written over it");
        // Once somebody has removed it, life goes on in the same process.
        rig.store.remove(SEAT).await;
        a.became_leader().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_seat_under_a_leader_ends_its_tenure_by_the_deadline() {
    let rig = Rig::new();
    let mut a = rig.join("pod-a").await;
    a.became_leader().await;
    put(&rig, SEAT, b"garbage").await;
    let lost = a.lost_leadership().await.to_json();
    assert_eq!(lost["reason"], "seat unreadable");
    sleep_ms(30_000).await;
    assert_eq!(get(&rig, SEAT).await, b"garbage");
}

#[tokio::test(start_paused = true)]
async fn foreign_objects_among_the_presences_cost_nothing() {
    let rig = Rig::new();
    for key in
        ["nodes/..json", "nodes/aaa.txt", "nodes/a/b.json", "nodes/pod-0.json", "workers/x.json", "junk"]
    {
        put(&rig, &format!("plg_coordinator_global/test/{key}"), b"\x00\xff").await;
    }
    let mut a = rig.join("pod-a").await;
    assert_eq!(a.became_leader().await.epoch, 1);
    assert_eq!(get(&rig, "plg_coordinator_global/test/nodes/pod-0.json").await, b"\x00\xff");
}

#[tokio::test(start_paused = true)]
async fn fields_of_a_later_version_survive_renewal_vacation_and_claim() {
    let rig = Rig::new();
    let a = rig.join("pod-a").await;
    a.node.lead().await.expect("leadership");
    a.node.shutdown().await;
    let mut seat = rig.seat().await;
    seat["snapshot"] = "kept".into();
    rig.store.put(SEAT, seat.to_string().into_bytes().into(), Condition::Any).await;
    let b = rig.join("pod-b").await;
    b.node.lead().await.expect("leadership");
    sleep_ms(3000).await;
    b.node.shutdown().await;
    assert_eq!(rig.seat().await["snapshot"], "kept");
    assert_eq!(rig.seat().await["epoch"], 2);
}
