//! Object stores: S3 and anything that speaks its protocol, Google Cloud Storage, and Azure Blob Storage.
//!
//! Nothing is retried here. A retried conditional write can be refused because of its own first try, and would report a win
//! as a loss; so every answer, even an unclear one, goes straight to the caller.

mod answers;
mod aws;
mod connect;
mod credentials;
mod etag;
mod wire;

pub use connect::is_credential;

use crate::memory::refuse_too_large;
use crate::{
    BODY_MAX_BYTES, Condition, Entry, EtagForm, LIST_TIMEOUTS_MAX, List, Object, OpenError, OpenOptions,
    Provider, Read, Remove, Store, StoreTime, Trouble, TroubleKind, Version, Write,
};
use answers::Failure;
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use etag::{Dialect, FormMemory};
use futures::StreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetResult, ObjectStore, ObjectStoreExt, PutOptions, PutPayload};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use wire::{Call, Ending, ObjectRequest};

/// A store behind the `object_store` crate.
pub struct CloudStore {
    inner: Arc<dyn ObjectStore>,
    /// Prefix of every key; without slashes at either end, possibly empty.
    prefix: String,
    description: String,
    dialect: Dialect,
    form: Arc<FormMemory>,
    /// Whether lists come in key order, so that the first entries are known before the last one has arrived.
    lists_in_order: bool,
    /// Whether the requests of `inner` pass through [`wire`].
    observed: bool,
    /// Whether any request has ever reached the store.
    ever_sent: AtomicBool,
    /// The date of the last answer, and when it arrived.
    date: Mutex<Option<(StoreTime, Instant)>>,
    request_timeout: Duration,
}

impl CloudStore {
    /// Opens a bucket with settings from the environment and the options. Sends nothing yet.
    pub fn connect(
        provider: Provider,
        bucket: &str,
        prefix: &str,
        options: &OpenOptions,
    ) -> Result<CloudStore, OpenError> {
        let (client, description) = connect::connect(provider, bucket, prefix, options)?;
        Ok(CloudStore::of(provider, bucket, prefix, options, client()?, description))
    }

    /// Opens a bucket twice. Two clients mean two connection pools, so a slow list in one cannot delay a renewal in the
    /// other. They share credentials and what either learns about ETags.
    pub(crate) fn connect_two(
        provider: Provider,
        bucket: &str,
        prefix: &str,
        options: &OpenOptions,
    ) -> Result<(CloudStore, CloudStore), OpenError> {
        let (client, description) = connect::connect(provider, bucket, prefix, options)?;
        let first = CloudStore::of(provider, bucket, prefix, options, client()?, description.clone());
        let second = CloudStore::of(provider, bucket, prefix, options, client()?, description);
        let second = CloudStore { form: Arc::clone(&first.form), ..second };
        Ok((first, second))
    }

    fn of(
        provider: Provider,
        bucket: &str,
        prefix: &str,
        options: &OpenOptions,
        inner: Arc<dyn ObjectStore>,
        description: String,
    ) -> CloudStore {
        let dialect = Dialect::of(provider);
        let store = CloudStore::build(inner, prefix, description, dialect, true, options.request_timeout);
        CloudStore { lists_in_order: !(provider == Provider::S3 && connect::is_express(bucket)), ..store }
    }

    /// Wraps any store of the `object_store` crate; the caller must have switched off its retries. Outcomes are only as
    /// precise as that crate's errors: a 409 cannot be told from an object that exists.
    pub fn from_object_store(
        inner: Arc<dyn ObjectStore>,
        prefix: &str,
        description: &str,
        request_timeout: Duration,
    ) -> CloudStore {
        CloudStore::build(inner, prefix, description.to_owned(), Dialect::Plain, false, request_timeout)
    }

    fn build(
        inner: Arc<dyn ObjectStore>,
        prefix: &str,
        description: String,
        dialect: Dialect,
        observed: bool,
        request_timeout: Duration,
    ) -> CloudStore {
        let prefix = prefix.trim_matches('/').to_owned();
        CloudStore {
            inner,
            prefix,
            description,
            dialect,
            form: Arc::default(),
            lists_in_order: true,
            observed,
            ever_sent: AtomicBool::new(false),
            date: Mutex::default(),
            request_timeout,
        }
    }

    /// The path of a key, or why it has none.
    fn path(&self, key: &str) -> Result<Path, Trouble> {
        let full = match (self.prefix.is_empty(), key.is_empty()) {
            (true, _) => key.to_owned(),
            (false, true) => self.prefix.clone(),
            (false, false) => format!("{}/{key}", self.prefix),
        };
        Path::parse(&full)
            .map_err(|error| Trouble::new(TroubleKind::Malformed, format!("key {key:?}: {error}")))
    }

