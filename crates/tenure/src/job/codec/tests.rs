use super::*;
use crate::job::JobSpec;
use crate::wire::DETAIL_MAX_CHARS;
use serde_json::json;
use std::str::FromStr;
use tenure_core::IdError;
use tenure_core::Nonce;
use tenure_core::WorkerId;
use tenure_core::{Labels, Progress};

fn name<T: FromStr<Err = IdError>>(text: &str) -> T {
    text.parse().expect("valid")
}

const LIFE: Incarnation = Incarnation(0xab);
const NONCE: Nonce = Nonce { incarnation: LIFE, sequence: 7 };

fn job() -> JobRecord {
    let spec = JobSpec::new("t-1", "report").series("daily").watermark(9).payload(vec![0, 255]).worker("w1");
    let late = LateResult { attempt: 1, worker: name("w2"), kind: OutcomeKind::Succeeded };
    JobRecord {
        state: JobState::Running,
        dispatch: 2,
        worker: Some(name("w1")),
        late: vec![late],
        given_up: true,
        submitted_ms: 1_794_700_800_000,
        ..spec.check().expect("valid")
    }
}

fn ledger() -> LedgerDoc {
    LedgerDoc { series: vec![(name("daily"), 9)], jobs: vec![job()] }
}

fn inbox() -> InboxDoc {
    let entry = |dispatch, state| Entry {
        id: name("t-1"),
        dispatch,
        attempt: 1,
        epoch: Epoch(3),
        dispatched_at: 1_794_700_800_000,
        queue: name(if dispatch == 2 { "mail" } else { "default" }),
        kind: name("report"),
        payload: Arc::from(*b"{\"a\": 1}"),
        timeout_ms: 60_000,
        state,
        cancel: dispatch == 2,
        progress: (dispatch == 3).then(|| Progress::new(40, "copying")),
    };
    let outcome = Outcome { kind: OutcomeKind::Partial, result: Arc::from(*b"half") };
    let states = [
        EntryState::Dispatched,
        EntryState::Acked { by: LIFE },
        EntryState::Running { by: LIFE },
        EntryState::Finished { outcome },
    ];
    let entries = states.into_iter().zip(1..).map(|(state, dispatch)| entry(dispatch, state)).collect();
    let labels = Labels { partition: Some(name("eu")), domain: None, capabilities: [name("icmp")].into() };
    let (queues, kinds) = ([name("mail")].into(), [name("report"), name("send")].into());
    let commands = ["/usr/bin/ping -c 1 *".parse().expect("valid")].into();
    let serves = Some((LIFE, Arc::new(Serves { queues, kinds, slots: 16, labels, commands })));
    InboxDoc { serves, closed: Some(LIFE), entries }
}

const STAMP: Stamp = Stamp { epoch: Epoch(3), owner: LIFE, nonce: NONCE };

fn write_ledger(doc: &LedgerDoc, carried: &Carried) -> Vec<u8> {
    LedgerCodec.write(STAMP, doc, carried)
}

fn read_ledger(body: &[u8]) -> Result<(LedgerDoc, Carried), String> {
    let read = LedgerCodec.read(body).map_err(|unreadable| unreadable.detail);
    read.map(|(_, doc, carried)| (doc, carried))
}

fn write_inbox(worker: &WorkerId, doc: &InboxDoc, carried: &Carried) -> Vec<u8> {
    InboxCodec(worker.clone()).write(STAMP, doc, carried)
}

fn read_inbox(worker: &WorkerId, body: &[u8]) -> Result<(InboxDoc, Carried), String> {
    let read = InboxCodec(worker.clone()).read(body).map_err(|unreadable| unreadable.detail);
    read.map(|(_, doc, carried)| (doc, carried))
}

fn value(body: &[u8]) -> Value {
    serde_json::from_slice(body).expect("JSON")
}

#[test]
fn both_come_back_as_they_were_with_what_a_later_version_added() {
    let mut body = value(&write_ledger(&ledger(), &Carried::default()));
    body["later"] = json!(1.5);
    body["jobs"][0]["later"] = json!([1]);
    let (doc, carried) = read_ledger(body.to_string().as_bytes()).expect("our own");
    assert_eq!(doc, ledger());
    assert_eq!(value(&write_ledger(&doc, &carried)), body);

    let mut body = value(&write_inbox(&name("w1"), &inbox(), &Carried::default()));
    body["later"] = json!({"x": null});
    body["entries"][2]["later"] = json!("kept");
    body["entries"].as_array_mut().expect("a list").push(json!({"id": 7}));
    let (doc, carried) = read_inbox(&name("w1"), body.to_string().as_bytes()).expect("our own");
    assert_eq!(doc, inbox());
    assert_eq!(carried.foreign, [json!({"id": 7})]);
    assert_eq!(value(&write_inbox(&name("w1"), &doc, &carried)), body);
}

