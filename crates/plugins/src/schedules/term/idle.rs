//! A leader without schedules: it looks for the first one and does not take over until then. Taking over writes every part of the
//! ledger, and a cluster without schedules should neither pay nor wait for that.

use super::super::runner::{Inner, RunnerView, ScheduleError};
use super::READ_RETRY;
use std::time::Duration;
use tenure::process::ProcessContext;
use tokio::time::Instant;

/// Empties the view when the term is over, however it ends.
pub(super) struct EmptyViewOnDrop<'a>(pub(super) &'a Inner);

impl Drop for EmptyViewOnDrop<'_> {
    fn drop(&mut self) {
        self.0.figures.end_term();
        self.0.webhooks.know(None);
        self.0.view.send_replace(RunnerView::default());
    }
}

/// How often to look whether anybody asks for anything.
const LOOK: Duration = Duration::from_secs(1);

/// Waits until somebody asks for something, or there is anything that a former leader left.
pub(super) async fn until_needed(inner: &Inner, context: &ProcessContext) {
    let mut asked = inner.asked.lock().await;
    let (mut idle, mut trouble) = (false, None);
    let mut next_list = Instant::now();
    loop {
        // Who submits a job or changes a schedule says so in one document. What came there by other means is found by a list.
        let lists = !idle || Instant::now() >= next_list;
        let needed = match lists {
            true => {
                is_needed(inner, if idle { &["schedules/"] } else { &["jobs/ledger-", "schedules/"] }).await
            }
            false => inner.schedules.is_leader_asked().await,
        };
        let (found, pause) = match needed {
            Ok(true) => return,
            Ok(false) => {
                if lists {
                    next_list = Instant::now() + inner.options.look_interval;
                }
                idle = true;
                (None, LOOK.min(inner.options.look_interval))
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

/// Whether there is anything whose key begins like this.
async fn is_needed(inner: &Inner, beginnings: &[&str]) -> Result<bool, String> {
    for beginning in beginnings {
        let keys = format!("{}/{beginning}", inner.schedules.prefix());
        let (entries, _) = inner.schedules.list_folder(&keys, 1).await?;
        if !entries.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}
