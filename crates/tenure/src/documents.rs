//! The client behind all documents, Tenure's own and those of `document.rs`: unknown fields, time limits, and each complaint said once.
//! How the JSON of one kind looks is in the `codec.rs` of its subject.
//!
//! It sends what a [`Document`](tenure_core::document::Document) asks for and decides nothing.

mod fields;
mod inline;
mod presences;
mod seat;
mod update;

pub(crate) use fields::{Fields, FieldsBody};
pub(crate) use inline::{InlineDocument, Step, new_incarnation};
pub use presences::{Presence, PresenceEntry, Presences};
pub(crate) use seat::{SeatBody, SeatCodec};
pub use update::Change;
pub(crate) use update::TRIES;
pub(crate) use update::Tries;

use crate::error::{Error, ErrorKind};
use crate::guard::LeaderGuard;
use crate::job::OrdersCodec;
use crate::keys::{Election, Keys};
use crate::wire::Unreadable;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::document::{DocumentAnswer, DocumentRequest, Read, Removal, Stamp};
use tenure_core::machine::Request;
use tenure_core::{DocumentName, Expect, Namespace, OrdersDoc, Version, WriteAnswer};
use tenure_store::{
    Condition, Entry, LIST_TIMEOUTS_MAX, List, Remove, Store, StoreTime, Trouble, TroubleKind, Write,
};
use tokio::sync::Semaphore;

/// The key under which trouble of the store itself is remembered; no object has it.
const STORE: &str = "";

/// Tenure's own objects and folders at the root of a namespace.
const RESERVED: [&str; 5] = ["seat", "snapshot", "nodes", "workers", "jobs"];

/// How one kind of document looks as bytes.
pub(crate) trait Codec: Clone + Send + Sync + 'static {
    /// What the document says.
    type Body: Send + 'static;
    /// What a rewrite carries along without understanding it.
    type Kept: Clone + Default + Send + 'static;
    /// What it is, as in "is not *an inbox*".
    const WHAT: &'static str;

    fn read(&self, bytes: &[u8]) -> Result<(Stamp, Self::Body, Self::Kept), Unreadable>;

    fn write(&self, stamp: Stamp, body: &Self::Body, kept: &Self::Kept) -> Vec<u8>;

    /// What people should know about a document that is readable, but not in all its parts.
    fn complaint(&self, _kept: &Self::Kept) -> Option<String> {
        None
    }
}

/// The documents of one namespace, by name: for a [`FencedDocument`](crate::FencedDocument), for reading one anywhere, and for
/// changing one that many may write. Clones share what was said and how many requests are under way.
#[derive(Clone)]
pub struct Documents {
    store: Arc<dyn Store>,
    namespace: Arc<str>,
    timeout: Duration,
    /// Where named documents are, without a trailing `/`.
    root: Arc<str>,
    /// Not at the root of the namespace, where Tenure has objects of its own.
    in_folder: bool,
    /// The last complaint about each key. Trouble is said once when it begins, and once when it ends.
    said: Arc<Mutex<HashMap<String, String>>>,
    /// No more requests at once than the store can use.
    turns: Arc<Semaphore>,
}

impl Documents {
    pub(crate) fn new(store: Arc<dyn Store>, namespace: Arc<str>, timeout: Duration) -> Documents {
        let turns = Arc::new(Semaphore::new(store.at_once().max(1)));
        let root = Arc::from("");
        Documents { store, namespace, timeout, root, in_folder: false, said: Arc::default(), turns }
    }

    /// With named documents below these keys.
    pub(crate) fn below(self, keys: &Keys) -> Documents {
        Documents { root: Arc::from(keys.root()), ..self }
    }

    /// The documents of a namespace on this store, for a process that need not be a node. Every request ends within the
    /// timeout.
    pub fn of_namespace(store: Arc<dyn Store>, namespace: &Namespace, timeout: Duration) -> Documents {
        Documents::new(store, Arc::from(namespace.as_str()), timeout).below(&Keys::global(namespace))
    }

