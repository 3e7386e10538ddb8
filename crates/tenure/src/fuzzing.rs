//! What must hold for everything read from outside, as functions that a fuzzer calls with any bytes.
//!
//! Compiled only for tests and with the feature `fuzzing`; not part of the API. Each function returns whether the bytes were
//! understood, and panics if a promise is broken. Whatever is understood lies within its bounds and reads the same when
//! written again, including everything a later version added. Whatever is not understood is explained in one bounded line.

mod jobs;
#[cfg(test)]
mod tests;

pub use jobs::{history, inbox, ledger, orders, output};

use crate::documents::{Codec, Fields};
use crate::keys::Keys;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use tenure_core::{Namespace, NodeId, PluginName, WorkerId};

use crate::election::codec::{PresenceDocument, RENEWALS_MAX, SeatDocument};
use crate::settings::{FIELDS, Loader, Settings};
use crate::wire::{DETAIL_MAX_CHARS, DOCUMENT_MAX_BYTES, to_bytes};
use crate::workers::{SnapshotDocument, TIMEOUT_MAX_MS, WorkerDocument};
use serde_json::{Map, Value};
use tenure_core::{Epoch, Holder, Incarnation, Nonce, Seat, SeatState, WORKERS_MAX};
use tenure_store::{BODY_MAX_BYTES, StoreUrl};

/// Longest line about one value, whatever the value was.
const LINE_MAX_CHARS: usize = 2000;

#[track_caller]
fn assert_told(detail: &str, max_chars: usize) {
    assert!(!detail.trim().is_empty(), "nothing is said");
    let chars = detail.chars().count();
    assert!(chars <= max_chars, "{chars} characters: {detail}");
    assert!(!detail.contains(char::is_control), "{detail:?}");
}

/// What a rewrite must leave untouched: every field except those in `changing`.
#[track_caller]
fn assert_kept(before: &Value, after: &Value, changing: &[&str]) {
    let fields = before.as_object().expect("documents are objects");
    for (name, value) in fields.iter().filter(|(name, _)| !changing.contains(&name.as_str())) {
        assert_eq!(after.get(name), Some(value), "{name:?} did not survive");
    }
}

/// A document with a `T` as its body: its epoch, the body, and the bytes of a rewrite that changes nothing.
pub fn document<T>(body: &[u8]) -> Option<(u64, Option<T>, Vec<u8>)>
where
    T: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    let codec = Fields::<T>::new();
    let (stamp, found, kept) = match codec.read(body) {
        Ok(read) => read,
        Err(unreadable) => {
            assert_told(&unreadable.detail, DETAIL_MAX_CHARS + 1);
            return None;
        }
    };
    assert!(stamp.epoch <= Epoch::MAX);
    let again = codec.write(stamp, &found, &kept);
    let known: Vec<String> = found.iter().flat_map(|body| body.names()).collect();
    let changing: Vec<&str> =
        known.iter().map(String::as_str).chain(["v", "epoch", "owner", "nonce"]).collect();
    let json = |body: &[u8]| serde_json::from_slice::<Value>(body).expect("what was understood is JSON");
    assert_kept(&json(body), &json(&again), &changing);
    Some((stamp.epoch.0, found.and_then(Arc::into_inner).map(|found| found.value), again))
}

