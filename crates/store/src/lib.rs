//! The arbiter: one small trait over object stores, with outcomes that never lie.
//!
//! A coordination protocol over a store stands or falls by one question: *did my conditional write happen?* This crate
//! answers it in five ways and never guesses:
//!
//! | [`Write`] | meaning |
//! |---|---|
//! | [`Won`](Write::Won) | it happened, and this is the new version |
//! | [`Lost`](Write::Lost) | it did not happen, because the condition did not hold |
//! | [`Unknown`](Write::Unknown) | it may have happened, or may still happen after this answer |
//! | [`Unavailable`](Write::Unavailable) | it did not happen; the store was not reached or was too busy |
//! | [`Denied`](Write::Denied) | it did not happen, and will not until somebody changes something |
//!
//! No backend retries a conditional write by itself: a retry can be refused *because of the first try*, and would then
//! report a win as a loss.
//!
//! ```
//! use tenure_store::{Condition, Store, Write, open_str, OpenOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = open_str("memory:", &OpenOptions::default()).await?.lease;
//! let Write::Won(first) = store.put("a/b.json", "1".into(), Condition::Absent).await else { return Err("lost".into()) };
//! let second = store.put("a/b.json", "2".into(), Condition::Matches(first.clone())).await;
//! assert!(matches!(second, Write::Won(_)));
//! assert_eq!(store.put("a/b.json", "3".into(), Condition::Matches(first)).await, Write::Lost);
//! # Ok(()) }
//! ```
//!
//! Backends are features, both on by default: `sqlite`, and `object` for S3, Google Cloud Storage and Azure. The store in memory
//! is always there.
//!
//! Not promised: a [`Lost`](Write::Lost) does not say who won; read the object to find out. Store times
//! ([`Object::modified`]) can be compared only with each other, never with a clock of this machine.

pub mod conformance;
mod faulty;
mod memory;
mod metered;
#[cfg(feature = "object")]
mod object;
mod open;
mod outcome;
#[cfg(feature = "sqlite")]
mod sqlite;
mod tally;
mod url;

pub use faulty::{Faults, Faulty, Link};
pub use memory::MemoryStore;
pub use metered::{Meter, MeterSnapshot, Metered};
#[cfg(feature = "object")]
pub use object::{CloudStore, is_credential};
pub use open::{Credentials, Lanes, OpenError, OpenOptions, open, open_str};
pub use outcome::{
    Condition, Entry, EtagForm, List, Object, Read, Remove, StoreTime, Trouble, TroubleKind, Version, Write,
};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
pub use url::{Provider, StoreUrl, URL_FORMS, UrlError, one_write_a_second};

use async_trait::async_trait;
use bytes::Bytes;
use std::fmt::Debug;

/// The largest object any backend accepts or returns. Coordination objects are a few hundred bytes; anything
/// larger is foreign and must not fill a node's memory.
pub const BODY_MAX_BYTES: usize = 1 << 20;

/// A whole list may take this many request timeouts, however many pages it has. Each page has one timeout of its own.
pub const LIST_TIMEOUTS_MAX: u32 = 10;

/// A backend that can arbitrate: conditional writes on single objects, and lists.
///
/// Keys are `/`-separated paths already validated by the caller (`plg_coordinator_global/ns/seat.json`). A backend
/// prepends its own prefix and hides it in the answers.
///
/// Duties of an implementation:
/// 1. Every call ends: within the backend's request timeout, or when its future is dropped. A dropped write counts
///    as [`Write::Unknown`].
/// 2. `put` makes at most one attempt that could take effect.
/// 3. A new version is never equal to an earlier version of the same key, provided bodies differ.
/// 4. `list` sees every write that ended before it began.
#[async_trait]
pub trait Store: Send + Sync + Debug + 'static {
    /// Reads one object. With `unless`, answers [`Read::Unchanged`] while the object still has that version.
    async fn get(&self, key: &str, unless: Option<&Version>) -> Read;

    /// Writes one object if `condition` holds.
    async fn put(&self, key: &str, body: Bytes, condition: Condition) -> Write;

    /// Removes one object. Unconditional: no engine offers a portable conditional delete, so remove only objects that are
    /// dead by construction, never one that a conditional write protects.
    async fn remove(&self, key: &str) -> Remove;

    /// Lists the objects below `prefix` (which ends in `/`), in key order, following pages; at most `limit` of them.
    async fn list(&self, prefix: &str, limit: usize) -> List;

    /// A description for people: scheme, bucket, prefix, endpoint. Never contains a secret.
    fn describe(&self) -> String;

    /// The present time on the store's own clock, the one of [`Object::modified`]: the time of its last answer plus the time
    /// since. `None` before any answer that carried a time. Only for showing how old something is; no decision depends on
    /// it.
    fn now(&self) -> Option<StoreTime> {
        None
    }

    /// The ETag spelling that this store understands in conditional writes; `None` if it is not known yet or the question
    /// does not arise.
    fn etag_form(&self) -> Option<EtagForm> {
        None
    }

    /// How many simultaneous requests are useful; more would wait for each other, and for too long. For callers with many to
    /// make.
    fn at_once(&self) -> usize {
        64
    }
}
