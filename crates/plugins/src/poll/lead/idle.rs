//! A leader without schedules: it looks for the first one, and takes nothing over meanwhile. Taking over writes every part of the
//! ledger, which nobody should pay for, or wait for, who does not poll.

use super::super::orchestrator::{Inner, PollError, PollView};
use super::LOOK_AGAIN;
use tenure::process::ProcessContext;
use tenure::store::List;

/// Empties the view when the term is over, however it ends.
pub(super) struct Shown<'a>(pub(super) &'a Inner);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.0.figures.rest();
        self.0.view.send_replace(PollView::default());
    }
}

/// What a look found.
enum Use {
    Some,
    None,
    /// And why.
    Unknown(String),
}

/// Until there is a schedule, or anything that a former leader left.
pub(super) async fn until_used(inner: &Inner, context: &ProcessContext) {
    let mut asked = inner.asked.lock().await;
    let (mut idle, mut trouble) = (false, None);
    loop {
        // Only leaders write tasks: what is not there at the beginning does not come by itself, but for a last write of the
        // leader before that is late, and waits for the next one who takes over.
        let folders: &[&str] = if idle { &["schedules/"] } else { &["tasks/", "schedules/"] };
        let (found, pause) = match look(inner, folders).await {
            Use::Some => return,
            Use::None => {
                idle = true;
                (None, inner.options.look_interval)
            }
            Use::Unknown(why) => (Some(why), LOOK_AGAIN),
        };
        if found.is_some() && found != trouble {
            tracing::warn!(target: "tenure", "polls: {}", found.as_deref().unwrap_or_default());
        }
        trouble = found;
        let epoch = context.epoch();
        inner.view.send_replace(PollView { epoch, trouble: trouble.clone(), ..PollView::default() });
        // Without schedules there is nothing to wait for; and what cannot be listed must not have it started anew for ever.
        context.ready();
        tokio::select! {
            biased;
            Some(run) = asked.recv() => {
                // Whoever asked may have given up.
                let _ = run.reply.send(Err(PollError::Unknown(run.schedule.to_string())));
            }
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn look(inner: &Inner, folders: &[&str]) -> Use {
    let root = inner.shelf.keys.root();
    for folder in folders {
        let folder = format!("{root}/{folder}");
        let list = tokio::time::timeout(inner.shelf.timeout, inner.shelf.store.list(&folder, 1)).await;
        match list {
            Ok(List::Entries { entries, .. }) if entries.is_empty() => {}
            Ok(List::Entries { .. }) => return Use::Some,
            Ok(List::Unavailable(trouble) | List::Denied(trouble)) => {
                return Use::Unknown(format!("{folder}: {trouble}"));
            }
            Err(_) => return Use::Unknown(format!("{folder}: no answer in time")),
        }
    }
    Use::None
}