/// Whatever happens to the bytes, they are read or explained, and nothing panics.
#[test]
fn damage_is_explained_in_one_bounded_line() {
    let explained = |result: Result<(), String>| {
        if let Err(detail) = result {
            assert!(!detail.is_empty() && detail.chars().count() <= DETAIL_MAX_CHARS + 1, "{detail}");
        }
    };
    let ledger = write_ledger(&ledger(), &Carried::default());
    let inbox = write_inbox(&name("w1"), &inbox(), &Carried::default());
    for body in [&ledger, &inbox] {
        for at in 0..body.len() {
            for damaged in [body[..at].to_vec(), [&body[..at], b"\xff", &body[at + 1..]].concat(), {
                let mut other = body.clone();
                other[at] = if other[at] == b'9' { b'-' } else { b'9' };
                other
            }] {
                explained(read_ledger(&damaged).map(drop));
                explained(read_inbox(&name("w1"), &damaged).map(drop));
            }
        }
    }
}

#[test]
fn what_cannot_be_is_named() {
    let change = |pointer: &str, to: Value| {
        let mut body = value(&write_ledger(&ledger(), &Carried::default()));
        *body.pointer_mut(pointer).expect("there") = to;
        read_ledger(body.to_string().as_bytes()).map(drop).expect_err(pointer)
    };
    assert!(change("/v", json!(2)).contains("upgrade"));
    assert!(change("/nonce", json!("x")).contains("nonce"));
    assert!(change("/jobs/0/state", json!("done")).contains("state"));
    assert!(change("/jobs/0/id", json!("../x")).contains("id"));
    assert!(change("/jobs/0/worker", json!(null)).contains("worker"));
    assert!(change("/jobs/0/payload", json!("x".repeat(16_385))).contains("16385 bytes"));
    assert!(change("/jobs/0/result", json!("x".repeat(1025))).contains("1025 bytes"));
    // A leader adds to these.
    for field in ["timeout", "ttl", "deadline", "backoff"] {
        let detail = change(&format!("/jobs/0/{field}"), json!(u64::MAX / 2 + 1));
        assert!(detail.contains(&format!("`{field}` is 9223372036854775808")), "{detail}");
    }
    for field in ["dispatch", "unbegun"] {
        let detail = change(&format!("/jobs/0/{field}"), json!(u32::MAX / 2 + 1));
        assert!(detail.contains(&format!("`{field}` is 2147483648")), "{detail}");
    }
    for pointer in ["/epoch", "/jobs/0/epoch"] {
        assert!(
            change(pointer, json!(Epoch::MAX.0 + 1)).contains("`epoch` is 9007199254740992"),
            "{pointer}"
        );
    }
    let mut twice = ledger();
    twice.jobs.push(job());
    let detail = read_ledger(&write_ledger(&twice, &Carried::default())).map(drop).expect_err("twice");
    assert!(detail.contains("twice"), "{detail}");
    let inbox = write_inbox(&name("w1"), &inbox(), &Carried::default());
    assert!(read_inbox(&name("w2"), &inbox).map(drop).expect_err("another's").contains("workerId"));
    let crowd = json!({"v": 1, "workerId": "w1", "epoch": 1, "owner": "00000000000000ab",
                       "nonce": "00000000000000ab-1", "entries": vec![json!(0); 1025]});
    assert!(read_inbox(&name("w1"), crowd.to_string().as_bytes()).is_err());
}

/// The machines' limits keep every object within what a store takes, however the bytes are encoded.
#[test]
fn the_fullest_inbox_and_ledger_fit_into_an_object() {
    use tenure_core::{JOB_OBJECT_MAX_WEIGHT, JOB_PAYLOAD_MAX_BYTES};
    let long = "x".repeat(128);
    let worker: WorkerId = name(&long);
    let worst: Arc<[u8]> = Arc::from(vec![0xff; JOB_PAYLOAD_MAX_BYTES]);
    let result: Arc<[u8]> = Arc::from(vec![0xff; JOB_RESULT_MAX_BYTES]);
    for payload in [worst, Arc::from([])] {
        let record = JobRecord {
            id: name(&long),
            series: name(&long),
            kind: name(&long),
            target: Some(worker.clone()),
            worker: Some(worker.clone()),
            reason: Arc::from("\"".repeat(300)),
            result: result.clone(),
            payload: payload.clone(),
            late: vec![LateResult { attempt: 1, worker: worker.clone(), kind: OutcomeKind::Succeeded }; 3],
            ..job()
        };
        let count = JOB_OBJECT_MAX_WEIGHT / record.weight();
        let series = (0..500).map(|n| (name(&format!("{n:0128}")), u64::MAX)).collect();
        let doc = LedgerDoc { series, jobs: vec![record; count] };
        let bytes = write_ledger(&doc, &Carried::default()).len();
        assert!(bytes <= tenure_store::BODY_MAX_BYTES, "{count} jobs take {bytes} bytes");
        let outcome = Outcome { kind: OutcomeKind::Succeeded, result: result.clone() };
        let state = EntryState::Finished { outcome };
        let entry = Entry {
            id: name(&long),
            kind: name(&long),
            payload: payload.clone(),
            state,
            ..inbox().entries[0].clone()
        };
        let count = (JOB_OBJECT_MAX_WEIGHT / entry.weight()).min(256);
        let doc = InboxDoc { entries: vec![entry; count], ..inbox() };
        let bytes = write_inbox(&worker, &doc, &Carried::default()).len();
        assert!(bytes <= tenure_store::BODY_MAX_BYTES, "{count} entries take {bytes} bytes");
    }
}
