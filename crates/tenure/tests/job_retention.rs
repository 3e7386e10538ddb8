//! What is not needed any more does not stay for ever: inboxes of workers that are gone, watermarks of series that are used
//! no more.

use crate::common::sleep_ms;
use crate::job_rig::*;
use serde_json::json;
use std::time::Duration;
use tenure::job::{Dispatcher, JobSpec, JobState, RunnerEnd, Submitted};

#[tokio::test(start_paused = true)]
async fn the_inbox_of_a_worker_gone_for_good_is_removed_and_one_with_work_is_not() {
    let (rig, leader, x) = two_with(|s| s.worker_retention(Duration::from_millis(60_000))).await;
    let done = Log::default();
    let first = runner(&x, "w1", &done, 0).await;
    let _second = runner(&x, "w2", &done, 0).await;
    known(&leader, 2).await;
    let dispatcher = dispatcher(&leader).await;
    let mut updates = dispatcher.updates();
    dispatcher.submit(JobSpec::new("a", "echo").worker("w1")).await.expect("taken");
    dispatcher.submit(JobSpec::new("b", "echo").worker("w2")).await.expect("taken");
    until_final(&mut updates, 2).await;
    // An entry that nobody understands keeps its inbox there.
    let strange = "plg_coordinator_global/test/jobs/inbox/w9.json";
    let life = "00000000000000aa";
    let inbox = json!({"v": 1, "workerId": "w9", "epoch": 1, "owner": life, "nonce": format!("{life}-1"),
                       "entries": [{"id": 7}]});
    put(&rig, strange, inbox.to_string()).await;
    assert_eq!(first.drain().await, RunnerEnd::Drained);
    sleep_ms(15 * 60_000).await;
    assert!(object(&rig, INBOX).await.is_some(), "not before it is long gone");
    sleep_ms(15 * 60_000).await;
    assert!(object(&rig, INBOX).await.is_none(), "removed");
    assert!(
        object(&rig, "plg_coordinator_global/test/jobs/inbox/w2.json").await.is_some(),
        "its worker is there"
    );
    assert!(object(&rig, strange).await.is_some(), "left alone");
    // Back under the same name, it gets work as ever.
    let _again = runner(&x, "w1", &done, 0).await;
    known(&leader, 2).await;
    dispatcher.submit(JobSpec::new("c", "echo").worker("w1")).await.expect("taken");
    let states = until_final(&mut updates, 1).await;
    assert_eq!(states["c"].0, JobState::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn watermarks_of_series_that_are_used_no_more_can_be_forgotten() {
    let (_rig, leader, x) = two().await;
    let done = Log::default();
    let _w = runner(&x, "w1", &done, 0).await;
    known(&leader, 1).await;
    let guard = leader.node.lead().await.expect("it leads");
    let options = tenure::job::DispatcherOptions { keep_finished: 0, ..Default::default() };
    let dispatcher = Dispatcher::start_with(&leader.node.jobs(), guard, options);
    let mut updates = dispatcher.updates();
    let spec = || JobSpec::new("old-5", "echo").series("old").watermark(5);
    dispatcher.submit(spec()).await.expect("taken");
    let old = [("old".parse().expect("valid"), 5)];
    dispatcher.forget(old.clone()).await;
    assert_eq!(dispatcher.submit(spec()).await, Ok(Submitted::Exists), "a job is left");
    until_final(&mut updates, 1).await;
    sleep_ms(60_000).await;
    assert_eq!(dispatcher.jobs().await.len(), 0, "put away");
    assert_eq!(dispatcher.submit(spec()).await, Ok(Submitted::BelowWatermark));
    dispatcher.forget([("old".parse().expect("valid"), 4)]).await;
    assert_eq!(dispatcher.submit(spec()).await, Ok(Submitted::BelowWatermark), "its watermark is higher");
    dispatcher.forget(old).await;
    assert_eq!(dispatcher.submit(spec()).await, Ok(Submitted::Created), "it begins afresh");
    assert_eq!(dispatcher.series().await.len(), 1);
}
