//! Documents that only the leader writes, and that the store protects from former leaders.

use crate::common::{Rig, sleep_ms};
use crate::paused_leader::{Quota, a_paused_leader_cannot_write, name};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tenure::Error;
use tenure::FencedDocument;
use tenure::clock::{BootClock, TokioClock};
use tenure::document::{Change, Documents};
use tenure::error::ErrorKind;
use tenure::id::DocumentName;
use tenure::store::{Condition, Faults, Faulty, Lanes, MemoryStore, OpenOptions, Read, Store, open_str};

const KEY: &str = "plg_coordinator_global/test/quota.json";

async fn stored(store: &dyn Store, key: &str) -> Value {
    let Read::Found(object) = store.get(key, None).await else { panic!("{key} is not there") };
    serde_json::from_slice(&object.body).expect("JSON")
}

async fn place(store: &dyn Store, body: &str) {
    store.put(KEY, body.to_owned().into(), Condition::Any).await;
}

#[tokio::test(start_paused = true)]
async fn fr1_a_paused_leader_cannot_write_on_memory() {
    let lanes = Lanes::same(Arc::new(MemoryStore::new()));
    assert_eq!(a_paused_leader_cannot_write(&lanes, "test", TokioClock::new()).await, Ok(()));
}

#[tokio::test]
async fn fr1_a_paused_leader_cannot_write_on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("t.db").display());
    let options = OpenOptions::with_request_timeout(Duration::from_secs(2));
    let lanes = open_str(&url, &options).await.expect("a store");
    assert_eq!(a_paused_leader_cannot_write(&lanes, "test", Arc::new(BootClock)).await, Ok(()));
}

/// Mistakes that would let a former leader write, or not let it know.
#[cfg(feature = "teeth")]
#[tokio::test(start_paused = true)]
async fn fr1_a_document_that_does_not_fence_is_noticed() {
    use tenure::Mutant;
    for broken in
        [Mutant::DocumentAdoptSkipped, Mutant::DocumentEpochIgnored, Mutant::DocumentRefusalNotReadBack]
    {
        let _until_the_end = Mutant::scoped(Some(broken));
        let lanes = Lanes::same(Arc::new(MemoryStore::new()));
        let caught = a_paused_leader_cannot_write(&lanes, "test", TokioClock::new()).await;
        assert!(caught.is_err(), "{broken:?} is caught");
    }
}

#[tokio::test(start_paused = true)]
async fn a_document_is_handed_from_leader_to_leader() {
    let rig = Rig::new();
    let a = rig.join("pod-a").await;
    let guard = a.node.lead().await.expect("it leads");
    let mut of_a =
        FencedDocument::<Quota>::open(&a.node.documents(), &name("quota"), &guard).await.expect("opened");
    assert_eq!((of_a.get(), of_a.key()), (None, KEY));
    let nothing = a.node.documents().read::<Quota>(&name("quota")).await;
    assert_eq!(nothing, Ok(None), "it has an owner, but no body yet");
    of_a.put(&guard, Quota { left: 3 }).await.expect("written");
    let there = stored(&*rig.store, KEY).await;
    assert_eq!((&there["v"], &there["epoch"], &there["left"]), (&json!(1), &json!(1), &json!(3)));

    // Opened again in the same epoch, as by a process that was restarted: the first one ends.
    let mut again =
        FencedDocument::<Quota>::open(&a.node.documents(), &name("quota"), &guard).await.expect("opened");
    let ended = of_a.put(&guard, Quota { left: 9 }).await.expect_err("replaced");
    assert!(ended.is_fenced(), "{ended}");
    again.put(&guard, Quota { left: 2 }).await.expect("written");

    a.link.set(Faults { lost_request: 1.0, ..Faults::default() });
    sleep_ms(10_000).await;
    let over = again.put(&guard, Quota { left: 9 }).await.expect_err("its lease is over");
    assert!(over.is_fenced(), "{over}");
    assert_eq!(stored(&*rig.store, KEY).await["left"], 2);
}

