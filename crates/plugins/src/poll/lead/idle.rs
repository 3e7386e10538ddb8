//! A leader without schedules: it looks for the first one, and takes nothing over meanwhile. Taking over writes every part of the
//! ledger, which nobody should pay for, or wait for, who does not poll.

use super::super::orchestrator::{Inner, PollError, PollView};
use tenure::ProcessContext;
use tenure::store::List;

/// Empties the view when the term is over, however it ends.
pub(super) struct Shown<'a>(pub(super) &'a Inner);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.0.figures.rest();
        self.0.view.send_replace(PollView::default());
    }
}

/// Until there is a schedule, or anything that a former leader left.
pub(super) async fn until_used(inner: &Inner, context: &ProcessContext) {
    let mut asked = inner.asked.lock().await;
    let mut idle = false;
    loop {
        // Only leaders write tasks: what is not there at the beginning does not come by itself, but for a last write of the
        // leader before that is late, and waits for the next one who takes over.
        let folders: &[&str] = if idle { &["schedules/"] } else { &["tasks/", "schedules/"] };
        if is_used(inner, folders).await {
            return;
        }
        if !std::mem::replace(&mut idle, true) {
            inner.view.send_replace(PollView { epoch: context.epoch(), ..PollView::default() });
            context.ready();
        }
        tokio::select! {
            biased;
            Some(run) = asked.recv() => {
                // Whoever asked may have given up.
                let _ = run.reply.send(Err(PollError::Unknown(run.schedule.to_string())));
            }
            () = tokio::time::sleep(inner.options.look_interval) => {}
        }
    }
}

/// What cannot be known is taken for used: whoever takes over finds out.
async fn is_used(inner: &Inner, folders: &[&str]) -> bool {
    let root = inner.shelf.keys.root();
    for folder in folders {
        let folder = format!("{root}/{folder}");
        let list = tokio::time::timeout(inner.shelf.timeout, inner.shelf.store.list(&folder, 1)).await;
        match list {
            Ok(List::Entries { entries, .. }) if entries.is_empty() => {}
            Ok(List::Entries { .. } | List::Unavailable(_) | List::Denied(_)) | Err(_) => return true,
        }
    }
    false
}