    /// Runs one request. A failure is judged by what was seen on the wire.
    async fn ask<T>(
        &self,
        what: &str,
        deadline: Instant,
        work: impl Future<Output = object_store::Result<T>> + Send,
    ) -> Result<T, Failure> {
        let (result, call) = wire::observe(timeout_at(deadline, work)).await;
        let ever_sent = self.note_sent(&call);
        if let Some(date) = call.date {
            *self.date.lock() = Some((date, Instant::now()));
        }
        match result {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) if !self.observed => Err(answers::judge_unseen(&error, what)),
            Err(_) if !self.observed => Err(Failure::Unclear(Trouble::new(
                TroubleKind::Timeout,
                format!("{what}: no answer in time"),
            ))),
            Ok(Err(error)) => Err(answers::judge(&call, what, Some(&error), ever_sent)),
            Err(_) => Err(answers::judge(&call, what, None, ever_sent)),
        }
    }

    fn note_sent(&self, call: &Call) -> bool {
        let reached =
            matches!(call.store, Some(Ending::Answered { .. } | Ending::Broken { .. } | Ending::Open));
        match reached {
            true => self.ever_sent.swap(true, Ordering::Relaxed),
            false => self.ever_sent.load(Ordering::Relaxed),
        }
    }

    async fn read(&self, key: &str, unless: Option<&Version>, deadline: Instant) -> Read {
        let path = match self.path(key) {
            Ok(path) => path,
            Err(trouble) => return Read::Denied(trouble),
        };
        let what = format!("GET {key}");
        let mut options =
            GetOptions { if_none_match: unless.map(|v| self.dialect.tag(v)), ..Default::default() };
        options.extensions.insert(ObjectRequest);
        let answer = match self.ask(&what, deadline, self.inner.get_opts(&path, options)).await {
            Ok(answer) => answer,
            Err(failure) => return failure.into_read(unless.is_some(), &what),
        };
        let Some(version) =
            self.dialect.version(answer.meta.e_tag.as_deref(), answer.meta.version.as_deref())
        else {
            return Read::Unavailable(Trouble::new(TroubleKind::Malformed, format!("{what}: no ETag")));
        };
        if unless == Some(&version) {
            // The engine ignores If-None-Match on reads. Reporting the truth wrongs nobody.
            return Read::Unchanged;
        }
        let modified = store_time(&answer.meta);
        match timeout_at(deadline, collect(answer, &what)).await {
            Ok(Ok(body)) => Read::Found(Object { body, version, modified }),
            Ok(Err(failure)) => failure.into_read(false, &what),
            Err(_) => Read::Unavailable(Trouble::new(
                TroubleKind::Timeout,
                format!("{what}: no whole body in time"),
            )),
        }
    }

    /// One attempt to write, in one ETag form.
    async fn attempt(
        &self,
        key: &str,
        body: Bytes,
        condition: &Condition,
        form: EtagForm,
        deadline: Instant,
    ) -> Result<Version, Failure> {
        let path = self.path(key).map_err(Failure::Lasting)?;
        let what = format!("PUT {key}");
        let mode = self.dialect.mode(condition, form).map_err(Failure::Lasting)?;
        let mut options = PutOptions { mode, ..Default::default() };
        options.extensions.insert(ObjectRequest);
        let put = self.inner.put_opts(&path, PutPayload::from_bytes(body), options);
        let answer = self.ask(&what, deadline, put).await?;
        // Written, but under a version we cannot name: the caller finds out by reading back.
        self.dialect
            .version(answer.e_tag.as_deref(), answer.version.as_deref())
            .ok_or_else(|| Failure::Unclear(Trouble::new(TroubleKind::Malformed, format!("{what}: no ETag"))))
    }

    /// A replace was refused before the engine's ETag form is known: either somebody else was first, or the form is wrong.
    /// The object itself tells.
    async fn settle_form(
        &self,
        key: &str,
        body: Bytes,
        condition: &Condition,
        sent: &Version,
        deadline: Instant,
    ) -> Write {
        let what = format!("PUT {key}");
        match self.read(key, None, deadline).await {
            Read::Found(object) if object.version == *sent => {}
            Read::Found(_) | Read::Absent | Read::Unchanged => return Write::Lost,
            // Certainly refused, but nobody knows why, so it is not a loss.
            Read::Unavailable(trouble) | Read::Denied(trouble) => return Write::Unavailable(trouble),
        }
        match self.attempt(key, body, condition, EtagForm::Unquoted, deadline).await {
            Ok(version) => {
                tracing::info!(store = %self.description, "this engine wants unquoted ETags in If-Match");
                self.form.learn(EtagForm::Unquoted);
                Write::Won(version)
            }
            Err(failure) => failure.into_write(condition, &what),
        }
    }
}

