//! Fencing: work of a leader of the past is refused by whoever receives it.

use crate::common::{Rig, sleep_ms};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;
use tenure::clock::TokioClock;
use tenure::fence::{EPOCH_MAX, FenceRule, Refused};
use tenure::{Fence, TaskStamp, Verdict};
use tracing_subscriber::fmt::MakeWriter;

fn fence(rule: FenceRule) -> Fence {
    Fence::new(rule, TokioClock::new())
}

/// A task of this epoch, dispatched so long ago by its sender's word.
fn task(epoch: u64, ms_ago: i64) -> TaskStamp {
    let now = jiff::Timestamp::now().as_millisecond();
    TaskStamp { id: "t-1".to_owned(), epoch, dispatched_at: now - ms_ago, deadline: None }
}

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("no panic").clone()).expect("text")
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Log;

    fn make_writer(&self) -> Log {
        self.clone()
    }
}

/// A forged number must not shut out every leader there will ever be.
#[tokio::test(start_paused = true)]
async fn ef1_an_epoch_that_cannot_be_is_rejected_and_not_taken_as_known() {
    let fence = fence(FenceRule::default());
    fence.observe(6);
    for forged in [EPOCH_MAX + 1, u64::MAX] {
        fence.observe(forged);
        assert_eq!(fence.check(forged), Verdict::RejectStale);
        assert_eq!(fence.check_task(&task(forged, 0)), Verdict::RejectStale);
        assert_eq!(fence.judge_only(forged, None), Verdict::RejectStale);
    }
    assert_eq!((fence.epoch(), fence.check(6)), (6, Verdict::Accept));
    assert_eq!(fence.judge_only(EPOCH_MAX, None), Verdict::Accept);
    assert_eq!((fence.check(EPOCH_MAX), fence.epoch()), (Verdict::Accept, EPOCH_MAX));
}

#[tokio::test(start_paused = true)]
async fn ef1_a_stale_epoch_is_rejected_and_counted() {
    let fence = fence(FenceRule::default());
    fence.observe(6);
    sleep_ms(5000).await;
    assert_eq!(fence.check(5), Verdict::RejectStale);
    assert_eq!(fence.check_task(&task(5, 10)), Verdict::RejectStale);
    assert_eq!(fence.drift_events(), 2);
    let stale = fence.admit(&task(5, 10)).expect_err("stale");
    assert_eq!(stale, Refused::Stale { task: "t-1".to_owned(), epoch: 5, known: 6 });
    assert!(stale.to_string().contains("\"t-1\" has epoch 5, but the current epoch is 6"), "{stale}");
}

#[tokio::test(start_paused = true)]
async fn ef2_a_newer_epoch_is_accepted_and_becomes_the_known_one() {
    let fence = fence(FenceRule::default());
    fence.observe(6);
    assert_eq!(fence.check(7), Verdict::Accept);
    assert_eq!(fence.epoch(), 7);
    fence.observe(3);
    assert_eq!((fence.epoch(), fence.drift_events()), (7, 0), "old news change nothing");
}

#[tokio::test(start_paused = true)]
async fn ef3_switched_off_everything_is_accepted_and_nothing_counted() {
    let fence = fence(FenceRule { enabled: false, grace_ms: 5000 });
    fence.observe(6);
    for epoch in [0, 1, 5, 6, 7] {
        assert_eq!(fence.check(epoch), Verdict::Accept);
        assert_eq!(fence.check_task(&task(epoch, 100_000)), Verdict::Accept);
    }
    assert_eq!((fence.drift_events(), fence.epoch()), (0, 6));
    let rig = Rig::new();
    let member = rig
        .join_with("pod-a", 0, |s| s.startup_jitter_max(Duration::ZERO).epoch_fencing_enabled(false))
        .await;
    let guard = member.node.lead().await.expect("leadership");
    assert_eq!(
        (guard.epoch(), member.node.fence().check(0)),
        (1, Verdict::Accept),
        "the setting reaches the fence"
    );
}

