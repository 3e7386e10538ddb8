//! Keeps a node's candidate alive: each of its lives is a separate task.

use super::StopReason;
use crate::election::{Command, Driver, ElectionOutputs, SeatClient};
use crate::event::{EventKind, LostReason};
use crate::guard::Leadership;
use crate::keys::Keys;
use crate::settings::Settings;
use crate::workers::Pointers;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{Coordinator, Epoch, Holder, Incarnation, Role, StopCause};
use tenure_store::Lanes;
use tokio::sync::{Mutex, mpsc, watch};

/// Pause before a dead candidate is started again. It doubles every consecutive time …
const RESTART_FIRST_MS: u64 = 100;
/// … but is never longer than this,
const RESTART_MAX_MS: u64 = 30_000;
/// and the count starts over once it has lived this long.
const RESTART_FORGIVEN_MS: u64 = 60_000;

/// Keeps the candidate alive: restart strategy *permanent*, with bounded backoff.
pub(super) struct Supervisor {
    pub(super) keys: Keys,
    pub(super) settings: Settings,
    pub(super) lanes: Lanes,
    pub(super) outputs: ElectionOutputs,
    pub(super) pointers: Pointers,
    pub(super) random: Option<u64>,
    pub(super) floor: u64,
    pub(super) end: watch::Sender<Option<StopReason>>,
}

impl Supervisor {
    pub(super) async fn run(self, inbox: mpsc::Receiver<Command>) {
        // The candidate's lives share it, one at a time; it survives a panic in one life.
        let inbox = Arc::new(Mutex::new(inbox));
        let mut deaths = 0u32;
        let reason = loop {
            let born_ms = self.outputs.reporter.clock.now_ms();
            // A separate task, so that a panic ends there and not here.
            let life = tokio::spawn(self.live(Arc::clone(&inbox)));
            match life.await {
                Ok(StopCause::Asked) => break StopReason::Asked,
                Ok(StopCause::StoreUnsafe) => break StopReason::StoreUnsafe,
                Err(error) if error.is_cancelled() => break StopReason::Asked,
                Err(_) => {}
            }
            let lived_ms = self.outputs.reporter.clock.now_ms().saturating_sub(born_ms);
            deaths = if lived_ms >= RESTART_FORGIVEN_MS { 1 } else { deaths.saturating_add(1) };
            self.mourn(deaths).await;
        };
        self.outputs.leadership.send_replace(Leadership::default());
        self.end.send_replace(Some(reason));
    }

    /// One life of the candidate, with its own incarnation: it never mistakes a former life's seat for its own.
    fn live(
        &self,
        inbox: Arc<Mutex<mpsc::Receiver<Command>>>,
    ) -> impl Future<Output = StopCause> + Send + use<> {
        let me =
            Holder { node: self.outputs.reporter.node.clone(), incarnation: Incarnation(rand::random()) };
        let store = SeatClient::new(
            self.lanes.clone(),
            self.keys.clone(),
            me.clone(),
            &self.settings,
            Arc::clone(&self.outputs.reporter.counters),
            self.pointers.clone(),
        );
        let core = Coordinator::new(self.settings.core_config(), me);
        let driver = Driver::new(core.above(Epoch(self.floor)), store, self.outputs.clone(), &self.settings);
        let random = self.random.unwrap_or_else(rand::random);
        async move { driver.run(random, &mut *inbox.lock().await).await }
    }

    /// The candidate died. Its lease was withdrawn with it; report that, and wait a little before the next life.
    async fn mourn(&self, deaths: u32) {
        let last = self.outputs.leadership.borrow().clone();
        if matches!(last.role, Some(Role::Leader | Role::Draining)) {
            let acted_until_boot_ms = self.outputs.reporter.clock.now_ms();
            let reason = LostReason::Panic;
            let lost = EventKind::LostLeadership { reason, vacated: false, acted_until_boot_ms };
            self.outputs.emit(last.epoch, lost);
        }
        self.outputs.leadership.send_modify(|leadership| leadership.role = None);
        let wait_ms = RESTART_FIRST_MS.saturating_mul(1 << (deaths - 1).min(16)).min(RESTART_MAX_MS);
        self.outputs.emit(last.epoch, EventKind::CandidateRestarted { attempt: deaths, wait_ms });
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
    }
}
