//! Keeps a node's candidate alive: each of its lives is a separate task.

use super::StopReason;
use crate::election::{Command, ElectionHost, ElectionOutputs, SeatClient};
use crate::event::{EventKind, LostReason};
use crate::guard::Leadership;
use crate::keys::Keys;
use crate::settings::Settings;
use crate::shell::{Commands, Restarts, Shell, rest, restarted};
use crate::workers::SnapshotPointers;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{Coordinator, Epoch, Holder, Incarnation, Role, StopCause};
use tenure_store::Lanes;
use tokio::sync::{Mutex, mpsc, watch};

const RESTARTS: Restarts = Restarts {
    first: Duration::from_millis(100),
    most: Duration::from_secs(30),
    forgiven_after: Duration::from_secs(60),
};

/// Keeps the candidate alive: restart strategy *permanent*, with bounded backoff.
pub(super) struct Supervisor {
    pub(super) keys: Keys,
    pub(super) settings: Settings,
    pub(super) lanes: Lanes,
    pub(super) outputs: ElectionOutputs,
    pub(super) pointers: SnapshotPointers,
    pub(super) random: Option<u64>,
    pub(super) floor: u64,
    pub(super) end: watch::Sender<Option<StopReason>>,
}

impl Supervisor {
    pub(super) async fn run(self, inbox: mpsc::Receiver<Command>) {
        // The candidate's lives share it, one at a time; it survives a panic in one life.
        let commands = Arc::new(Mutex::new(Commands::new(inbox)));
        let life = || self.live(Arc::clone(&commands));
        let died = |deaths, pause| {
            self.died(deaths, pause);
            rest(pause)
        };
        let reason = match restarted(RESTARTS, life, died).await {
            Some(StopCause::StoreUnsafe) => StopReason::StoreUnsafe,
            Some(StopCause::Asked) | None => StopReason::Asked,
        };
        self.outputs.leadership.send_replace(Leadership::default());
        self.end.send_replace(Some(reason));
    }

    /// One life of the candidate, with its own incarnation: it never mistakes a former life's seat for its own.
    fn live(
        &self,
        commands: Arc<Mutex<Commands<Command>>>,
    ) -> impl Future<Output = StopCause> + Send + use<> {
        let (outputs, settings) = (self.outputs.clone(), self.settings.clone());
        let clock = Arc::clone(&outputs.reporter.clock);
        let me = Holder { node: outputs.reporter.node.clone(), incarnation: Incarnation(rand::random()) };
        let store = SeatClient::new(
            self.lanes.clone(),
            self.keys.clone(),
            me.clone(),
            &settings,
            Arc::clone(&outputs.reporter.counters),
            self.pointers.clone(),
        );
        let core = Coordinator::new(settings.core_config(), me).above(Epoch(self.floor));
        let random = self.random.unwrap_or_else(rand::random);
        async move {
            let commands = commands.lock_owned().await;
            let host = ElectionHost::new(random, commands, store, outputs, &settings);
            Shell::new(core, host, clock).run().await
        }
    }

    /// The candidate died. Its lease was withdrawn with it; report that.
    fn died(&self, deaths: u32, pause: Duration) {
        let last = self.outputs.leadership.borrow().clone();
        if matches!(last.role, Some(Role::Leader | Role::Draining)) {
            let acted_until_boot_ms = self.outputs.reporter.clock.now_ms();
            let reason = LostReason::Panic;
            let lost = EventKind::LostLeadership { reason, vacated: false, acted_until_boot_ms };
            self.outputs.emit(last.epoch, lost);
        }
        self.outputs.leadership.send_modify(|leadership| leadership.role = None);
        let restarted = EventKind::CandidateRestarted { attempt: deaths, wait: pause };
        self.outputs.emit(last.epoch, restarted);
    }
}
