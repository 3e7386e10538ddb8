//! A leader without schedules: it looks for the first one and does not take over until then. Taking over writes every part of the
//! ledger, and a cluster that does not poll should neither pay nor wait for that.

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

/// The result of a look.
enum Use {
    Some,
    None,
    /// With the reason.
    Unknown(String),
}

/// Waits until there is a schedule, or anything a former leader left.
pub(super) async fn until_used(inner: &Inner, context: &ProcessContext) {
    let mut asked = inner.asked.lock().await;
    let (mut idle, mut trouble) = (false, None);
    loop {
        // Only leaders write jobs: if there are none at the beginning, none will appear, except for a late last write by the
        // previous leader, which can wait for the next takeover.
        let folders: &[&str] = if idle { &["schedules/"] } else { &["jobs/", "schedules/"] };
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
        // Without schedules there is nothing to wait for; and a failing list must not restart the process forever.
        context.ready();
        tokio::select! {
            biased;
            Some(run) = asked.recv() => {
                // The caller may have given up.
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
