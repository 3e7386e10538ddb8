//! Asking the leader from outside to hand over.

use crate::common::spy::{Spy, Trick};
use crate::common::{Rig, sleep_ms};
use std::sync::Arc;
use std::time::Duration;
use tenure::Namespace;
use tenure::admin::{AskedLeader, HandOver, StepDownAnswer, hand_over, request_step_down};
use tenure::error::ErrorKind;
use tenure::event::EventKind;
use tenure::store::{Faults, Faulty, Lanes, Store};

const WAIT: Duration = Duration::from_secs(30);

fn lanes(store: Arc<dyn Store>) -> (Lanes, Namespace) {
    (Lanes::same(store), Namespace::new("test").expect("valid"))
}

fn asked(node: &str, epoch: u64) -> StepDownAnswer {
    StepDownAnswer::Asked(AskedLeader { node: node.to_owned(), epoch, already: false })
}

#[tokio::test(start_paused = true)]
async fn the_leader_that_is_asked_drains_vacates_and_another_leads() {
    let rig = Rig::new();
    let (lanes, namespace) = lanes(rig.store.clone());
    let absent = request_step_down(&lanes, &namespace, "ops").await;
    assert_eq!(absent, Ok(StepDownAnswer::NoLeader { epoch: 0 }), "nothing there, nothing written");
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    let guard = members[0].node.lead().await.expect("it leads");
    sleep_ms(3300).await;
    let before = rig.seat().await;
    assert_eq!(request_step_down(&lanes, &namespace, "ops\n").await, Ok(asked("pod-a", 1)));
    let marked = rig.seat().await;
    assert_eq!((&marked["stepDown"]["epoch"], &marked["stepDown"]["by"]), (&1.into(), &"ops".into()));
    for field in
        ["v", "epoch", "state", "holder", "leaseHold", "leaseExpiry", "renewals", "claimedAt", "settings"]
    {
        assert_eq!(marked[field], before[field], "{field} is not the operator's to change");
    }
    assert_ne!(marked["nonce"], before["nonce"]);
    let again = request_step_down(&lanes, &namespace, "ops").await.expect("asked");
    assert!(matches!(again, StepDownAnswer::Asked(AskedLeader { already: true, .. })), "{again:?}");
    assert_eq!(rig.seat().await, marked, "the second left the mark of the first alone");

    guard.ended().await;
    assert_eq!(hand_over(&lanes, &namespace, 1, Duration::ZERO).await, Ok(HandOver::Held), "work still runs");
    sleep_ms(1200).await;
    let draining = rig.seat().await;
    assert!(draining["renewals"].as_u64() > before["renewals"].as_u64(), "renewed while it drains");
    assert_eq!(draining["stepDown"], marked["stepDown"], "still asked");
    drop(guard);
    let lost = members[0].lost_leadership().await;
    assert_eq!(
        (lost.to_json()["reason"].as_str(), lost.to_json()["vacated"].as_bool()),
        (Some("step down"), Some(true))
    );
    assert_eq!(rig.seat().await.get("stepDown"), None, "the vacant record carries no mark");
    let led = HandOver::Led { node: "pod-b".to_owned(), epoch: 2 };
    assert_eq!(hand_over(&lanes, &namespace, 1, WAIT).await, Ok(led));
    assert_eq!(rig.seat().await.get("stepDown"), None);
    sleep_ms(20_000).await;
    assert_eq!(crate::common::leaders(&members), ["pod-b"], "and it stays");
}

#[tokio::test(start_paused = true)]
async fn alone_it_leads_again_in_a_new_epoch_and_a_vacant_seat_has_nobody_to_ask() {
    let rig = Rig::new();
    let (lanes, namespace) = lanes(rig.store.clone());
    let mut a = rig.join("pod-a").await;
    a.became_leader().await;
    assert_eq!(request_step_down(&lanes, &namespace, "ops").await, Ok(asked("pod-a", 1)));
    a.lost_leadership().await;
    let vacant = rig.seat().await;
    assert_eq!(request_step_down(&lanes, &namespace, "ops").await, Ok(StepDownAnswer::NoLeader { epoch: 1 }));
    assert_eq!(rig.seat().await, vacant, "nothing was written");
    assert_eq!(hand_over(&lanes, &namespace, 1, Duration::ZERO).await, Ok(HandOver::Vacant));
    let led = HandOver::Led { node: "pod-a".to_owned(), epoch: 2 };
    assert_eq!(hand_over(&lanes, &namespace, 1, WAIT).await, Ok(led));
}

