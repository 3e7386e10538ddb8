//! Calls one plugin, and isolates it from everybody else.

use super::{LeaderChange, Plugin};
use crate::election::Reporter;
use crate::event::{Event, EventKind};
use crate::guard::{LeaderGuard, Leadership};
use crate::process::panic_message;
use crate::settings::Settings;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::NodeId;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, watch};
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

/// Longest time for a notice. With more, a plugin that waits for something slow would miss more notices than it needs to.
const HANDLER_LIMIT: Duration = Duration::from_secs(5);

/// What the two loops of a plugin share.
#[derive(Clone)]
pub(super) struct Callbacks {
    name: Arc<str>,
    plugin: Arc<dyn Plugin>,
    leadership: watch::Receiver<Leadership>,
    reporter: Reporter,
    /// How long `promoted` has to return.
    grace: Duration,
    /// Ends both loops.
    pub(super) leave: CancellationToken,
}

impl Callbacks {
    pub(super) fn new(
        plugin: Arc<dyn Plugin>,
        leadership: watch::Receiver<Leadership>,
        reporter: Reporter,
        settings: &Settings,
    ) -> Callbacks {
        // Half of the drain; the other half is for stopping what did not stop by itself.
        let grace = settings.drain_timeout / 2;
        let leave = CancellationToken::new();
        Callbacks { name: Arc::from(plugin.name()), plugin, leadership, reporter, grace, leave }
    }

    /// Starts both loops. Leadership has its own loop: a notice that hangs must not hold up a demotion.
    pub(super) fn start(self, events: broadcast::Receiver<Event>) -> [JoinHandle<()>; 2] {
        let notices = Notices { callbacks: self.clone(), events, told: None };
        [tokio::spawn(self.lead()), tokio::spawn(notices.run())]
    }

    async fn lead(mut self) {
        let mut stuck: Option<JoinHandle<()>> = None;
        loop {
            let leads = self.leadership.borrow_and_update().is_leader();
            // Whichever seat was won: never start again beside work that did not stop.
            if let Some(task) = stuck.take_if(|_| leads) {
                self.leave.run_until_cancelled(task).await;
            }
            let guard = self.leadership.borrow_and_update().guard().filter(|_| !self.leave.is_cancelled());
            if let Some(guard) = guard {
                stuck = self.promote(guard).await;
            }
            let Some(Ok(())) = self.leave.run_until_cancelled(self.leadership.changed()).await else {
                return;
            };
        }
    }

    /// From promotion to demotion. Returns the work that did not stop.
    async fn promote(&self, lease: LeaderGuard) -> Option<JoinHandle<()>> {
        let epoch = lease.epoch();
        // Its own end: a plugin that leaves must stop even though the others continue.
        let (guard, end) = lease.scoped();
        drop(lease);
        let (plugin, given) = (Arc::clone(&self.plugin), guard.clone());
        let mut task = tokio::spawn(async move { plugin.promoted(given).await });
        let mut running = true;
        tokio::select! {
            biased;
            () = guard.ended() => {}
            () = self.leave.cancelled() => {}
            done = &mut task => {
                running = false;
                self.judge("promoted", done);
            }
        }
        if !running {
            // It is done, or it died; it is promoted again only after the next change.
            self.leave.run_until_cancelled(guard.ended()).await;
        }
        end.cancel();
        let stuck = if running { self.wind_down(&guard, task).await } else { None };
        drop(guard);
        let plugin = Arc::clone(&self.plugin);
        self.call("demoted", async move { plugin.demoted(epoch).await }).await;
        stuck
    }

    /// Leadership is over: the plugin may return by itself, is cut off where it awaits, and is reported if it does neither.
    async fn wind_down(&self, guard: &LeaderGuard, mut task: JoinHandle<()>) -> Option<JoinHandle<()>> {
        let grace = self.grace.min(guard.remaining());
        if let Ok(done) = tokio::time::timeout(grace, &mut task).await {
            self.judge("promoted", done);
            return None;
        }
        task.abort();
        let left = self.grace.min(guard.remaining());
        match tokio::time::timeout(left, &mut task).await {
            Ok(Err(error)) if error.is_cancelled() => None,
            Ok(done) => {
                self.judge("promoted", done);
                None
            }
            Err(_) => {
                self.failed("promoted", "it blocks its thread, so it cannot be stopped".to_owned());
                Some(task)
            }
        }
    }

