//! What tests of jobs share.
#![allow(dead_code, unreachable_pub, missing_docs)]

use super::common::{Member, Rig, sleep_ms};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure::job::{Dispatcher, Handlers, JobContext, JobOutcome, JobRunner, JobState, JobUpdate};
use tenure::settings::SettingsBuilder;
use tenure::store::{Condition, List, Read, Store, Write};
use tenure::worker::WorkerSpec;
use tokio::sync::broadcast;
use tokio::time::Instant;

pub const INBOX: &str = "plg_coordinator_global/test/jobs/inbox/w1.json";

/// What handlers have done.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<(String, u64, Instant)>>>);

impl Log {
    pub fn push(&self, job: &JobContext, at: Instant) {
        self.0.lock().expect("no panic").push((format!("{}/{}", job.id, job.attempt), job.epoch, at));
    }

    pub fn all(&self) -> Vec<String> {
        let log = self.0.lock().expect("no panic");
        log.iter().map(|(job, epoch, _)| format!("{job} in epoch {epoch}")).collect()
    }

    pub fn ids(&self) -> Vec<String> {
        self.0.lock().expect("no panic").iter().map(|(job, _, _)| job.clone()).collect()
    }

    pub fn pauses_ms(&self) -> Vec<u128> {
        let log = self.0.lock().expect("no panic");
        log.windows(2).map(|pair| (pair[1].2 - pair[0].2).as_millis()).collect()
    }
}

pub fn worker_spec(id: &str) -> WorkerSpec {
    WorkerSpec::new(id, "queue").timeout(Duration::from_secs(20))
}

/// Answers with the payload after a while.
pub fn echo(log: &Log, ms: u64) -> Handlers {
    let log = log.clone();
    Handlers::new().on("echo", move |job: JobContext| {
        let log = log.clone();
        async move {
            log.push(&job, Instant::now());
            tokio::select! {
                biased;
                () = job.cancelled.cancelled() => JobOutcome::failed("called off"),
                () = sleep_ms(ms), if ms > 0 => JobOutcome::succeeded(job.payload.to_vec()),
                () = async {}, if ms == 0 => JobOutcome::succeeded(job.payload.to_vec()),
            }
        }
    })
}

pub async fn start(member: &Member, id: &str, handlers: Handlers) -> JobRunner {
    let worker = member.node.register_worker(worker_spec(id)).expect("valid");
    worker.registered().await.expect("registered");
    JobRunner::start(&member.node.jobs(), worker, handlers)
}

pub async fn runner(member: &Member, id: &str, log: &Log, ms: u64) -> JobRunner {
    start(member, id, echo(log, ms)).await
}

pub async fn dispatcher(member: &Member) -> Dispatcher {
    let guard = member.node.lead().await.expect("it leads");
    Dispatcher::start(&member.node.jobs(), guard)
}

/// Waits until the leader knows so many workers.
pub async fn known(leader: &Member, workers: u64) {
    let mut known = leader.node.workers();
    let wait = tokio::time::timeout(Duration::from_secs(120), known.wait_for(|w| w.active >= workers));
    wait.await.expect("within two simulated minutes").expect("it lives");
}

pub async fn two() -> (Rig, Member, Member) {
    two_with(|s| s).await
}

/// A leader, and a node that never leads.
pub async fn two_with(change: impl Fn(SettingsBuilder) -> SettingsBuilder) -> (Rig, Member, Member) {
    let rig = Rig::new();
    let mut leader = rig.join_with("pod-a", 0, |s| change(s.startup_jitter_max(Duration::ZERO))).await;
    let x = rig.join_with("pod-x", 0, |s| change(s.startup_jitter_max(Duration::ZERO).eligible(false))).await;
    leader.became_leader().await;
    (rig, leader, x)
}

/// A node with the worker `w1`; nobody dispatches.
pub async fn fenced_worker(change: impl Fn(SettingsBuilder) -> SettingsBuilder) -> (Rig, Held, Log) {
    let rig = Rig::new();
    let member =
        rig.join_with("pod-x", 0, |s| change(s.startup_jitter_max(Duration::ZERO).eligible(false))).await;
    let log = Log::default();
    let runner = runner(&member, "w1", &log, 0).await;
    sleep_ms(100).await;
    (rig, Held { member, _runner: runner }, log)
}

