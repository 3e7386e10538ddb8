//! Documents for users of this library: JSON objects that a namespace's leader, or anybody, keeps beside the seat.
//!
//! [`Documents`] reads and writes them by name. A document of the leader's is a [`FencedDocument`]: the store itself refuses what
//! a former leader writes. A document that many may write is changed with [`Documents::update`], which asks again if somebody
//! else was faster:
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use std::{sync::Arc, time::Duration};
//! use tenure::document::{Change, Documents};
//! use tenure::store::MemoryStore;
//! use tenure::{Error, Namespace};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Visits { count: u64 }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Arc::new(MemoryStore::new());
//! let documents = Documents::of_namespace(store, &Namespace::new("reports")?, Duration::from_secs(2));
//! let name = "visits".parse()?;
//! let one_more = |found: Option<&Visits>, _| {
//!     Ok::<_, Error>(Some(Visits { count: found.map_or(0, |visits| visits.count) + 1 }))
//! };
//! assert_eq!(documents.update(&name, one_more).await?, Change::Created);
//! let found = documents.read::<Visits>(&name).await?.ok_or("it is there")?;
//! assert_eq!(found.body.count, 1);
//! # Ok(()) }
//! ```
//!
//! Every document begins with the same envelope: its format (`v`), the leader's `epoch`, the `owner` that writes it, and a `nonce`
//! that is new in every write, by which a lost answer is recognised. Fields that the type does not know survive a rewrite. What
//! cannot be read, or was written by a newer version, is left alone.
//!
//! The presences of nodes are read here too: [`Documents::presences`], [`Documents::presence`], [`Documents::deposed`].
//!
//! # What is not promised
//!
//! There are no transactions across documents. [`Documents::update`] asks no guard: it is for documents that are nobody's. And
//! whoever deletes an object deletes the epoch that protected it.

pub use crate::documents::{Change, Documents, Found, Presence, PresenceEntry, Presences};
pub use crate::fenced_document::FencedDocument;