/// `seat.json`.
pub fn seat(body: &[u8]) -> bool {
    let (document, record) = match SeatDocument::parse(body) {
        Ok(read) => read,
        Err(unreadable) => {
            assert_told(&unreadable.detail, DETAIL_MAX_CHARS + 1);
            return false;
        }
    };
    assert!(body.len() <= DOCUMENT_MAX_BYTES);
    assert!((1..=Epoch::MAX.0).contains(&record.epoch.0) && record.renewals <= RENEWALS_MAX);
    assert!(0 < record.lease.hold_ms && record.lease.hold_ms < record.lease.expiry_ms);
    id(record.holder.node.as_str().as_bytes());
    let again = document.to_bytes();
    // Writing it again may make it longer (1e9 becomes 1000000000.0), and then too long.
    if again.len() <= DOCUMENT_MAX_BYTES {
        assert_eq!(SeatDocument::parse(&again), Ok((document.clone(), record.clone())));
    }
    let renewed = Seat { renewals: (record.renewals + 1).min(RENEWALS_MAX), ..record.clone() };
    let rewritten = SeatDocument::new(&renewed, Some(&document), "later".to_owned(), Map::new(), None);
    let value = |document: &SeatDocument| serde_json::to_value(document).expect("serializes");
    let mut changing = vec!["renewals", "nonce", "holder"];
    // Only a mark that counts is kept.
    changing.extend((!record.step_down).then_some("stepDown"));
    let (before, after) = (value(&document), value(&rewritten));
    // Other people's fields are kept as long as there is room for them.
    if again.len() + 100 <= DOCUMENT_MAX_BYTES {
        assert_kept(&before, &after, &changing);
        assert_kept(&before["holder"], &after["holder"], &["incarnation"]);
    }
    assert_eq!(SeatDocument::parse(&rewritten.to_bytes()).map(|(_, record)| record), Ok(renewed.clone()));
    let terms = document.seat_terms();
    assert_eq!(terms.current.epoch, record.epoch.0);
    assert!(terms.former.iter().all(|former| former.epoch < record.epoch.0 && former.why().is_some()));
    if let Some(next) = record.epoch.next() {
        let claim = Seat { epoch: next, state: SeatState::Held, step_down: false, ..record.clone() };
        let claimed =
            SeatDocument::new(&claim, Some(&document), "2026-01-01T00:00:00Z".to_owned(), Map::new(), None);
        let claimed = claimed.claimed_from(&document, Some(renewed.renewals));
        assert_eq!(SeatDocument::parse(&claimed.to_bytes()).map(|(_, record)| record), Ok(claim));
        let former = claimed.seat_terms().former;
        assert!(former.len() <= 4);
        // There may be no room.
        let newest = former.first().map(|former| (former.epoch, former.ended.is_some()));
        assert!(newest.is_none_or(|newest| newest == (record.epoch.0, true)));
    }
    let marked = document.marked(record.nonce, "me", "later".to_owned());
    assert!(SeatDocument::parse(&marked.to_bytes()).is_ok());
    true
}

/// `workers/<id>.json`, under the key that it names itself.
pub fn worker(body: &[u8]) -> bool {
    let named = serde_json::from_slice::<Value>(body).ok();
    let named = named.as_ref().and_then(|value| WorkerId::new(value.get("workerId")?.as_str()?).ok());
    let key = named.unwrap_or_else(|| WorkerId::new("worker-1").expect("valid"));
    let parsed = match WorkerDocument::parse(&key, body) {
        Ok(parsed) => parsed,
        Err(unreadable) => {
            assert_told(&unreadable.detail, DETAIL_MAX_CHARS + 1);
            return false;
        }
    };
    assert!(body.len() <= DOCUMENT_MAX_BYTES);
    assert!((1..=TIMEOUT_MAX_MS).contains(&parsed.details.timeout_ms));
    id(parsed.details.pod.as_str().as_bytes());
    id(parsed.details.plugin_type.as_str().as_bytes());
    let again = to_bytes(&parsed.document);
    if again.len() <= DOCUMENT_MAX_BYTES {
        assert_eq!(WorkerDocument::parse(&key, &again), Ok(parsed));
    }
    true
}

/// `snapshot.json`.
pub fn snapshot(body: &[u8]) -> bool {
    let parsed = match SnapshotDocument::parse(body) {
        Ok(parsed) => parsed,
        Err(unreadable) => {
            assert_told(&unreadable.detail, DETAIL_MAX_CHARS + 1);
            return false;
        }
    };
    let id = parsed.snapshot.id;
    assert!((1..=Epoch::MAX.0).contains(&id.epoch.0) && id.sequence <= u64::MAX / 2);
    assert!(body.len() <= BODY_MAX_BYTES && parsed.snapshot.workers.len() <= WORKERS_MAX);
    for entry in &parsed.snapshot.workers {
        assert!((1..=TIMEOUT_MAX_MS).contains(&entry.details.timeout_ms));
        assert!(entry.active || entry.silence.is_some(), "inactive since when?");
    }
    let bare = to_bytes(&SnapshotDocument::new(parsed.stamp, &parsed.snapshot, serde_json::Map::new()));
    assert!(bare.len() as u64 <= parsed.snapshot.weight(), "it takes more than it weighs");
    let again = to_bytes(&SnapshotDocument::new(parsed.stamp, &parsed.snapshot, parsed.extra.clone()));
    if again.len() <= BODY_MAX_BYTES {
        assert_eq!(SnapshotDocument::parse(&again), Ok(parsed));
    }
    true
}

