//! Changing a document that has many writers, or somebody else's.

use super::inline::{InlineDocument, Step, new_incarnation};
use super::{Codec, DocumentClient, DocumentError};
use tenure_core::document::{BackOff, Rules, Unreadable, What, Writer};

/// Most writes of one change against others who write too, and most requests that fail.
const TRIES_MAX: u32 = 6;

/// Pauses after requests that failed.
const RETRY: BackOff = BackOff { first_ms: 50, max_ms: 800 };

/// What a change came to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// It did not exist.
    Created,
    /// It differed.
    Changed,
    /// There was nothing to do; nothing was written.
    Unchanged,
}

impl<C: Codec<Body: Clone>> DocumentClient<C> {
    /// Reads, asks `change` what to write, and writes it on condition that nobody was faster; asks again if somebody was.
    /// Epoch and owner stay as they are. The second argument of `change` says that an earlier write of this call may have
    /// landed.
    pub(crate) async fn update<E: From<DocumentError>>(
        &self,
        mut change: impl FnMut(Option<&C::Body>, bool) -> Result<Option<C::Body>, E>,
    ) -> Result<Change, E> {
        let writer = Writer::Guest { me: new_incarnation() };
        let rules = Rules { writer, adopt: false, unreadable: Unreadable::LeaveAlone, retry: RETRY };
        let mut document = InlineDocument::new(self.clone(), rules);
        let (mut wanted, mut done, mut unsure) = (None, Change::Unchanged, false);
        let (mut writes, mut failures) = (0, 0);
        loop {
            let (what, unknown) = match document.step(None, wanted.as_ref()).await {
                Step::Settled { what, unknown } => (what, unknown),
                Step::Wait(pause) => {
                    tokio::time::sleep(pause).await;
                    continue;
                }
                // Everything wanted stands.
                Step::Idle => return Ok(done),
            };
            unsure |= unknown;
            match what {
                What::Landed { .. } => return Ok(done),
                What::Loaded | What::Empty | What::Shared => {
                    if writes == TRIES_MAX {
                        return Err(document.raced(unsure).into());
                    }
                    writes += 1;
                    wanted = change(document.body(), unsure)?;
                    done = match (&wanted, document.body()) {
                        // If an answer was lost, that write did it.
                        (None, _) => return Ok(if unsure { done } else { Change::Unchanged }),
                        (Some(_), None) => Change::Created,
                        (Some(_), Some(_)) => Change::Changed,
                    };
                    document.document().touch();
                }
                What::Blocked { newer, .. } => return Err(document.blocked(newer).into()),
                What::Failed { denied: true, .. } => return Err(document.failed(true, unsure).into()),
                What::Failed { .. } => {
                    failures += 1;
                    if failures == TRIES_MAX {
                        return Err(document.failed(false, unsure).into());
                    }
                }
                What::Nothing | What::Same => {}
                What::Overtaken(_) | What::Superseded(_) | What::Removed => {
                    debug_assert!(false, "a guest owns nothing and removes nothing");
                    return Err(document.raced(unsure).into());
                }
            }
        }
    }
}
