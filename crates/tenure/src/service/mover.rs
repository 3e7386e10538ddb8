//! A plugin's workers follow it into fallback: from the global prefix to the plugin's own, under one handle.

use super::Service;
use super::keeper::Face;
use crate::error::Error;
use crate::keys::Keys;
use crate::workers::{Worker, WorkerEnd, WorkerHost, WorkerPhase, WorkerSpec, WorkerStatus};
use std::sync::Arc;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

/// Registers a worker where its plugin is, now and later.
///
/// While it moves it keeps what it has: what enables it is the leadership of the arbiter in force, not where its object is.
pub(super) fn register(service: &Arc<Service>, face: &Face, spec: &WorkerSpec) -> Result<Worker, Error> {
    let store = Arc::clone(&service.node.lanes().bulk);
    let (settings, reporter) = (Arc::new(service.settings.clone()), service.node.reporter().clone());
    let mut keys = face.keys.subscribe();
    let here = keys.borrow_and_update().clone();
    let host = WorkerHost::new(store, here, settings, reporter, face.leadership.subscribe());
    let first = host.register(spec)?;
    let (status, watcher) = watch::channel(WorkerStatus::default());
    let (stop, stopped) = oneshot::channel();
    let silent = CancellationToken::new();
    let worker =
        Worker::shown(first.info().clone(), face.leadership.subscribe(), watcher, stop, silent.clone());
    let mover = Mover { spec: spec.clone(), host, keys, status, now: first };
    tokio::spawn(mover.run(stopped, silent));
    Ok(worker)
}

struct Mover {
    spec: WorkerSpec,
    host: WorkerHost,
    keys: watch::Receiver<Keys>,
    status: watch::Sender<WorkerStatus>,
    now: Worker,
}

impl Mover {
    async fn run(mut self, mut stopped: oneshot::Receiver<()>, silent: CancellationToken) {
        let end = loop {
            let mut status = self.now.status();
            let seen = status.borrow_and_update().clone();
            if let WorkerPhase::Ended(end) = seen.phase {
                break end;
            }
            self.show(seen);
            tokio::select! {
                biased;
                () = silent.cancelled() => {
                    self.now.fall_silent();
                    break self.now.ended().await;
                }
                _ = &mut stopped => break self.now.deregister().await,
                changed = self.keys.changed() => match changed {
                    Ok(()) => match self.moved().await {
                        Ok(there) => self = there,
                        Err((sender, end)) => {
                            sender.send_replace(ended(end));
                            return;
                        }
                    },
                    // The plugin has left; its workers have nobody to work for.
                    Err(_) => break self.now.deregister().await,
                },
                changed = status.changed() => if changed.is_err() {
                    break WorkerEnd::Died;
                },
            }
        };
        self.status.send_replace(ended(end));
    }

    /// Leaves the old place before it goes to the new one. Gives up on a place that refuses after a few requests.
    async fn moved(mut self) -> Result<Mover, (watch::Sender<WorkerStatus>, WorkerEnd)> {
        self.now.deregister().await;
        let there = self.keys.borrow_and_update().clone();
        match self.host.elsewhere(there).register(&self.spec) {
            Ok(now) => Ok(Mover { now, ..self }),
            // The same settings accepted the same specification before.
            Err(error) => Err((self.status, WorkerEnd::Refused(error))),
        }
    }

    /// A worker that was registered stays so while it moves.
    fn show(&self, seen: WorkerStatus) {
        self.status.send_if_modified(|shown| {
            let moving = shown.phase == WorkerPhase::Registered && seen.phase == WorkerPhase::Registering;
            let next = if moving { WorkerStatus { phase: WorkerPhase::Registered, ..seen } } else { seen };
            std::mem::replace(shown, next.clone()) != next
        });
    }
}

fn ended(end: WorkerEnd) -> WorkerStatus {
    WorkerStatus { phase: WorkerPhase::Ended(end), ..WorkerStatus::default() }
}