#[tokio::test(start_paused = true)]
async fn fields_of_others_are_kept_and_what_cannot_be_read_is_left_alone() {
    let rig = Rig::new();
    let a = rig.join("pod-a").await;
    let (guard, documents, quota) =
        (a.node.lead().await.expect("it leads"), a.node.documents(), name("quota"));
    place(&*rig.store, r#"{"v": 1, "left": 7, "tomorrow": [1]}"#).await;
    let mut document = FencedDocument::<Quota>::open(&documents, &quota, &guard).await.expect("opened");
    assert_eq!(document.get(), Some(&Quota { left: 7 }), "written by hand, without an envelope");
    document.put(&guard, Quota { left: 6 }).await.expect("written");
    assert_eq!(stored(&*rig.store, KEY).await["tomorrow"], json!([1]));

    let newer = r#"{"v": 2, "left": "many"}"#;
    for broken in [r#"{"v": 1, "left": "many"}"#, "nonsense", newer] {
        place(&*rig.store, broken).await;
        let blocked = document.put(&guard, Quota { left: 5 }).await.expect_err("left alone");
        assert!(blocked.is_unreadable() && !blocked.is_retryable(), "{blocked}");
        let blocked =
            FencedDocument::<Quota>::open(&documents, &quota, &guard).await.expect_err("left alone");
        assert!(blocked.is_unreadable(), "{blocked}");
        let blocked = documents.read::<Quota>(&quota).await.expect_err("unreadable");
        assert_eq!(blocked.to_string().ends_with("upgrade it"), broken == newer, "{blocked}");
        let Read::Found(object) = rig.store.get(KEY, None).await else { panic!("it is gone") };
        assert_eq!(&object.body[..], broken.as_bytes());
        sleep_ms(6000).await;
        let replaced = FencedDocument::<Quota>::open_or_replace(&documents, &quota, &guard).await;
        assert_eq!(replaced.is_ok(), broken != newer, "{broken}: {replaced:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn names_and_bodies_that_cannot_be_documents_are_refused() {
    let rig = Rig::new();
    let a = rig.join("pod-a").await;
    let (guard, documents) = (a.node.lead().await.expect("it leads"), a.node.documents());
    for wrong in ["../x", "a/b", ""] {
        assert!(DocumentName::new(wrong).is_err(), "{wrong:?}");
    }
    for reserved in ["seat", "snapshot", "nodes", "workers", "jobs"] {
        let refused = FencedDocument::<Quota>::open(&documents, &name(reserved), &guard).await;
        assert_eq!(refused.expect_err(reserved).kind(), ErrorKind::Invalid);
        assert!(documents.folder(&name(reserved)).is_err(), "{reserved}");
    }
    let folder = documents.folder(&name("mine")).expect("allowed");
    let mut any = FencedDocument::<Value>::open(&folder, &name("seat"), &guard).await.expect("opened");
    assert_eq!(any.key(), "plg_coordinator_global/test/mine/seat.json");
    for wrong in [json!(1), json!({"nonce": 1}), json!({"x": "y".repeat(1 << 20)})] {
        let refused = any.put(&guard, wrong).await.expect_err("refused");
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    }
    any.put(&guard, json!({"x": 1})).await.expect("written");
}

/// Whatever gets lost: what is reported as written stands, and what certainly is not does not.
#[tokio::test(start_paused = true)]
async fn lost_answers_and_dropped_calls_are_looked_up() {
    let (mut done, mut failed) = (0, 0);
    for seed in 0..40 {
        let rig = Rig::new();
        let a = rig.join("pod-a").await;
        let guard = a.node.lead().await.expect("it leads");
        let link = Faulty::new(rig.store.clone(), seed);
        let namespace = tenure::Namespace::new("test").expect("valid");
        let documents = Documents::of_namespace(Arc::new(link.clone()), &namespace, Duration::from_secs(1));
        let mut document =
            FencedDocument::<Quota>::open(&documents, &name("quota"), &guard).await.expect("opened");
        link.set(Faults {
            lost_answer: 0.3,
            lost_request: 0.2,
            timeout: Duration::from_millis(300),
            ..Faults::default()
        });
        for left in 1..20 {
            if left % 5 == 0 {
                let put = document.put(&guard, Quota { left });
                let _dropped = tokio::time::timeout(Duration::from_millis(200), put).await;
                continue;
            }
            let result = document.put(&guard, Quota { left }).await;
            let stands = stored(&*rig.store, KEY).await["left"] == left;
            match result {
                Ok(()) => {
                    assert!(stands && document.get() == Some(&Quota { left }), "seed {seed}: {left}");
                    done += 1;
                }
                Err(error) => {
                    assert!(error.is_retryable(), "seed {seed}: {error}");
                    assert!(!stands || error.may_have_been_written(), "seed {seed}: {error}");
                    failed += 1;
                }
            }
        }
    }
    assert!(done > 300 && failed > 10, "{done} done, {failed} failed");
}

/// Many change one document at once: every confirmed change is in it, once.
#[tokio::test(start_paused = true)]
async fn changes_of_many_do_not_undo_each_other() {
    let store = Arc::new(MemoryStore::new());
    let mut changing = tokio::task::JoinSet::new();
    let namespace = tenure::Namespace::new("test").expect("valid");
    for seed in 0..8 {
        let link = Faulty::new(store.clone(), seed);
        link.set(Faults { lost_answer: 0.3, lost_request: 0.1, ..Faults::default() });
        let documents = Documents::of_namespace(Arc::new(link), &namespace, Duration::from_secs(1));
        changing.spawn(async move {
            let (mut certain, mut possible) = (0, 0);
            for _ in 0..10 {
                sleep_ms(37 * (seed + 1)).await;
                let more = |found: Option<&Quota>, _| {
                    Ok::<_, Error>(Some(Quota { left: found.map_or(0, |found| found.left) + 1 }))
                };
                match documents.update(&name("quota"), more).await {
                    Ok(Change::Created | Change::Changed) => certain += 1,
                    Ok(Change::Unchanged) => panic!("there was something to do"),
                    Err(error) => possible += u64::from(error.may_have_been_written()),
                }
            }
            (certain, possible)
        });
    }
    let all = changing.join_all().await;
    let (certain, possible) = all.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let left = stored(&*store, KEY).await["left"].as_u64().expect("a number");
    assert!(certain > 20, "{all:?}");
    // A change whose answer was lost and that others wrote over is made again: at least once, then.
    assert!(left >= certain, "{left}, of {certain} certain and {possible} possible ones");
}