    /// The documents of one election, which may be that of a plugin, a lock or a command.
    pub fn of_election(store: Arc<dyn Store>, election: &Election, timeout: Duration) -> Documents {
        Documents::new(store, Arc::from(election.namespace.as_str()), timeout).below(&election.keys())
    }

    /// Where they are: the beginning of their keys, without a trailing `/`.
    pub fn prefix(&self) -> &str {
        &self.root
    }

    /// Changes the time limit of a request.
    #[must_use]
    pub fn request_timeout(self, timeout: Duration) -> Documents {
        Documents { timeout, ..self }
    }

    /// The documents in a folder of these. Folders of Tenure's own are refused.
    pub fn folder(&self, name: &DocumentName) -> Result<Documents, Error> {
        self.check(name)?;
        Ok(Documents { root: format!("{}/{name}", self.root).into(), in_folder: true, ..self.clone() })
    }

    fn check(&self, name: &DocumentName) -> Result<(), Error> {
        match !self.in_folder && RESERVED.contains(&name.as_str()) {
            true => Err(Error::new(
                ErrorKind::Invalid,
                format_args!("the document name {:?} is reserved for Tenure's own objects", name.as_str()),
            )),
            false => Ok(()),
        }
    }

    /// The document of this name.
    pub(crate) fn named<C: Codec>(&self, name: &DocumentName, codec: C) -> Result<DocumentClient<C>, Error> {
        self.check(name)?;
        Ok(self.at(format!("{}/{name}.json", self.root), codec))
    }

    /// Reads a document, with one request; `None` if nobody put one yet. Anybody may.
    pub async fn read<T>(&self, name: &DocumentName) -> Result<Option<Found<T>>, Error>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let client = self.named(name, Fields::<T>::new())?;
        let key = client.key().to_owned();
        let Some(object) = self.get(&key).await? else { return Ok(None) };
        let read = client.codec.read(&object.body);
        let (stamp, body, _) = read.map_err(|unreadable| Error::unreadable(&key, unreadable.detail))?;
        let found = |body| Found { body, epoch: stamp.epoch.0, modified: object.modified };
        Ok(body.and_then(Arc::into_inner).map(|body| found(body.value)))
    }

    /// Changes a document that many may write: reads it, asks `change` what to write (`None`: nothing), and writes that on
    /// condition that nobody was faster; asks again if somebody was, six times at most. A lost answer is looked up. `change`
    /// is also told whether an earlier write of this call may have landed.
    ///
    /// No guard is asked, and epoch and owner stay as they are: a document of the leader's stays the leader's.
    pub async fn update<T, E>(
        &self,
        name: &DocumentName,
        mut change: impl FnMut(Option<&T>, bool) -> Result<Option<T>, E>,
    ) -> Result<Change, E>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
        E: From<Error>,
    {
        let client = self.named(name, Fields::<T>::new())?;
        let change = |found: Option<&fields::Body<T>>, unsure: bool| {
            let found = found.and_then(Option::as_ref).map(|body| &body.value);
            let Some(new) = change(found, unsure)? else { return Ok(None) };
            let body = FieldsBody::new(new, &client.kept());
            Ok(Some(Some(body.map_err(|rule| client.invalid(&rule))?)))
        };
        client.update(TRIES, change).await
    }

    /// Tells the leader that something has changed which it should look at, such as a schedule: one read and one write. Without,
    /// it notices within a minute.
    pub async fn tell_leader(&self) -> Result<(), Error> {
        let changed = |doc: Option<&OrdersDoc>, _| {
            let mut new = doc.cloned().unwrap_or_default();
            new.changes += 1;
            Ok(Some(new))
        };
        self.orders().update(TRIES, changed).await.map(|_: Change| ())
    }

    /// Whether anybody has ever asked the leader of this namespace for anything, or told it of a change: one read.
    pub async fn is_leader_asked(&self) -> Result<bool, Error> {
        Ok(self.get(&self.orders().key).await?.is_some())
    }

    fn orders(&self) -> DocumentClient<OrdersCodec> {
        self.at(format!("{}/jobs/orders.json", self.root), OrdersCodec)
    }

    /// The document at this key.
    pub(crate) fn at<C: Codec>(&self, key: String, codec: C) -> DocumentClient<C> {
        DocumentClient {
            documents: self.clone(),
            key: Arc::from(key),
            codec,
            kept: Arc::default(),
            last_trouble: Arc::default(),
        }
    }

    /// The last complaint about this key, or about the store; empty if there is none.
    pub(crate) fn trouble(&self, key: &str) -> String {
        let said = self.said.lock();
        said.get(key).or_else(|| said.get(STORE)).cloned().unwrap_or_default()
    }

    /// Logs what is wrong with an object, but not twice in a row.
    pub(crate) fn say(&self, key: &str, sentence: String) {
        let mut said = self.said.lock();
        if said.get(key) != Some(&sentence) {
            tracing::warn!(target: "tenure", namespace = &*self.namespace, "{key} {sentence}");
            said.insert(key.to_owned(), sentence);
        }
    }

    /// The store is in trouble: said once for all documents.
    fn store_trouble(&self, key: &str, trouble: &Trouble) {
        let sentence = format!("{key}: {trouble}");
        if self.said.lock().insert(STORE.to_owned(), sentence.clone()).is_none() {
            tracing::warn!(target: "tenure", namespace = &*self.namespace, "{sentence}");
        }
    }

    /// The store answered, and the object is as it should be.
    pub(crate) fn mended(&self, key: &str) {
        let mut said = self.said.lock();
        said.remove(key);
        if said.remove(STORE).is_some() {
            tracing::info!(target: "tenure", namespace = &*self.namespace, "the store answers again");
        }
    }

    /// Lists a folder: as long as ten requests may take, because thousands of objects are many pages.
    pub(crate) async fn list(&self, folder: &str, most: usize) -> Result<(Vec<Entry>, bool), Trouble> {
        match tokio::time::timeout(self.timeout * LIST_TIMEOUTS_MAX, self.store.list(folder, most)).await {
            Ok(List::Entries { entries, more }) => Ok((entries, more)),
            Ok(List::Unavailable(trouble) | List::Denied(trouble)) => Err(trouble),
            Err(_) => Err(late()),
        }
    }
}