/// `nodes/<id>.json`: the figures in it.
pub fn presence(body: &[u8]) -> bool {
    let metrics_in = |body: &[u8]| PresenceDocument::parse(body)?.metrics;
    let Some(metrics) = metrics_in(body) else { return false };
    let me = Holder { node: NodeId::new("pod-a").expect("valid"), incarnation: Incarnation(1) };
    let nonce = Nonce { incarnation: Incarnation(1), sequence: 1 };
    let again = PresenceDocument::new(&me, nonce, "", metrics.clone()).to_bytes();
    if again.len() <= DOCUMENT_MAX_BYTES {
        assert_eq!(metrics_in(&again), Some(metrics));
    }
    true
}

/// Settings. The first byte says what the rest is: a TOML file, a JSON file, either, flags, or variables (lines of
/// `name=value`), in this order from `0`.
pub fn settings(input: &[u8]) -> bool {
    let Some((kind, text)) = input.split_first() else { return false };
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let pairs = || text.lines().filter_map(|line| line.split_once('='));
    let empty = || Settings::loader().env([("HOME", "/home/me")]);
    let loader = match kind.wrapping_sub(b'0') % 5 {
        0 => empty().file_text("tenure.toml", text),
        1 => empty().file_text("tenure.json", text),
        2 => empty().file_text("tenure", text),
        3 => pairs().fold(empty(), |loader, (name, value)| loader.flag(name, value)),
        _ => empty().env(pairs()),
    };
    loads(&loader, empty())
}

fn loads(loader: &Loader, empty: Loader) -> bool {
    let resolved = match loader.clone().load() {
        Ok(resolved) => resolved,
        Err(error) => {
            assert!(!error.problems.is_empty());
            error.to_string().lines().for_each(|line| assert_told(line, LINE_MAX_CHARS));
            return false;
        }
    };
    let settings = resolved.settings;
    settings.check().expect("what was loaded is valid");
    for warning in &resolved.warnings {
        assert_told(warning, LINE_MAX_CHARS);
    }
    let value = |name| settings.value(name).expect("every field has a value").to_string();
    let again = FIELDS.iter().fold(empty, |loader, field| loader.flag(field.name, value(field.name)));
    assert_eq!(again.load().expect("valid before, valid again").settings, settings);
    true
}

/// The URL of a store.
pub fn url(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let url = match text.parse::<StoreUrl>() {
        Ok(url) => url,
        Err(error) => {
            assert_told(&error.to_string(), LINE_MAX_CHARS);
            return false;
        }
    };
    assert_eq!(url.to_string().parse::<StoreUrl>(), Ok(url.clone()), "printed and read again");
    match url {
        StoreUrl::Memory { name } => assert!(name.is_none_or(|name| (1..=64).contains(&name.len()))),
        StoreUrl::Sqlite { path } => assert!(!path.as_os_str().is_empty()),
        StoreUrl::Bucket { provider: _, bucket, prefix } => {
            assert!(!bucket.is_empty() && !bucket.contains('/') && bucket.len() + prefix.len() < 1024);
            assert!(prefix.is_empty() || prefix.split('/').all(|part| !matches!(part, "" | "." | "..")));
        }
    }
    true
}

/// An id: whatever it names stays in its folder and can be found again by its key.
pub fn id(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let node = match NodeId::new(text) {
        Ok(node) => node,
        Err(error) => {
            assert_told(&error.to_string(), LINE_MAX_CHARS);
            return false;
        }
    };
    assert!(node.as_str() == text && (1..=128).contains(&text.len()) && !text.contains(".."));
    let namespace = Namespace::new(text).expect("the same rule");
    let plugin = PluginName::new(text).expect("the same rule");
    let worker = WorkerId::new(text).expect("the same rule");
    for keys in [Keys::global(&namespace), Keys::per_plugin(&namespace, &plugin)] {
        let (of_node, of_worker) = (keys.node(&node), keys.worker(&worker));
        assert_eq!(of_node.matches('/').count(), keys.nodes().matches('/').count());
        assert_eq!(
            (keys.node_of(&of_node), keys.worker_of(&of_worker)),
            (Some(node.clone()), Some(worker.clone()))
        );
    }
    true
}