impl std::fmt::Debug for CloudStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CloudStore").field("description", &self.description).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for CloudStore {
    async fn get(&self, key: &str, unless: Option<&Version>) -> Read {
        self.read(key, unless, Instant::now() + self.request_timeout).await
    }

    async fn put(&self, key: &str, body: Bytes, condition: Condition) -> Write {
        if let Some(trouble) = refuse_too_large(key, body.len()) {
            return Write::Denied(trouble);
        }
        let deadline = Instant::now() + self.request_timeout;
        let form = match self.form.known() {
            Some(form) => form,
            None => EtagForm::Quoted,
        };
        let result = self.attempt(key, body.clone(), &condition, form, deadline).await;
        match (result, &condition) {
            (Ok(version), Condition::Matches(_)) => {
                self.form.learn(form);
                Write::Won(version)
            }
            (Ok(version), Condition::Absent | Condition::Any) => Write::Won(version),
            // Checked again after the attempt: a concurrent request may have learned the form in the meantime.
            (Err(Failure::Condition), Condition::Matches(sent))
                if self.dialect == Dialect::S3 && self.form.known().is_none() =>
            {
                self.settle_form(key, body, &condition, sent, deadline).await
            }
            (Err(failure), _) => failure.into_write(&condition, &format!("PUT {key}")),
        }
    }

    async fn remove(&self, key: &str) -> Remove {
        let path = match self.path(key) {
            Ok(path) => path,
            Err(trouble) => return Remove::Denied(trouble),
        };
        let what = format!("DELETE {key}");
        match self.ask(&what, Instant::now() + self.request_timeout, self.inner.delete(&path)).await {
            Ok(()) => Remove::Done,
            Err(failure) => failure.into_remove(&what),
        }
    }

    async fn list(&self, prefix: &str, limit: usize) -> List {
        let path = match self.path(prefix.trim_end_matches('/')) {
            Ok(path) => path,
            Err(trouble) => return List::Denied(trouble),
        };
        let what = format!("LIST {prefix}");
        let deadline = Instant::now() + self.request_timeout * LIST_TIMEOUTS_MAX;
        let strip = if self.prefix.is_empty() { String::new() } else { format!("{}/", self.prefix) };
        let collect = async {
            let mut stream = self.inner.list(Some(&path));
            let mut first = First::new(limit);
            while let Some(meta) = stream.next().await {
                let meta = meta?;
                // A "folder" object created by some console lies beside the prefix, not below it.
                let Some(key) =
                    meta.location.as_ref().strip_prefix(&strip).filter(|key| key.starts_with(prefix))
                else {
                    continue;
                };
                let version = self.dialect.version(meta.e_tag.as_deref(), meta.version.as_deref());
                let (modified, bytes) = (store_time(&meta), meta.size);
                first.add(Entry { key: key.to_owned(), modified, bytes, version });
                if self.lists_in_order && first.is_full() {
                    break;
                }
            }
            Ok(first.finish())
        };
        match self.ask(&what, deadline, collect).await {
            Ok((entries, more)) => List::Entries { entries, more },
            Err(failure) => failure.into_list(&what),
        }
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    fn now(&self) -> Option<StoreTime> {
        let (date, came) = (*self.date.lock())?;
        Some(StoreTime(date.0 + u64::try_from(came.elapsed().as_millis()).unwrap_or(0)))
    }

    fn etag_form(&self) -> Option<EtagForm> {
        match self.dialect {
            Dialect::S3 => self.form.known(),
            Dialect::Azure => Some(EtagForm::Quoted),
            Dialect::Gcs | Dialect::Plain => None,
        }
    }
}

/// The first `limit` entries of a list by key, whatever order they arrive in, without keeping many more than that.
struct First {
    limit: usize,
    entries: Vec<Entry>,
    more: bool,
}

impl First {
    fn new(limit: usize) -> First {
        First { limit, entries: Vec::new(), more: false }
    }

    fn add(&mut self, entry: Entry) {
        self.entries.push(entry);
        if self.entries.len() > self.limit.saturating_mul(2).saturating_add(1_000) {
            self.cut();
        }
    }

    /// Whether there are more entries than wanted.
    fn is_full(&self) -> bool {
        self.more || self.entries.len() > self.limit
    }

    fn cut(&mut self) {
        self.entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        self.more = self.is_full();
        self.entries.truncate(self.limit);
    }

    fn finish(mut self) -> (Vec<Entry>, bool) {
        self.cut();
        (self.entries, self.more)
    }
}

/// Milliseconds since 1970 on the store's clock. Reads are exact to the second; on some engines, lists are exact to the
/// millisecond.
fn store_time(meta: &object_store::ObjectMeta) -> StoreTime {
    StoreTime(u64::try_from(meta.last_modified.timestamp_millis()).unwrap_or(0))
}

/// Collects a body, but never more than an object may have.
async fn collect(answer: GetResult, what: &str) -> Result<Bytes, Failure> {
    let too_large = || {
        let detail = format!("{what}: an object may have at most {BODY_MAX_BYTES} bytes");
        Failure::Lasting(Trouble::new(TroubleKind::TooLarge, detail))
    };
    if answer.meta.size > BODY_MAX_BYTES as u64 {
        return Err(too_large());
    }
    let mut body = BytesMut::new();
    let mut stream = answer.into_stream();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| {
            Failure::Passing(Trouble::new(TroubleKind::Connection, format!("{what}: the body broke off")))
        })?;
        if body.len() + chunk.len() > BODY_MAX_BYTES {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}