impl fmt::Debug for Documents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Documents({})", self.root)
    }
}

/// A document as anybody may read it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found<T> {
    /// What it says.
    pub body: T,
    /// The epoch of the leader that owns it; 0 if it is not a leader's.
    pub epoch: u64,
    /// When it was written, by the store's clock.
    pub modified: StoreTime,
}

/// One document on the store.
pub(crate) struct DocumentClient<C: Codec> {
    documents: Documents,
    key: Arc<str>,
    codec: C,
    kept: Arc<Mutex<C::Kept>>,
    last_trouble: Arc<Mutex<Option<Trouble>>>,
}

impl<C: Codec> Clone for DocumentClient<C> {
    fn clone(&self) -> DocumentClient<C> {
        DocumentClient {
            documents: self.documents.clone(),
            key: Arc::clone(&self.key),
            codec: self.codec.clone(),
            kept: Arc::clone(&self.kept),
            last_trouble: Arc::clone(&self.last_trouble),
        }
    }
}

impl<C: Codec> DocumentClient<C> {
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// What the last read carries along.
    pub(crate) fn kept(&self) -> C::Kept {
        self.kept.lock().clone()
    }

    /// The body breaks this rule; nothing was sent.
    pub(crate) fn invalid(&self, rule: &str) -> Error {
        Error::new(ErrorKind::Invalid, format_args!("{}: {rule}", self.key))
    }

    /// The last complaint about it; empty if there is none.
    pub(crate) fn trouble(&self) -> String {
        self.documents.trouble(&self.key)
    }

    /// Why its last failed request failed.
    pub(crate) fn last_trouble(&self) -> Trouble {
        self.last_trouble.lock().clone().unwrap_or_else(late)
    }

    fn store_trouble(&self, trouble: Trouble) {
        self.documents.store_trouble(&self.key, &trouble);
        *self.last_trouble.lock() = Some(trouble);
    }