pub struct Held {
    member: Member,
    _runner: JobRunner,
}

impl std::ops::Deref for Held {
    type Target = Member;

    fn deref(&self) -> &Member {
        &self.member
    }
}

pub fn wall_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("this age")
}

/// An inbox of `w1` as a leader writes it: id, epoch, time of dispatch.
/// As a worker that takes everything has created it.
pub async fn open_inbox(rig: &Rig) {
    let life = "00000000000000aa";
    let inbox = json!({"v": 1, "workerId": "w1", "epoch": 0, "owner": life, "nonce": format!("{life}-1"),
                       "serves": {"by": life, "slots": 16}, "entries": []});
    put(rig, INBOX, inbox.to_string()).await;
}

pub async fn put_inbox(rig: &Rig, entries: &[(&str, u64, i64)]) {
    let rows = entries.iter().map(|(id, epoch, at)| {
        json!({"id": id, "dispatch": 1, "epoch": epoch, "dispatchedAt": at, "kind": "echo", "timeout": 60000,
               "state": "dispatched"})
    });
    let rows: Vec<Value> = rows.collect();
    let life = "00000000000000aa";
    let inbox = json!({"v": 1, "workerId": "w1", "epoch": 6, "owner": life, "nonce": format!("{life}-1"),
                       "serves": {"by": life, "slots": 16}, "entries": rows});
    put(rig, INBOX, inbox.to_string()).await;
}

pub async fn put(rig: &Rig, key: &str, body: impl Into<Vec<u8>>) {
    let body: Vec<u8> = body.into();
    let answer = rig.store.put(key, body.into(), Condition::Any).await;
    assert!(matches!(answer, Write::Won(_)), "{answer:?}");
}

pub async fn raw(rig: &Rig, key: &str) -> String {
    match rig.store.get(key, None).await {
        Read::Found(object) => String::from_utf8(object.body.to_vec()).expect("text"),
        Read::Unchanged | Read::Absent | Read::Unavailable(_) | Read::Denied(_) => panic!("{key}: not there"),
    }
}

pub async fn object(rig: &Rig, key: &str) -> Option<Value> {
    match rig.store.get(key, None).await {
        Read::Found(object) => Some(serde_json::from_slice(&object.body).expect("JSON")),
        Read::Unchanged | Read::Absent | Read::Unavailable(_) | Read::Denied(_) => None,
    }
}

/// The ledger of a series, by the documented rule: FNV-1a of its name, both halves together, modulo 64.
pub fn ledger(series: &str) -> String {
    let hash = series.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("plg_coordinator_global/test/jobs/ledger-{}.json", (hash ^ (hash >> 32)) % 64)
}

pub async fn done_objects(rig: &Rig) -> usize {
    match rig.store.list("plg_coordinator_global/test/jobs/done/", 10_000).await {
        List::Entries { entries, .. } => entries.len(),
        List::Unavailable(trouble) | List::Denied(trouble) => panic!("{trouble}"),
    }
}

/// Waits until so many jobs have come to an end, and says how.
pub async fn until_final(
    updates: &mut broadcast::Receiver<JobUpdate>,
    count: usize,
) -> BTreeMap<String, (JobState, String)> {
    let mut ended = BTreeMap::new();
    let wait = tokio::time::timeout(Duration::from_secs(900), async {
        while ended.len() < count {
            let update = updates.recv().await.expect("an update");
            if update.late.is_none() && update.state.is_final() {
                let result = String::from_utf8_lossy(&update.result).into_owned();
                let before = ended.insert(update.id.to_string(), (update.state, result));
                assert!(before.is_none(), "{} ended twice", update.id);
            }
        }
    });
    if wait.await.is_err() {
        panic!("{} of {count} ended within 15 simulated minutes: {ended:?}", ended.len());
    }
    ended
}

/// Waits until all jobs are over.
pub async fn settle(dispatcher: &Dispatcher, count: usize) {
    for _ in 0..6000 {
        let jobs = dispatcher.jobs().await;
        if jobs.len() == count && jobs.iter().all(|job| job.state.is_final()) {
            return;
        }
        sleep_ms(100).await;
    }
    let open = dispatcher.jobs().await;
    let open: Vec<_> = open.iter().filter(|job| !job.state.is_final()).collect();
    panic!("not over within ten simulated minutes: {open:#?}");
}