    /// Runs a handler in its own task, for a bounded time.
    async fn call(&self, handler: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let mut task = tokio::spawn(work);
        match tokio::time::timeout(HANDLER_LIMIT, &mut task).await {
            Ok(done) => self.judge(handler, done),
            Err(_) => {
                task.abort();
                self.failed(handler, format!("cut off after {} ms", HANDLER_LIMIT.as_millis()));
            }
        }
    }

    fn judge(&self, handler: &'static str, done: Result<(), JoinError>) {
        if let Err(error) = done
            && error.is_panic()
        {
            self.failed(handler, format!("panicked: {}", panic_message(&*error.into_panic())));
        }
    }

    fn failed(&self, handler: &'static str, detail: String) {
        let epoch = self.leadership.borrow().epoch;
        let plugin = Arc::clone(&self.name);
        self.reporter.emit(epoch, EventKind::PluginFailed { plugin, handler, detail });
    }
}

/// The loop that delivers notices.
struct Notices {
    callbacks: Callbacks,
    events: broadcast::Receiver<Event>,
    /// The leader the plugin was last told about.
    told: Option<(NodeId, u64)>,
}

impl Notices {
    async fn run(mut self) {
        let leave = self.callbacks.leave.clone();
        // A running handler is dropped too: a plugin that leaves has no more to say.
        leave.run_until_cancelled(self.take()).await;
    }

    async fn take(&mut self) {
        let mut leadership = self.callbacks.leadership.clone();
        loop {
            tokio::select! {
                biased;
                event = self.events.recv() => match event {
                    Ok(event) => self.tell(event).await,
                    Err(RecvError::Lagged(missed)) => self.missed(missed).await,
                    Err(RecvError::Closed) => return,
                },
                changed = leadership.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    // Events from before the change come first.
                    if self.catch_up().await {
                        self.sync().await;
                    }
                }
            }
        }
    }

    /// Delivers the events so far; false if the channel is closed.
    async fn catch_up(&mut self) -> bool {
        loop {
            match self.events.try_recv() {
                Ok(event) => self.tell(event).await,
                Err(TryRecvError::Lagged(missed)) => self.missed(missed).await,
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Closed) => return false,
            }
        }
    }

    async fn tell(&mut self, event: Event) {
        if let EventKind::LeaderChanged { previous, new } = &event.kind {
            return self.change(previous.clone(), new.clone(), event.epoch).await;
        }
        // Telling a plugin of its own failures could go on forever, if it fails at that too.
        if matches!(event.kind, EventKind::PluginFailed { .. }) {
            return;
        }
        let plugin = Arc::clone(&self.callbacks.plugin);
        self.callbacks.call("event", async move { plugin.event(&event).await }).await;
    }

    async fn change(&mut self, previous: Option<NodeId>, new: NodeId, epoch: u64) {
        if self.told.as_ref().is_some_and(|(node, told)| *node == new && *told == epoch) {
            return;
        }
        self.told = Some((new.clone(), epoch));
        let namespace = Arc::clone(&self.callbacks.reporter.namespace);
        let change = LeaderChange { namespace, previous, new, epoch };
        let plugin = Arc::clone(&self.callbacks.plugin);
        self.callbacks.call("leader_changed", async move { plugin.leader_changed(&change).await }).await;
    }

    async fn missed(&mut self, missed: u64) {
        let now = self.callbacks.leadership.borrow().clone();
        let plugin = Arc::clone(&self.callbacks.plugin);
        self.callbacks.call("missed", async move { plugin.missed(missed, &now).await }).await;
        self.sync().await;
    }

    /// Tells the plugin about the present leader if no event did: some were missed, or another seat is in force.
    async fn sync(&mut self) {
        let (leader, epoch) = {
            let now = self.callbacks.leadership.borrow();
            (now.leader.clone(), now.epoch)
        };
        if let Some(leader) = leader {
            let previous = self.told.as_ref().map(|(node, _)| node.clone());
            self.change(previous, leader, epoch).await;
        }
    }
}