#[tokio::test(start_paused = true)]
async fn ef4_every_change_of_leaders_and_every_task_carries_the_epoch() {
    let rig = Rig::new();
    let mut members = rig.join_all(&["pod-a", "pod-b"]).await;
    let guard = members[0].node.lead().await.expect("leadership");
    let old = guard.stamp("report-7").expect("it leads");
    assert_eq!(old.epoch, 1);
    drop(guard);
    sleep_ms(2000).await;
    members[0].node.step_down().await.expect("it leads");
    let guard = members[1].node.lead().await.expect("leadership");
    assert_eq!(guard.stamp("report-8").expect("it leads").epoch, 2);
    sleep_ms(2000).await;
    for member in &mut members {
        let epochs: Vec<u64> = member
            .so_far()
            .iter()
            .filter(|event| event.name() == "leader:changed")
            .map(|event| event.to_json()["epoch"].as_u64().expect("an epoch"))
            .collect();
        assert_eq!(epochs, [1, 2], "{}", member.node.id());
        // Both nodes' fences heard of the new leader, without anybody telling them.
        assert_eq!(member.node.fence().epoch(), 2);
    }
    // A guard that has ended stamps nothing, even if somebody still holds it.
    members[1].node.step_down().await.expect("it leads");
    assert!(guard.stamp("report-9").is_err());
    assert_eq!(old.epoch + 1, members[0].node.fence().epoch());
}

#[tokio::test(start_paused = true)]
async fn gt1_a_task_of_the_leader_just_before_is_accepted_late() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
    let _listening = tracing::subscriber::set_default(subscriber);
    let fence = fence(FenceRule::default());
    fence.observe(5);
    sleep_ms(60_000).await;
    fence.observe(6);
    sleep_ms(4000).await;
    assert_eq!(fence.check_task(&task(5, 4500)), Verdict::AcceptLate);
    assert_eq!((fence.late_tasks(), fence.drift_events()), (1, 0));
    let said = log.text();
    assert!(
        said.contains("WARN")
            && said.contains("late task from the previous leader taskEpoch=5 currentEpoch=6"),
        "{said}"
    );
    // In the words of the documents, whoever asks.
    assert_eq!((fence.check(4), fence.judge_only(4, None)), (Verdict::RejectStale, Verdict::RejectStale));
    assert_eq!(log.text().matches("Rejecting task from stale epoch taskEpoch=4 currentEpoch=6").count(), 2);
    assert_eq!(fence.drift_events(), 2);
    let permit = fence.admit(&task(5, 4500)).expect("within the grace");
    // Neither half of the grace is enough alone.
    assert_eq!(fence.check_task(&task(5, 5500)), Verdict::RejectStale, "dispatched too long ago");
    assert_eq!(
        fence.check_task(&task(5, -60_000)),
        Verdict::RejectStale,
        "a sender whose clock is ahead gets none"
    );
    sleep_ms(1000).await;
    assert_eq!(fence.check_task(&task(5, 10)), Verdict::RejectStale, "the change is too long ago");
    assert!(permit.confirm().is_err(), "what was admitted in the grace may not count after it");
}

#[tokio::test(start_paused = true)]
async fn gt2_two_epochs_back_there_is_no_grace() {
    let fence = fence(FenceRule::default());
    fence.observe(6);
    assert_eq!(fence.check_task(&task(4, 0)), Verdict::RejectStale);
    assert_eq!(fence.drift_events(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_asked_again_before_the_work_counts() {
    let fence = fence(FenceRule { grace_ms: 0, ..FenceRule::default() });
    let permit = fence.admit(&task(6, 0)).expect("current");
    permit.confirm().expect("still current");
    fence.observe(7);
    let stale = permit.confirm().expect_err("the leader changed while it worked");
    assert_eq!(stale, Refused::Stale { task: "t-1".to_owned(), epoch: 6, known: 7 });
}

#[tokio::test(start_paused = true)]
async fn a_task_past_its_deadline_is_not_begun() {
    let fence = fence(FenceRule::default());
    fence.admit(&task(6, 100).within(Duration::from_secs(60))).expect("in time");
    let late = fence.admit(&task(6, 100).within(Duration::from_millis(10))).expect_err("too late");
    assert!(matches!(late, Refused::Expired { late_ms: 90.., .. }), "{late}");
    assert_eq!(fence.drift_events(), 0, "it was not stale");
}

/// Threads that learn of new epochs in any order end with the highest, and none of them ever sees one go down.
#[test]
fn threads_share_a_fence_and_no_epoch_ever_goes_down() {
    let fence = Fence::new(FenceRule::default(), Arc::new(tenure::clock::BootClock));
    let start = Arc::new(Barrier::new(4));
    let threads: Vec<_> = (0..4u64)
        .map(|thread| {
            let (fence, start) = (fence.clone(), Arc::clone(&start));
            std::thread::spawn(move || {
                start.wait();
                let mut last = 0;
                for round in 0..20_000 {
                    fence.observe(round * 4 + thread);
                    let now = fence.epoch();
                    assert!(now >= last, "{last} went down to {now}");
                    last = now;
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no violation"));
    assert_eq!(fence.epoch(), 19_999 * 4 + 3);
}
