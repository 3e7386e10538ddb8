//! Work that is done once for a key, whoever wants to do it. `tenure once` does it for commands.
//!
//! A key is an election of its own. Whoever leads it keeps a record beside the seat, and records that it begins before it
//! begins: so nobody begins a second time unknowingly, whatever dies.
//!
//! ```
//! use std::time::Duration;
//! use tenure::once::{OnceEnd, OnceTerms, once};
//! use tenure::{Node, Settings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let settings = Settings::builder().store("memory:").node("pod-a").startup_jitter_max(Duration::ZERO).build()?;
//! let node = Node::builder(settings).per_plugin(&"migrate-41".parse()?).start().await?;
//! let guard = node.lead().await.ok_or("the node was stopped")?;
//! let terms = OnceTerms { keep: Duration::from_secs(86_400), retry: false };
//! let migrate = async || 0; // The exit code.
//! assert_eq!(once(&node.documents(), node.id(), &guard, terms.clone(), migrate).await?, OnceEnd::Done(0));
//! let never = async || panic!("it was done");
//! assert_eq!(once(&node.documents(), node.id(), &guard, terms, never).await?, OnceEnd::Done(0));
//! # drop(guard);
//! # node.shutdown().await;
//! # Ok(()) }
//! ```

use crate::clock::TokioClock;
use crate::documents::{Codec, DocumentClient, Documents, Fields, FieldsBody, new_incarnation};
use crate::error::{Error, ErrorKind};
use crate::guard::LeaderGuard;
use crate::shell::{Happening, Host, Shell, or_never};
use crate::wire::Unreadable;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::ops::ControlFlow;
use tenure_core::document::{DocumentAnswer, DocumentRequest, Stamp};
use tenure_core::machine::Now;
use tenure_core::{DocumentName, Epoch, IdError, NodeId, Once, OnceCommand, OnceOutput};
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

pub use tenure_core::{OnceEnd, OnceNext, OnceRecord, OnceState, OnceTerms};

/// The record as it is stored.
#[derive(Serialize, Deserialize)]
struct RecordFields {
    /// `running`, `ended` or `lost`.
    state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<u8>,
    node: String,
    at: i64,
}

impl RecordFields {
    fn of(record: &OnceRecord) -> RecordFields {
        let (state, code) = match record.state {
            OnceState::Running => ("running", None),
            OnceState::Ended { code } => ("ended", Some(code)),
            OnceState::Lost => ("lost", None),
        };
        RecordFields { state: state.to_owned(), code, node: record.node.to_string(), at: record.at_ms }
    }

    /// A state that is not known counts as running: nobody can tell what was done.
    fn read(&self) -> Result<OnceRecord, IdError> {
        let state = match (self.state.as_str(), self.code) {
            ("ended", Some(code)) => OnceState::Ended { code },
            ("lost", _) => OnceState::Lost,
            _ => OnceState::Running,
        };
        Ok(OnceRecord { state, node: NodeId::new(&self.node)?, at_ms: self.at })
    }
}

#[derive(Clone)]
struct RecordCodec;

impl Codec for RecordCodec {
    type Body = OnceRecord;
    type Kept = Map<String, Value>;
    const WHAT: &'static str = "a record of work done once";

    fn read(&self, bytes: &[u8]) -> Result<(Stamp, OnceRecord, Self::Kept), Unreadable> {
        let (stamp, body, kept) = Fields::<RecordFields>::new().read(bytes)?;
        let body = body.ok_or_else(|| Unreadable::corrupt("`state` is missing"))?;
        let record = body.value.read().map_err(|error| Unreadable::corrupt(format!("`node`: {error}")))?;
        Ok((stamp, record, kept))
    }

    fn write(&self, stamp: Stamp, record: &OnceRecord, kept: &Self::Kept) -> Vec<u8> {
        let body = FieldsBody::new(RecordFields::of(record), kept).ok();
        Fields::new().write(stamp, &body, kept)
    }
}

