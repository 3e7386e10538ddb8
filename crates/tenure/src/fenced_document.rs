//! A leader's document that the store itself protects from former leaders.

use crate::documents::{Documents, Fields, FieldsBody, InlineDocument, Step, new_incarnation};
use crate::error::Error;
use crate::guard::LeaderGuard;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::sync::Arc;
use tenure_core::document::{BackOff, Rules, Unreadable, What, Writer};
use tenure_core::{DocumentName, Epoch};

/// Pauses after requests that failed; also how often an unreadable document is looked at again.
const RETRY: BackOff = BackOff { first_ms: 100, max_ms: 5000 };

/// Most failed requests of one call: a write, and the read that looks for it.
const FAILURES_MAX: u32 = 2;

/// Most requests of one call.
const REQUESTS_MAX: u32 = 24;

/// A document that only the leader writes: `<name>.json` beside the seat, a `T` as JSON.
///
/// Opening it reads what the last leader left, and writes it back in this leader's name. From then on the *store* refuses
/// every write of a former leader, whatever that one's clock or guard says: its writes are conditional on a version that is
/// gone, and when it looks why, it finds a later epoch and stops for good.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use tenure::{FencedDocument, Node, Settings};
///
/// #[derive(Serialize, Deserialize)]
/// struct Quota { left: u64 }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let settings = Settings::builder().store("memory:").node("pod-a").startup_jitter_max(std::time::Duration::ZERO).build()?;
/// let node = Node::start(settings).await?;
/// let guard = node.lead().await.ok_or("the node was stopped")?;
///
/// let mut quota = FencedDocument::<Quota>::open(&node.documents(), &"quota".parse()?, &guard).await?;
/// let left = quota.get().map_or(1000, |quota| quota.left);
/// match quota.put(&guard, Quota { left: left - 1 }).await {
///     Ok(()) => {} // it stands
///     Err(error) if error.is_fenced() => return Ok(()), // somebody else leads: stop
///     Err(error) => return Err(error.into()),
/// }
///
/// // Anybody may read it, on any node.
/// let found = node.documents().read::<Quota>(&"quota".parse()?).await?.ok_or("it is there")?;
/// assert_eq!((found.body.left, found.epoch), (999, guard.epoch()));
/// # drop(guard);
/// # node.shutdown().await;
/// # Ok(()) }
/// ```
///
/// The fields of `T` stand beside those of the envelope (`v`, `epoch`, `owner`, `nonce`), so `T` must not have fields of
/// these names, and must be a struct or a map. Fields that `T` does not know are kept. At most 1 MiB. A `T` that writes no
/// field at all reads back as `None`.
///
/// Not promised: that a former leader *knows* that it was replaced before it writes, or that work done elsewhere is fenced:
/// for that, see [`Fence`](crate::Fence). And if somebody deletes the object, the epoch in it is lost: until the present
/// leader writes again, a former one could.
pub struct FencedDocument<T: Serialize + DeserializeOwned + Send + Sync + 'static> {
    inline: InlineDocument<Fields<T>>,
    epoch: u64,
    /// Why this leader may no longer write it.
    fenced: Option<String>,
    /// What stands there cannot be read.
    blocked: Option<Error>,
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> FencedDocument<T> {
    /// Reads the document and takes it over. An object that cannot be read is left alone, and is an error.
    ///
    /// The guard is not kept: a kept one would count as work in progress.
    pub async fn open(
        documents: &Documents,
        name: &DocumentName,
        guard: &LeaderGuard,
    ) -> Result<FencedDocument<T>, Error> {
        FencedDocument::open_as(documents, name, guard, Unreadable::LeaveAlone).await
    }

    /// Like [`open`](FencedDocument::open), for a document that can be made anew at any time: an object that cannot be read
    /// is replaced, unless a newer major version wrote it.
    pub async fn open_or_replace(
        documents: &Documents,
        name: &DocumentName,
        guard: &LeaderGuard,
    ) -> Result<FencedDocument<T>, Error> {
        FencedDocument::open_as(documents, name, guard, Unreadable::Replace).await
    }

    async fn open_as(
        documents: &Documents,
        name: &DocumentName,
        guard: &LeaderGuard,
        unreadable: Unreadable,
    ) -> Result<FencedDocument<T>, Error> {
        let epoch = guard.epoch();
        let writer = Writer::Owner { epoch: Epoch(epoch), me: new_incarnation() };
        let rules = Rules { writer, adopt: true, unreadable, retry: RETRY };
        let client = documents.named(name, Fields::new())?;
        let inline = InlineDocument::new(client, rules);
        let mut document = FencedDocument { inline, epoch, fenced: None, blocked: None };
        document.stand(guard, None).await?;
        Ok(document)
    }

    /// The body that stands there, as far as this leader knows; `None` if nobody put one yet.
    pub fn get(&self) -> Option<&T> {
        self.inline.body().and_then(Option::as_ref).map(|body| &body.value)
    }

    /// The epoch it was opened in.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The document's key on the store.
    pub fn key(&self) -> &str {
        self.inline.client().key()
    }

    /// Writes this body, and returns when it stands. Lost answers are looked up, so `Ok` is certain; after an error,
    /// [`may_have_been_written`](Error::may_have_been_written) says whether the body can be there all the same, and
    /// the next call settles it. Once fenced, every further call is.
    ///
    /// Dropping the returned future is safe: the next call finds out what became of it.
    pub async fn put(&mut self, guard: &LeaderGuard, body: T) -> Result<(), Error> {
        let client = self.inline.client();
        let body = FieldsBody::new(body, &client.kept()).map_err(|rule| client.invalid(&rule))?;
        self.inline.document().touch();
        self.stand(guard, Some(body)).await
    }

    /// Sends what it takes until the newest revision stands. Without a body, what was found is written back.
    async fn stand(&mut self, guard: &LeaderGuard, body: Option<Arc<FieldsBody<T>>>) -> Result<(), Error> {
        let opening = body.is_none();
        let revision = self.inline.document().revision();
        let (mut failures, mut unsure) = (0, false);
        if guard.epoch() != self.epoch {
            let (opened, held) = (self.epoch, guard.epoch());
            let detail =
                format!("it was opened in epoch {opened}, but the guard is of epoch {held}: open it again");
            return Err(self.inline.fenced(&detail, false));
        }
        for _ in 0..REQUESTS_MAX {
            if let Some(detail) = &self.fenced {
                return Err(self.inline.fenced(detail, unsure));
            }
            if let Err(ended) = guard.check() {
                return Err(self.inline.fenced(&ended.to_string(), unsure));
            }
            let writes = match &body {
                Some(body) => Some(body.clone()),
                None => self.inline.body().cloned().flatten(),
            };
            let (what, unknown) = match self.inline.step(Some(guard), Some(&writes)).await {
                Step::Settled { what, unknown, .. } => (what, unknown),
                Step::Idle if self.inline.document().is_confirmed(revision) => return Ok(()),
                Step::Idle => break,
                // Asking again would not help yet.
                Step::Wait(_) if self.blocked.is_some() => break,
                Step::Wait(pause) => {
                    // If leadership ends meanwhile, the check above tells.
                    let _ = guard.run(tokio::time::sleep(pause)).await;
                    continue;
                }
            };
            unsure |= unknown;
            self.blocked = None;
            match what {
                What::Landed { .. } if self.inline.document().is_confirmed(revision) => return Ok(()),
                What::Superseded(Epoch(epoch)) => {
                    self.fenced = Some(format!("the leader of epoch {epoch} owns it now"));
                }
                What::Overtaken(_) => self.fenced = Some("somebody else owns it now".to_owned()),
                What::Loaded if !opening => self.fenced = Some("somebody else owns it now".to_owned()),
                What::Blocked { .. } => {
                    self.blocked = Some(self.inline.blocked());
                    break;
                }
                What::Failed { denied: true, .. } => return Err(self.inline.failed(true, unsure)),
                What::Failed { .. } => {
                    failures += 1;
                    if failures == FAILURES_MAX && guard.is_valid() {
                        return Err(self.inline.failed(false, unsure));
                    }
                }
                What::Landed { .. }
                | What::Loaded
                | What::Nothing
                | What::Same
                | What::Empty
                | What::Shared
                | What::Removed => {}
            }
        }
        Err(self.blocked.clone().unwrap_or_else(|| self.inline.raced(unsure)))
    }
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> fmt::Debug for FencedDocument<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FencedDocument({}, epoch {})", self.key(), self.epoch)
    }
}