    /// Sends one request. With a guard, writes and removals check it right before and are cut off when it ends: their outcome
    /// is unknown then.
    pub(crate) async fn carry(
        &self,
        guard: Option<&LeaderGuard>,
        request: DocumentRequest<C::Body>,
    ) -> DocumentAnswer<C::Body> {
        // The semaphore is never closed. A request's time limit starts with its turn.
        let _turn = self.documents.turns.acquire().await;
        let unanswered = request.unanswered();
        let is_read = matches!(request, DocumentRequest::Read { .. });
        let limited = tokio::time::timeout(self.documents.timeout, self.send(request));
        let answer = match guard.filter(|_| !is_read) {
            None => limited.await,
            Some(guard) => match guard.run(limited).await {
                Ok(answer) => answer,
                Err(_) => return unanswered,
            },
        };
        answer.unwrap_or_else(|_| {
            self.store_trouble(late());
            unanswered
        })
    }

    async fn send(&self, request: DocumentRequest<C::Body>) -> DocumentAnswer<C::Body> {
        let store = &self.documents.store;
        match request {
            DocumentRequest::Read { unless } => {
                let unless = unless.as_ref().map(store_version);
                DocumentAnswer::Read(self.found(store.get(&self.key, unless.as_ref()).await))
            }
            DocumentRequest::Write { stamp, body, expect } => {
                let kept = match expect {
                    Expect::Absent => C::Kept::default(),
                    Expect::Version(_) => self.kept(),
                };
                let bytes = self.codec.write(stamp, &body, &kept);
                let answer = store.put(&self.key, bytes.into(), condition(expect)).await;
                DocumentAnswer::Written(self.written(answer))
            }
            DocumentRequest::Remove => DocumentAnswer::Removed(match store.remove(&self.key).await {
                Remove::Done => Removal::Gone,
                Remove::Unknown(trouble) | Remove::Unavailable(trouble) | Remove::Denied(trouble) => {
                    self.store_trouble(trouble);
                    Removal::Unknown
                }
            }),
        }
    }

    fn found(&self, read: tenure_store::Read) -> Read<C::Body> {
        let read = match read {
            tenure_store::Read::Found(object) => {
                let version = Version::new(object.version.as_str());
                match self.codec.read(&object.body) {
                    Ok((stamp, body, kept)) => {
                        let complaint = self.codec.complaint(&kept);
                        *self.kept.lock() = kept;
                        let found = Read::Found { stamp, body, version };
                        if let Some(complaint) = complaint {
                            self.documents.say(&self.key, complaint);
                            return found;
                        }
                        found
                    }
                    Err(Unreadable { newer, detail }) => {
                        self.documents.say(&self.key, format!("is not {}: {detail}", C::WHAT));
                        return Read::Unreadable { version, newer };
                    }
                }
            }
            tenure_store::Read::Unchanged => Read::Unchanged,
            tenure_store::Read::Absent => Read::Absent,
            tenure_store::Read::Unavailable(trouble) => {
                self.store_trouble(trouble);
                return Read::Unavailable;
            }
            tenure_store::Read::Denied(trouble) => {
                self.store_trouble(trouble);
                return Read::Denied;
            }
        };
        self.documents.mended(&self.key);
        read
    }

    fn written(&self, answer: Write) -> WriteAnswer {
        let (answer, trouble) = match answer {
            Write::Won(version) => (WriteAnswer::Won(Version::new(version.as_str())), None),
            Write::Lost => (WriteAnswer::Lost, None),
            Write::Unknown(trouble) => (WriteAnswer::Unknown, Some(trouble)),
            Write::Unavailable(trouble) => (WriteAnswer::Unavailable, Some(trouble)),
            Write::Denied(trouble) => (WriteAnswer::Denied, Some(trouble)),
        };
        match trouble {
            Some(trouble) => self.store_trouble(trouble),
            None => self.documents.mended(&self.key),
        }
        answer
    }
}

fn store_version(version: &Version) -> tenure_store::Version {
    tenure_store::Version::new(version.as_str())
}

fn condition(expect: Expect) -> Condition {
    match expect {
        Expect::Absent => Condition::Absent,
        Expect::Version(version) => Condition::Matches(store_version(&version)),
    }
}

pub(crate) fn late() -> Trouble {
    Trouble::new(TroubleKind::Timeout, "no answer in time")
}
