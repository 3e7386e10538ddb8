//! A leader without schedules: it looks for the first one and does not take over until then. Taking over writes every part of the
//! ledger, and a cluster without schedules should neither pay nor wait for that.

use super::super::runner::{Inner, RunnerView, ScheduleError};
use super::READ_RETRY;
use tenure::process::ProcessContext;

/// Empties the view when the term is over, however it ends.
pub(super) struct EmptyViewOnDrop<'a>(pub(super) &'a Inner);

impl Drop for EmptyViewOnDrop<'_> {
    fn drop(&mut self) {
        self.0.figures.end_term();
        self.0.view.send_replace(RunnerView::default());
    }
}

/// Waits until there is a schedule, or anything a former leader left.
pub(super) async fn until_needed(inner: &Inner, context: &ProcessContext) {
    let mut asked = inner.asked.lock().await;
    let (mut idle, mut trouble) = (false, None);
    loop {
        // Only leaders write jobs: if there are none at the beginning, none will appear, except for a late last write by the
        // previous leader, which can wait for the next takeover.
        let folders: &[&str] = if idle { &["schedules"] } else { &["jobs", "schedules"] };
        let (found, pause) = match is_needed(inner, folders).await {
            Ok(true) => return,
            Ok(false) => {
                idle = true;
                (None, inner.options.look_interval)
            }
            Err(why) => (Some(why), READ_RETRY),
        };
        if found.is_some() && found != trouble {
            tracing::warn!(target: "tenure", "cannot look for schedules: {}", found.as_deref().unwrap_or_default());
        }
        trouble = found;
        let epoch = context.epoch();
        inner.view.send_replace(RunnerView { epoch, trouble: trouble.clone(), ..RunnerView::default() });
        // Without schedules there is nothing to wait for; and a failing list must not restart the process forever.
        context.ready();
        tokio::select! {
            biased;
            Some(run) = asked.recv() => {
                // The caller may have given up.
                let _ = run.reply.send(Err(ScheduleError::Unknown(run.schedule.to_string())));
            }
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Whether anything is in these folders.
async fn is_needed(inner: &Inner, folders: &[&str]) -> Result<bool, String> {
    for folder in folders {
        let folder = format!("{}/{folder}/", inner.schedules.prefix());
        let (entries, _) = inner.schedules.list_folder(&folder, 1).await?;
        if !entries.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}
