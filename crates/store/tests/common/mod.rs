//! What the tests share.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "shared by test binaries; each uses a part"
)]

pub mod engine;
pub mod server;

use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tenure_store::conformance::{self, Plan, Report};
use tenure_store::{Condition, List, Object, Read, Store, Version, Write};

/// A name that no other test and no other process uses.
pub fn unique() -> String {
    static N: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), N.fetch_add(1, Ordering::Relaxed))
}

/// Runs the suite quietly.
pub async fn conformance(endpoints: &[Arc<dyn Store>], plan: &Plan) -> Report {
    conformance::run(endpoints, "tenure-test", &unique(), plan, &mut |_| {}).await
}

/// Every check passed, and nothing was left behind.
pub async fn assert_conforms(endpoints: &[Arc<dyn Store>], plan: &Plan) {
    let report = conformance(endpoints, plan).await;
    assert!(report.is_safe() && report.is_clean() && !report.is_unsafe(), "{report}");
    let List::Entries { entries, .. } = endpoints[0].list("tenure-test/", 10_000).await else {
        panic!("no list");
    };
    assert!(entries.is_empty(), "left behind: {entries:?}");
}

pub async fn won(store: &dyn Store, key: &str, body: &str, condition: Condition) -> Version {
    match store.put(key, body.to_owned().into(), condition).await {
        Write::Won(version) => version,
        other => panic!("{key}: {other:?}"),
    }
}

pub async fn found(store: &dyn Store, key: &str) -> Object {
    match store.get(key, None).await {
        Read::Found(object) => object,
        other => panic!("{key}: {other:?}"),
    }
}

/// The one test that this program was started again for has run and passed: a name that fits none would pass too. Returns what it
/// said.
pub fn assert_passed(output: &Output) -> String {
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    text
}
