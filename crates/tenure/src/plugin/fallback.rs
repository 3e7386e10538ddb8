//! Shows one plugin in global mode the leadership of the seat by which it may act: the host of its [`SeatChoice`].

use super::service::Service;
use super::{Mode, PluginView};
use crate::clock::millis;
use crate::election::SeatReader;
use crate::error::Error;
use crate::event::{Event, EventKind};
use crate::guard::Leadership;
use crate::keys::Keys;
use crate::node::Node;
use crate::shell::{Commands, Happening, Host, Shell, or_never};
use crate::workers::{SnapshotPointers, Workers};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::machine::Now;
use tenure_core::{Epoch, PluginName, Role, SeatChoice, SeatChoiceCommand, SeatChoiceConfig};
use tenure_core::{SeatChoiceOutput, SeatChoiceRequest, SeatObserverAnswer, WhichSeat};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// Requests from the handle.
pub(super) enum PluginCommand {
    /// Hand over; given a time, also claim nothing for that long.
    StepDown(Option<Duration>, oneshot::Sender<Result<(), Error>>),
    Leave,
}

/// Starts to choose for a plugin; ends when the plugin has left and nothing of its own remains.
pub(super) fn start(
    plugin: PluginName,
    service: Arc<Service>,
    view: PluginView,
    commands: mpsc::Receiver<PluginCommand>,
) -> JoinHandle<()> {
    let settings = service.settings();
    // Nodes in the other seat's election wait out the takeover delay and look every interval; three intervals leave room for
    // the ranks that hold back.
    let every_ms = millis(settings.election_interval);
    let choice = SeatChoice::new(SeatChoiceConfig {
        every_ms,
        patience_ms: millis(settings.takeover_delay) + 3 * every_ms,
    });
    let namespace = service.namespace_id();
    let (keys, own_keys) = (Keys::global(namespace), Keys::per_plugin(namespace, &plugin));
    // Counted with the service's requests. In fallback every plugin reads the global seat for itself: one conditional read per
    // interval, beside what an election of its own costs.
    let reader = |keys: &Keys| {
        SeatReader::new(Arc::clone(&service.node().lanes().bulk), keys, settings, SnapshotPointers::default())
    };
    let mut refused = service.refused();
    // The service may be refused already.
    refused.mark_changed();
    let host = FallbackHost {
        choice: choice.clone(),
        global_seat: reader(&keys).may_be_hidden(),
        own_seat: reader(&own_keys),
        global: FollowedNode::new(service.node(), service.node().events()),
        own: None,
        stopping: None,
        own_keys,
        refused,
        commands: Commands::new(commands),
        plugin,
        view,
        service,
    };
    let clock = Arc::clone(&host.service.node().reporter().clock);
    tokio::spawn(Shell::new(choice, host, clock).run())
}

struct FallbackHost {
    plugin: PluginName,
    service: Arc<Service>,
    view: PluginView,
    /// The choice as of its last step.
    choice: SeatChoice,
    global_seat: SeatReader,
    own_seat: SeatReader,
    own_keys: Keys,
    global: FollowedNode,
    own: Option<OwnCandidate>,
    /// The plugin's own candidate leaves.
    stopping: Option<JoinHandle<()>>,
    refused: watch::Receiver<Option<Arc<str>>>,
    commands: Commands<PluginCommand>,
}

/// The plugin's own candidate.
struct OwnCandidate {
    node: Arc<Node>,
    followed: FollowedNode,
}

/// What a node tells about its election.
struct FollowedNode {
    leadership: watch::Receiver<Leadership>,
    /// There will be no more leadership.
    over: bool,
    events: broadcast::Receiver<Event>,
    workers: watch::Receiver<Workers>,
}

enum News {
    Event(Box<Event>),
    Leadership,
    Workers,
}

impl FollowedNode {
    fn new(node: &Node, events: broadcast::Receiver<Event>) -> FollowedNode {
        let (mut leadership, workers) = (node.leadership(), node.workers());
        // It may lead already.
        leadership.mark_changed();
        FollowedNode { leadership, over: false, events, workers }
    }

    /// The next thing it tells. Cancel-safe. Events come before the leadership they led to.
    async fn next(&mut self) -> News {
        tokio::select! {
            biased;
            event = next_event(&mut self.events) => News::Event(Box::new(event)),
            changed = self.leadership.changed(), if !self.over => {
                self.over = changed.is_err();
                News::Leadership
            }
            Ok(()) = self.workers.changed() => News::Workers,
        }
    }

    /// An event that is already there.
    fn ready_event(&mut self) -> Option<Event> {
        loop {
            match self.events.try_recv() {
                Ok(event) => return Some(event),
                Err(TryRecvError::Lagged(missed)) => warn_of(missed),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return None,
            }
        }
    }
}