fn name() -> DocumentName {
    DocumentName::new("record").expect("this one is valid")
}

/// The record of the election that these documents are of, if there is one. One read; anybody may.
pub async fn read_record(documents: &Documents) -> Result<Option<OnceRecord>, Error> {
    let Some(found) = documents.read::<RecordFields>(&name()).await? else { return Ok(None) };
    let record = found.body.read().map_err(|error| Error::new(ErrorKind::Invalid, error))?;
    Ok(Some(record))
}

struct OnceHost {
    client: DocumentClient<RecordCodec>,
    guard: LeaderGuard,
    begin: Option<oneshot::Sender<()>>,
    ended: Option<oneshot::Receiver<u8>>,
}

impl Host<Once> for OnceHost {
    type End = OnceEnd;

    fn carry(
        &self,
        request: DocumentRequest<OnceRecord>,
    ) -> impl Future<Output = DocumentAnswer<OnceRecord>> + Send + 'static {
        let (client, guard) = (self.client.clone(), self.guard.clone());
        async move { client.carry(Some(&guard), request).await }
    }

    fn output(&mut self, _: Now, _: &Once, output: OnceOutput) -> ControlFlow<OnceEnd> {
        match output {
            OnceOutput::Run => {
                // Whoever waits for it may have gone away.
                let _ = self.begin.take().map(|begin| begin.send(()));
                ControlFlow::Continue(())
            }
            OnceOutput::Over(end) => ControlFlow::Break(end),
        }
    }

    async fn next(&mut self) -> Happening<Once, OnceEnd> {
        tokio::select! {
            biased;
            code = or_never(self.ended.as_mut()) => {
                self.ended = None;
                match code {
                    Ok(code) => Happening::Command(OnceCommand::Ended { code }),
                    Err(_) => Happening::Nothing,
                }
            }
            () = self.guard.ended() => Happening::End(OnceEnd::Superseded),
        }
    }
}

/// Does the work, unless it was done: for whoever leads the election of the key, whose documents these are. The work returns an
/// exit code, which is recorded, and must stop when the guard ends.
///
/// [`OnceEnd::Superseded`] after the work has begun means that others will see the key as lost, or run it again if they may.
pub async fn once<W: Future<Output = u8>>(
    documents: &Documents,
    node: &NodeId,
    guard: &LeaderGuard,
    terms: OnceTerms,
    work: impl FnOnce() -> W,
) -> Result<OnceEnd, Error> {
    let (begin, begins) = oneshot::channel();
    let (ended, ends) = oneshot::channel();
    let host = OnceHost {
        client: documents.named(&name(), RecordCodec)?,
        guard: guard.clone(),
        begin: Some(begin),
        ended: Some(ends),
    };
    let machine = Once::new(node.clone(), Epoch(guard.epoch()), new_incarnation(), terms);
    let over = tokio::spawn(Shell::new(machine, host, TokioClock::new()).run());
    let over = AbortOnDropHandle::new(over);
    // What may begin, and does not because leadership is over, was recorded as begun: nobody can tell.
    if begins.await.is_ok() && guard.check().is_ok() {
        let _ = ended.send(work().await);
    }
    Ok(over.await.unwrap_or(OnceEnd::Superseded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_what_was_recorded_and_nonsense_may_have_run() {
        let node = NodeId::new("pod-a").expect("valid");
        for state in [OnceState::Running, OnceState::Ended { code: 7 }, OnceState::Lost] {
            let record = OnceRecord { state, node: node.clone(), at_ms: 5 };
            let text = serde_json::to_string(&RecordFields::of(&record)).expect("it serializes");
            let fields: RecordFields = serde_json::from_str(&text).expect("our own");
            assert_eq!(fields.read(), Ok(record));
        }
        let odd = RecordFields { state: "ended".to_owned(), code: None, node: "pod-a".to_owned(), at: 0 };
        assert_eq!(odd.read().map(|record| record.state), Ok(OnceState::Running));
    }
}
