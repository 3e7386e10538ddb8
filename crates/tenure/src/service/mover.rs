//! A plugin's workers follow its arbiter: from the global prefix to the plugin's own and back, under one handle.

use super::Service;
use super::keeper::Face;
use crate::keys::Keys;
use crate::plugin::Mode;
use crate::workers::{Worker, WorkerEnd, WorkerError, WorkerHost, WorkerPhase, WorkerSpec, WorkerStatus};
use std::sync::Arc;
use tenure_core::NodeId;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

/// Registers a worker with whichever arbiter is in force, now and later.
///
/// While it moves it keeps what it has: it is enabled by the leadership of the arbiter in force, not by where its object is.
pub(super) fn register(
    service: &Arc<Service>,
    plugin: &NodeId,
    face: &Face,
    spec: &WorkerSpec,
) -> Result<Worker, WorkerError> {
    let host = |mode| {
        let keys = match mode {
            Mode::Global => Keys::global(&service.namespace),
            Mode::Fallback | Mode::PerPlugin => Keys::per_plugin(&service.namespace, plugin),
        };
        let store = Arc::clone(&service.node.lanes().bulk);
        let (settings, voice) = (Arc::new(service.settings.clone()), service.node.voice().clone());
        WorkerHost::new(store, keys, settings, voice, face.leadership.subscribe())
    };
    let mut mode = face.mode.subscribe();
    let first = host(*mode.borrow_and_update()).register(spec)?;
    let (status, watcher) = watch::channel(WorkerStatus::default());
    let (stop, stopped) = oneshot::channel();
    let silent = CancellationToken::new();
    let worker =
        Worker::shown(first.facts().clone(), face.leadership.subscribe(), watcher, stop, silent.clone());
    let other_places = (host(Mode::Global), host(Mode::Fallback));
    let mover = Mover { spec: spec.clone(), places: other_places, mode, status, now: first };
    tokio::spawn(mover.run(stopped, silent));
    Ok(worker)
}

struct Mover {
    spec: WorkerSpec,
    /// The global prefix, and the plugin's own.
    places: (WorkerHost, WorkerHost),
    mode: watch::Receiver<Mode>,
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
                changed = self.mode.changed() => match changed {
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

    /// Leaves the old place before it goes to the new one. A place that refuses is left after a few requests.
    async fn moved(mut self) -> Result<Mover, (watch::Sender<WorkerStatus>, WorkerEnd)> {
        self.now.deregister().await;
        let host = match *self.mode.borrow_and_update() {
            Mode::Global => &self.places.0,
            Mode::Fallback | Mode::PerPlugin => &self.places.1,
        };
        match host.register(&self.spec) {
            Ok(now) => Ok(Mover { now, ..self }),
            // The same settings accepted the same specification before.
            Err(error) => Err((self.status, WorkerEnd::Refused(error))),
        }
    }

    /// One that was registered stays so while it moves.
    fn show(&self, seen: WorkerStatus) {
        self.status.send_if_modified(|shown| {
            let moving = shown.phase == WorkerPhase::Registered && seen.phase == WorkerPhase::Registering;
            let next = if moving { WorkerStatus { phase: WorkerPhase::Registered, ..seen } } else { seen };
            std::mem::replace(shown, next.clone()) != next
        });
    }
}

fn ended(end: WorkerEnd) -> WorkerStatus {
    WorkerStatus { phase: WorkerPhase::Ended(end), enabled: false }
}
