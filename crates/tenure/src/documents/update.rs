//! Changing a document that has many writers, or somebody else's.

use super::inline::{InlineDocument, Step, new_incarnation};
use super::{Codec, DocumentClient};
use crate::error::Error;
use tenure_core::document::{BackOff, Rules, Unreadable, What, Writer};

/// How often a change is tried.
#[derive(Clone, Copy)]
pub(crate) struct Tries {
    /// Most writes, against others who write too and answers that get lost.
    pub(crate) writes: u32,
    /// Most requests that certainly failed, as long as nothing can have landed.
    pub(crate) failures: u32,
}

/// How often a change of anybody's document is tried.
pub(crate) const TRIES: Tries = Tries { writes: 6, failures: 6 };

/// Most requests that fail while a write may have landed.
const LOOKS_MAX: u32 = 6;

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

impl Change {
    /// The name used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Change::Created => "created",
            Change::Changed => "changed",
            Change::Unchanged => "unchanged",
        }
    }
}

impl<C: Codec<Body: Clone>> DocumentClient<C> {
    /// Reads, asks `change` what to write, and writes it on condition that nobody was faster; asks again if somebody was.
    /// Epoch and owner stay as they are. The second argument of `change` says that an earlier write of this call may have
    /// landed.
    pub(crate) async fn update<E: From<Error>>(
        &self,
        tries: Tries,
        mut change: impl FnMut(Option<&C::Body>, bool) -> Result<Option<C::Body>, E>,
    ) -> Result<Change, E> {
        let writer = Writer::Guest { me: new_incarnation() };
        let rules = Rules { writer, adopt: false, unreadable: Unreadable::LeaveAlone, retry: RETRY };
        let mut document = InlineDocument::new(self.clone(), rules);
        let (mut wanted, mut done, mut unsure) = (None, Change::Unchanged, false);
        let (mut writes, mut failures) = (0, 0);
        loop {
            // After the last write, it is only looked for.
            let body = wanted.as_ref().filter(|_| writes < tries.writes);
            let (what, unknown) = match document.step(None, body).await {
                Step::Settled { what, wrote, unknown } => {
                    writes += u32::from(wrote);
                    (what, unknown)
                }
                Step::Wait(pause) => {
                    tokio::time::sleep(pause).await;
                    continue;
                }
                Step::Idle if unsure => return Err(document.failed(false, true).into()),
                Step::Idle => return Err(document.raced(false).into()),
            };
            unsure |= unknown;
            match what {
                What::Landed { .. } => return Ok(done),
                What::Loaded | What::Empty | What::Shared => {
                    wanted = change(document.body(), unsure)?;
                    done = match (&wanted, document.body()) {
                        // If an answer was lost, that write did it.
                        (None, _) => return Ok(done),
                        (Some(_), None) => Change::Created,
                        (Some(_), Some(_)) => Change::Changed,
                    };
                    document.document().touch();
                }
                What::Blocked { .. } => return Err(document.blocked().into()),
                What::Failed { denied: true, .. } => return Err(document.failed(true, unsure).into()),
                What::Failed { .. } if unknown => {}
                What::Failed { .. } => {
                    failures += 1;
                    if failures >= if unsure { LOOKS_MAX } else { tries.failures } {
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