#[tokio::test(start_paused = true)]
async fn a_dead_leader_cannot_give_up_and_is_replaced_all_the_same() {
    let rig = Rig::new();
    let (lanes, namespace) = lanes(rig.store.clone());
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    members[0].became_leader().await;
    members[0].link.cut(true);
    sleep_ms(3000).await;
    assert_eq!(request_step_down(&lanes, &namespace, "ops").await, Ok(asked("pod-a", 1)));
    let status = tenure::admin::Status::read(&lanes, &namespace).await.expect("the store answers");
    assert!(!status.has_live_leader(), "a mark is no sign of its holder's life");
    assert!(status.leader.expect("it holds the seat").asked_to_step_down);
    assert_eq!(hand_over(&lanes, &namespace, 1, Duration::from_secs(2)).await, Ok(HandOver::Held));
    let led = HandOver::Led { node: "pod-b".to_owned(), epoch: 2 };
    assert_eq!(hand_over(&lanes, &namespace, 1, WAIT).await, Ok(led));
    assert_eq!(rig.seat().await.get("stepDown"), None, "the claim carries no mark");
}

#[tokio::test(start_paused = true)]
async fn races_and_unknown_outcomes_are_settled_by_reading_back() {
    use Trick::{Deny, Lose, LoseAnswer, LoseRequest};
    for (tricks, puts) in [
        (&[LoseAnswer][..], 1),
        (&[LoseRequest], 2),
        (&[Lose, Lose, Lose, Lose], 5),
        (&[LoseRequest, Lose, LoseAnswer], 3),
        (&[Lose, Lose, Lose, Lose, LoseAnswer], 5),
    ] {
        let rig = Rig::new();
        let mut a = rig.join("pod-a").await;
        a.became_leader().await;
        let spy = Spy::new(&rig.store, tricks);
        let (lanes, namespace) = lanes(spy.clone());
        assert_eq!(request_step_down(&lanes, &namespace, "ops").await, Ok(asked("pod-a", 1)), "{tricks:?}");
        assert_eq!(spy.puts(), puts, "{tricks:?}");
        a.lost_leadership().await;
    }
    for (tricks, says) in [
        (&[Lose; 5][..], "changed during each of 5 attempts"),
        (&[LoseRequest; 5], "not known whether the leader was asked"),
        (&[Deny], "the store refuses"),
        (&[LoseRequest, Deny], "not known whether the leader was asked"),
    ] {
        let rig = Rig::new();
        let mut a = rig.join("pod-a").await;
        a.became_leader().await;
        let (lanes, namespace) = lanes(Spy::new(&rig.store, tricks));
        let error = request_step_down(&lanes, &namespace, "ops").await.expect_err(says);
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(rig.seat().await.get("stepDown"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_ended_meanwhile_is_not_confused_with_its_successor() {
    let rig = Rig::new();
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    members[0].became_leader().await;
    sleep_ms(2000).await;
    // The mark is on its way while the leader leaves and another follows.
    let (lanes, namespace) = lanes(Spy::new(&rig.store, &[Trick::Delay(5000)]));
    let asking = tokio::spawn(async move { request_step_down(&lanes, &namespace, "ops").await });
    sleep_ms(1).await;
    members.remove(0).node.shutdown().await;
    members[0].became_leader().await;
    let ended = StepDownAnswer::Ended { node: "pod-a".to_owned(), epoch: 1 };
    assert_eq!(asking.await.expect("no panic"), Ok(ended));
    sleep_ms(5000).await;
    assert!(members[0].leads(), "the successor is left alone");
}

/// Whatever happens on the way: who is told "asked" has asked, and who is told "not asked" has not.
#[tokio::test(start_paused = true)]
async fn with_random_faults_the_answer_is_always_true() {
    let (mut told, mut failed, mut doubtful) = (0, 0, 0);
    for seed in 0..60 {
        let rig = Rig::new();
        let mut a = rig.join("pod-a").await;
        a.became_leader().await;
        sleep_ms(50 * seed).await;
        let link = Faulty::new(rig.store.clone(), seed);
        link.set(Faults {
            delay: 0.5,
            delay_max: Duration::from_millis(300),
            lost_request: 0.15,
            lost_answer: 0.15,
            late_landing: 0.1,
            throttled: 0.1,
            denied: 0.05,
            ..Faults::default()
        });
        let (lanes, namespace) = lanes(Arc::new(link));
        match request_step_down(&lanes, &namespace, "ops").await {
            Ok(StepDownAnswer::Asked(asked)) => {
                assert_eq!((asked.node.as_str(), asked.epoch), ("pod-a", 1), "seed {seed}");
                a.lost_leadership().await;
                told += 1;
            }
            // Its answer was lost, and the leader was faster than the reading back.
            Ok(StepDownAnswer::Ended { epoch: 1, .. }) => drop(a.lost_leadership().await),
            Ok(other) => panic!("seed {seed}: {other:?}, but pod-a leads"),
            Err(error) if error.may_have_been_written() => doubtful += 1,
            Err(error) => {
                let expected = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Denied);
                assert!(expected, "seed {seed}: nobody else writes: {error}");
                sleep_ms(10_000).await;
                let heard = a.so_far();
                let lost = heard.iter().any(|said| matches!(said.kind, EventKind::LostLeadership { .. }));
                assert!(!lost, "seed {seed}: it was not asked");
                failed += 1;
            }
        }
    }
    assert!(told > 10 && failed > 10 && doubtful > 0, "{told} told, {failed} failed, {doubtful} in doubt");
}