async fn next_event(events: &mut broadcast::Receiver<Event>) -> Event {
    loop {
        match events.recv().await {
            Ok(event) => return event,
            Err(RecvError::Lagged(missed)) => warn_of(missed),
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

fn warn_of(missed: u64) {
    tracing::warn!(target: "tenure", missed, "a plugin could not keep up: events were left out");
}

impl Host<SeatChoice> for FallbackHost {
    type End = ();

    fn carry(&self, request: SeatChoiceRequest) -> impl Future<Output = SeatObserverAnswer> + Send + 'static {
        let reader = match request.seat {
            WhichSeat::Global => &self.global_seat,
            WhichSeat::Own => &self.own_seat,
        };
        reader.clone().carry(request.request)
    }

    async fn next(&mut self) -> Happening<SeatChoice, ()> {
        let own = self.own.as_mut().map(|own| own.followed.next());
        let (seat, news) = tokio::select! {
            biased;
            command = self.commands.next() => return self.on_command(command),
            news = self.global.next() => (WhichSeat::Global, news),
            news = or_never(own) => (WhichSeat::Own, news),
            // Its sender belongs to the service, which lives as long as this.
            Ok(()) = self.refused.changed() => return self.on_refused(),
            _ = or_never(self.stopping.as_mut()) => {
                self.forget_own();
                return Happening::Command(SeatChoiceCommand::OwnStopped);
            }
        };
        self.on_news(seat, news).map_or(Happening::Nothing, Happening::Command)
    }

    fn output(&mut self, _: Now, _: &SeatChoice, output: SeatChoiceOutput) -> ControlFlow<()> {
        match output {
            SeatChoiceOutput::FallbackStarted => {
                let detail = self.refused.borrow().as_ref().map_or_else(String::new, ToString::to_string);
                self.view.mode.send_replace(Mode::Fallback);
                self.view.keys.send_replace(self.own_keys.clone());
                let epoch = self.global.leadership.borrow().epoch;
                let plugin = Arc::from(self.plugin.as_str());
                let started = EventKind::FallbackStarted { plugin, detail };
                self.service.node().reporter().emit(epoch, started);
            }
            SeatChoiceOutput::StartOwn(above) => self.start_own(above),
            SeatChoiceOutput::StopOwn => {
                let node = self.own.as_ref().map(|own| Arc::clone(&own.node));
                self.stopping = Some(tokio::spawn(async move {
                    if let Some(node) = node {
                        node.leave().await;
                    }
                }));
            }
            // In a separate task, because nothing here waits for a node.
            SeatChoiceOutput::Raise(WhichSeat::Global, above) => {
                let service = Arc::clone(&self.service);
                tokio::spawn(async move { service.node().raise(above.0).await });
            }
            SeatChoiceOutput::Raise(WhichSeat::Own, above) => {
                if let Some(node) = self.own.as_ref().map(|own| Arc::clone(&own.node)) {
                    tokio::spawn(async move { node.raise(above.0).await });
                }
            }
            SeatChoiceOutput::Left => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    fn settled(&mut self, _: Now, machine: &SeatChoice) -> ControlFlow<()> {
        self.choice.clone_from(machine);
        self.show();
        ControlFlow::Continue(())
    }
}

impl FallbackHost {
    fn on_command(&self, command: Option<PluginCommand>) -> Happening<SeatChoice, ()> {
        match command {
            Some(PluginCommand::StepDown(hold, reply)) => {
                self.step_down(hold, reply);
                Happening::Nothing
            }
            Some(PluginCommand::Leave) | None => Happening::Command(SeatChoiceCommand::Leave),
        }
    }

    fn on_refused(&mut self) -> Happening<SeatChoice, ()> {
        if self.refused.borrow_and_update().is_none() {
            return Happening::Nothing;
        }
        let led = Some(Epoch(self.service.node().counters().led())).filter(|epoch| epoch.0 > 0);
        Happening::Command(SeatChoiceCommand::Refused { led })
    }

    fn on_news(&mut self, seat: WhichSeat, news: News) -> Option<SeatChoiceCommand> {
        match news {
            News::Event(event) => self.pass_on(seat, *event),
            News::Workers => self.show_workers(),
            News::Leadership => {
                // Events from before the change come first.
                while let Some(event) = self.followed(seat).and_then(FollowedNode::ready_event) {
                    self.pass_on(seat, event);
                }
                let now = self.followed(seat)?.leadership.borrow_and_update().clone();
                let command = match (seat, now.acting_epoch(), now.role) {
                    (WhichSeat::Global, Some(epoch), _) => SeatChoiceCommand::GlobalLeads(Epoch(epoch)),
                    (WhichSeat::Own, Some(epoch), _) => SeatChoiceCommand::OwnLeads(Epoch(epoch)),
                    // It winds down, which changes nothing yet.
                    (_, None, Some(Role::Leader | Role::Draining)) => {
                        self.show();
                        return None;
                    }
                    (WhichSeat::Global, None, _) => SeatChoiceCommand::GlobalEnded,
                    (WhichSeat::Own, None, _) => SeatChoiceCommand::OwnEnded,
                };
                return Some(command);
            }
        }
        None
    }

    fn followed(&mut self, seat: WhichSeat) -> Option<&mut FollowedNode> {
        match seat {
            WhichSeat::Global => Some(&mut self.global),
            WhichSeat::Own => self.own.as_mut().map(|own| &mut own.followed),
        }
    }

    fn start_own(&mut self, above: Epoch) {
        let builder = self.service.own_node(&self.plugin).epoch_floor(above.0.max(self.view.fence.epoch()));
        let events = builder.events();
        match builder.start_on(self.service.lanes()) {
            Ok(node) => {
                *self.view.own_counters.lock() = Some(node.counters());
                let followed = FollowedNode::new(&node, events);
                self.own = Some(OwnCandidate { node: Arc::new(node), followed });
                self.show_workers();
            }
            // The settings are the service's, so there is nothing left to fail.
            Err(error) => {
                let plugin = self.plugin.as_str();
                tracing::error!(target: "tenure", plugin, %error, "cannot start an election of its own");
            }
        }
    }

    fn forget_own(&mut self) {
        while let Some(event) = self.followed(WhichSeat::Own).and_then(FollowedNode::ready_event) {
            self.pass_on(WhichSeat::Own, event);
        }
        (self.own, self.stopping) = (None, None);
        *self.view.own_counters.lock() = None;
    }

    /// Shows the plugin the leadership by which it may act; otherwise only who leads.
    fn show(&self) {
        let global = || self.global.leadership.borrow().clone();
        let own =
            || self.own.as_ref().map(|own| own.followed.leadership.borrow().clone()).unwrap_or_default();
        let shown = match self.choice.in_force() {
            Some(WhichSeat::Global) => global(),
            Some(WhichSeat::Own) => own(),
            None => {
                let seen = match (self.choice.runs_own(), self.choice.is_fallback()) {
                    (true, _) => own(),
                    (false, true) => self.seen_from_outside(),
                    (false, false) => global(),
                };
                Leadership { role: seen.role.map(|_| Role::Standby), guard: None, ..seen }
            }
        };
        self.view.fence.observe(shown.epoch);
        self.view.leadership.send_if_modified(|known| {
            let same = known.is_like(&shown);
            *known = shown;
            !same
        });
    }

    /// Who leads by the global seat, in whose election this process no longer takes part.
    fn seen_from_outside(&self) -> Leadership {
        let (leader, epoch) = self.choice.global_leader().unzip();
        let epoch = epoch.map_or(0, |epoch| epoch.0).max(self.view.fence.epoch());
        Leadership { role: Some(Role::Standby), leader: leader.cloned(), epoch, ..Leadership::default() }
    }

    /// The workers as the plugin's own node knows them, once there was one; else as the service's does.
    fn show_workers(&mut self) {
        let followed = match (&mut self.own, self.choice.is_fallback()) {
            (Some(own), _) => &mut own.followed,
            (None, false) => &mut self.global,
            (None, true) => return,
        };
        let now = followed.workers.borrow_and_update().clone();
        self.view.workers.send_if_modified(|known| std::mem::replace(known, now.clone()) != now);
    }

    /// Once the plugin has a candidate of its own, that one says who leads.
    fn pass_on(&self, seat: WhichSeat, event: Event) {
        if seat == WhichSeat::Global && self.choice.runs_own() && is_of_leadership(&event.kind) {
            return;
        }
        if matches!(event.kind, EventKind::LeaderChanged { .. }) {
            self.view.fence.observe(event.epoch);
        }
        let _ = self.view.events.send(event);
    }

    fn step_down(&self, hold: Option<Duration>, reply: oneshot::Sender<Result<(), Error>>) {
        let own = self.own.as_ref().map(|own| Arc::clone(&own.node));
        let service = Arc::clone(&self.service);
        let in_force = self.choice.in_force();
        tokio::spawn(async move {
            let node = match in_force {
                Some(WhichSeat::Global) => Some(service.node()),
                Some(WhichSeat::Own) => own.as_deref(),
                None => None,
            };
            let answer = match (node, hold) {
                (Some(node), None) => node.step_down().await,
                (Some(node), Some(hold)) => node.stand_aside(hold).await,
                (None, _) => Err(Error::not_leading()),
            };
            let _ = reply.send(answer);
        });
    }
}

impl Drop for FallbackHost {
    /// However this ends, even by a panic, the plugin no longer leads.
    fn drop(&mut self) {
        if self.choice.is_fallback() {
            self.service.node().counters().left_fallback();
        }
        self.view.leadership.send_replace(Leadership::default());
    }
}

fn is_of_leadership(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::LeaderChanged { .. }
            | EventKind::LeaderChangeSeen { .. }
            | EventKind::BecameLeader { .. }
            | EventKind::LostLeadership { .. }
    )
}
