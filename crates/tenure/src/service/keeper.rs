//! The keeper: shows one plugin in global mode the arbiter in force. It carries out what the core's
//! [`SeatChoice`](tenure_core::SeatChoice) decides, and decides nothing itself.

use super::Service;
use super::seats::{Seen, look_every};
use crate::error::Error;
use crate::event::{Event, EventKind};
use crate::fence::Fence;
use crate::guard::Leadership;
use crate::keys::Keys;
use crate::metrics::Counters;
use crate::node::Node;
use crate::plugin::Mode;
use crate::workers::Workers;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::PluginName;
use tenure_core::{Epoch, Role, SeatChoice, SeatChoiceEffect, SeatChoiceInput, WhichSeat};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

/// Requests from the handle to the keeper.
pub(super) enum Command {
    /// Hand over; given a time, also claim nothing for that long.
    StepDown(Option<Duration>, oneshot::Sender<Result<(), Error>>),
    Leave,
}

/// What a plugin sees, whichever arbiter is in force.
#[derive(Clone)]
pub(super) struct Face {
    pub(super) leadership: watch::Sender<Leadership>,
    pub(super) mode: watch::Sender<Mode>,
    /// Where the plugin's workers and jobs are.
    pub(super) keys: watch::Sender<Keys>,
    /// The workers as the arbiter in force knows them.
    pub(super) workers: watch::Sender<Workers>,
    pub(super) events: broadcast::Sender<Event>,
    pub(super) fence: Fence,
    /// The figures of the plugin's own node, while it has one.
    pub(super) own: Arc<Mutex<Option<Arc<Counters>>>>,
}

/// The plugin's own candidate.
struct Own {
    node: Arc<Node>,
    leadership: watch::Receiver<Leadership>,
    events: broadcast::Receiver<Event>,
    over: bool,
}

pub(super) struct Keeper {
    name: Arc<str>,
    id: PluginName,
    service: Arc<Service>,
    arbiter: SeatChoice,
    face: Face,
    events: broadcast::Receiver<Event>,
    leadership: watch::Receiver<Leadership>,
    /// The shared node has ended.
    over: bool,
    refused: watch::Receiver<Option<Arc<str>>>,
    seen: watch::Receiver<Option<Seen>>,
    /// From the service's node, or from the plugin's own once it has one; `None` once nobody sends any more.
    workers: Option<watch::Receiver<Workers>>,
    own: Option<Own>,
    work: JoinSet<SeatChoiceInput>,
    /// The watch on the other seat, for the present leadership.
    gate: Option<AbortHandle>,
    commands: mpsc::Receiver<Command>,
    leaving: bool,
}

enum Woken {
    Command(Option<Command>),
    Event(Result<Event, RecvError>),
    OwnEvent(Result<Event, RecvError>),
    Leadership(bool),
    OwnLeadership(bool),
    Refused,
    Seen,
    Workers(bool),
    Done(SeatChoiceInput),
    Nothing,
}

impl Keeper {
    pub(super) fn new(
        id: PluginName,
        service: Arc<Service>,
        face: Face,
        commands: mpsc::Receiver<Command>,
    ) -> Keeper {
        Keeper {
            name: Arc::from(id.as_str()),
            id,
            arbiter: SeatChoice::default(),
            events: service.node.events(),
            leadership: service.node.leadership(),
            over: false,
            refused: service.refused.subscribe(),
            seen: service.seat.seen(),
            workers: Some(service.node.workers()),
            own: None,
            work: JoinSet::new(),
            gate: None,
            service,
            face,
            commands,
            leaving: false,
        }
    }

    /// Runs until the plugin has left and nothing of its own remains.
    pub(super) async fn run(mut self) {
        // A plugin may join a service that already leads or is already refused.
        self.on_refused().await;
        self.on_leadership().await;
        while !(self.leaving && self.own.is_none()) {
            match self.woken().await {
                Woken::Command(Some(Command::StepDown(hold, reply))) => self.step_down(hold, reply),
                Woken::Command(Some(Command::Leave) | None) => {
                    self.leaving = true;
                    self.tell(SeatChoiceInput::Leave).await;
                }
                Woken::Event(event) => self.on_event(event),
                Woken::OwnEvent(event) => self.on_own_event(event),
                Woken::Leadership(there) => {
                    self.over = !there;
                    self.on_leadership().await;
                }
                Woken::OwnLeadership(there) => self.on_own_leadership(there).await,
                Woken::Refused => self.on_refused().await,
                Woken::Seen => self.on_seen().await,
                Woken::Workers(there) => self.on_workers(there),
                Woken::Done(input) => {
                    if input == SeatChoiceInput::OwnStopped {
                        self.forget_own();
                    }
                    self.tell(input).await;
                }
                Woken::Nothing => {}
            }
        }
        if self.arbiter.is_fallback() {
            self.service.node.counters().left_fallback();
        }
        self.face.leadership.send_replace(Leadership::default());
    }

    /// The next thing that happens. Cancel-safe in every branch. Events come before the leadership they led to.
    async fn woken(&mut self) -> Woken {
        let (own_events, own_leadership) = match &mut self.own {
            Some(own) if !own.over => (Some(&mut own.events), Some(&mut own.leadership)),
            Some(_) | None => (None, None),
        };
        tokio::select! {
            biased;
            command = self.commands.recv(), if !self.leaving => Woken::Command(command),
            event = self.events.recv() => Woken::Event(event),
            event = received(own_events) => Woken::OwnEvent(event),
            changed = self.leadership.changed(), if !self.over => Woken::Leadership(changed.is_ok()),
            there = changed(own_leadership) => Woken::OwnLeadership(there),
            // Their senders belong to the service, which lives as long as this.
            Ok(()) = self.refused.changed() => Woken::Refused,
            Ok(()) = self.seen.changed() => Woken::Seen,
            there = changed(self.workers.as_mut()) => Woken::Workers(there),
            Some(done) = self.work.join_next(), if !self.work.is_empty() => match done {
                Ok(input) => Woken::Done(input),
                Err(_) => Woken::Nothing, // An abandoned watch.
            },
        }
    }

    async fn on_refused(&mut self) {
        if self.refused.borrow_and_update().is_some() {
            self.tell(SeatChoiceInput::Refused).await;
            // The seat may have been looked at before this plugin came.
            self.on_seen().await;
        }
    }

    async fn on_seen(&mut self) {
        let usage = self.seen.borrow_and_update().as_ref().map(|seen| seen.usage);
        if let Some(usage) = usage {
            self.tell(SeatChoiceInput::GlobalSeat(usage)).await;
        }
    }

    fn on_workers(&mut self, there: bool) {
        if let Some(workers) = &mut self.workers {
            let now = workers.borrow_and_update().clone();
            self.face.workers.send_if_modified(|known| std::mem::replace(known, now.clone()) != now);
        }
        if !there {
            self.workers = None;
        }
    }

    async fn on_leadership(&mut self) {
        // Events from before the change come first.
        loop {
            match self.events.try_recv() {
                Ok(event) => self.on_event(Ok(event)),
                Err(TryRecvError::Lagged(missed)) => self.on_event(Err(RecvError::Lagged(missed))),
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        let now = self.leadership.borrow_and_update().clone();
        match input_of(&now, SeatChoiceInput::GlobalLeads, SeatChoiceInput::GlobalEnded) {
            Some(input) => self.tell(input).await,
            None => self.show(),
        }
    }

    async fn on_own_leadership(&mut self, there: bool) {
        let Some(own) = &mut self.own else { return };
        own.over = !there;
        let now = own.leadership.borrow_and_update().clone();
        match input_of(&now, SeatChoiceInput::OwnLeads, SeatChoiceInput::OwnEnded) {
            Some(input) => self.tell(input).await,
            None => self.show(),
        }
    }

    async fn tell(&mut self, input: SeatChoiceInput) {
        let mut todo = vec![input];
        while let Some(input) = todo.pop() {
            let mut effects = Vec::new();
            self.arbiter.handle(input, &mut effects);
            for effect in effects {
                todo.extend(self.carry_out(effect).await);
            }
        }
        // In fallback, the watch is on the global seat, for the plugin's own leadership, which continues.
        if input == SeatChoiceInput::GlobalEnded && !self.arbiter.is_fallback() {
            self.gate.take().inspect(AbortHandle::abort);
        }
        self.show();
    }

    async fn carry_out(&mut self, effect: SeatChoiceEffect) -> Option<SeatChoiceInput> {
        let service = Arc::clone(&self.service);
        match effect {
            SeatChoiceEffect::FallbackStarted => {
                self.gate.take().inspect(AbortHandle::abort);
                let detail = self.refused.borrow().as_ref().map_or_else(String::new, ToString::to_string);
                self.face.mode.send_replace(Mode::Fallback);
                self.face.keys.send_replace(Keys::per_plugin(&service.namespace, &self.id));
                self.say(EventKind::FallbackStarted { plugin: Arc::clone(&self.name), detail });
            }
            SeatChoiceEffect::StartOwn(above) => return self.start_own(above).await,
            SeatChoiceEffect::StopOwn => {
                let Some(own) = &self.own else { return Some(SeatChoiceInput::OwnStopped) };
                let node = Arc::clone(&own.node);
                self.work.spawn(async move {
                    node.leave().await;
                    SeatChoiceInput::OwnStopped
                });
            }
            SeatChoiceEffect::CheckOwnSeat(check) => {
                self.gate.take().inspect(AbortHandle::abort);
                let watch = service.own_seat(&self.id);
                let every = look_every(&service.settings);
                self.gate = Some(self.work.spawn(async move {
                    let epoch = watch.until_free(every).await;
                    SeatChoiceInput::OwnSeatFree { check, epoch }
                }));
            }
            SeatChoiceEffect::CheckGlobalSeat(check) => {
                self.gate.take().inspect(AbortHandle::abort);
                self.gate = Some(self.work.spawn(async move {
                    let usage = service.seat.answered(service.led()).await;
                    SeatChoiceInput::GlobalSeatChecked { check, usage }
                }));
            }
            // In a separate task, because the keeper waits for nobody.
            SeatChoiceEffect::Raise(above) => {
                tokio::spawn(async move { service.node.raise(above.0).await });
            }
            SeatChoiceEffect::RaiseOwn(above) => {
                if let Some(node) = self.own.as_ref().map(|own| Arc::clone(&own.node)) {
                    tokio::spawn(async move { node.raise(above.0).await });
                }
            }
        }
        None
    }

    async fn start_own(&mut self, above: Epoch) -> Option<SeatChoiceInput> {
        let floor = above.0.max(self.face.fence.epoch());
        let builder = self.service.own_node(&self.id).epoch_floor(floor);
        let events = builder.events();
        match builder.start().await {
            Ok(node) => {
                let leadership = node.leadership();
                self.workers = Some(node.workers());
                self.on_workers(true);
                *self.face.own.lock() = Some(node.counters());
                self.own = Some(Own { node: Arc::new(node), leadership, events, over: false });
                None
            }
            Err(error) => {
                // The settings are the service's and the store is open, so there is nothing left to fail.
                tracing::error!(target: "tenure", plugin = &*self.name, %error, "cannot start an election of its own");
                Some(SeatChoiceInput::OwnStopped)
            }
        }
    }

    fn forget_own(&mut self) {
        while let Some(Ok(event)) = self.own.as_mut().map(|own| own.events.try_recv()) {
            self.on_own_event(Ok(event));
        }
        self.own = None;
        *self.face.own.lock() = None;
    }

    /// Shows the plugin the leadership of the arbiter in force; of the other one, only who leads.
    fn show(&mut self) {
        let own = || self.own.as_ref().map(|own| own.leadership.borrow().clone()).unwrap_or_default();
        let shown = match self.arbiter.in_force() {
            Some(WhichSeat::Global) => self.leadership.borrow().clone(),
            Some(WhichSeat::Own) => own(),
            None => {
                let seen = match (self.arbiter.runs_own(), self.arbiter.is_fallback()) {
                    (true, _) => own(),
                    (false, true) => self.seen_by_looking(),
                    (false, false) => self.leadership.borrow().clone(),
                };
                let role = match seen.role {
                    Some(Role::Leader | Role::Draining | Role::Candidate | Role::Standby) => {
                        Some(Role::Standby)
                    }
                    None => None,
                };
                Leadership { role, guard: None, ..seen }
            }
        };
        self.face.fence.observe(shown.epoch);
        self.face.leadership.send_if_modified(|known| {
            let same = known.is_like(&shown);
            *known = shown;
            !same
        });
    }

    /// Who leads by the global seat, in whose election this process no longer takes part.
    fn seen_by_looking(&self) -> Leadership {
        let leader = self.seen.borrow().as_ref().and_then(|seen| seen.leader.clone());
        let (leader, epoch) = leader.map_or((None, 0), |(node, epoch)| (Some(node), epoch));
        let epoch = epoch.max(self.face.fence.epoch());
        Leadership { role: Some(Role::Standby), leader, epoch, ..Leadership::default() }
    }

    fn on_event(&mut self, event: Result<Event, RecvError>) {
        match event {
            Ok(event) if self.arbiter.runs_own() && is_of_leadership(&event.kind) => {}
            Ok(event) => self.pass_on(event),
            Err(RecvError::Lagged(missed)) => {
                tracing::warn!(target: "tenure", plugin = &*self.name, missed, "events were left out");
            }
            Err(RecvError::Closed) => self.over = true,
        }
    }

    fn on_own_event(&mut self, event: Result<Event, RecvError>) {
        match event {
            Ok(event) => self.pass_on(event),
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => {
                if let Some(own) = &mut self.own {
                    own.over = true;
                }
            }
        }
    }

    fn pass_on(&self, event: Event) {
        if matches!(event.kind, EventKind::LeaderChanged { .. }) {
            self.face.fence.observe(event.epoch);
        }
        let _ = self.face.events.send(event);
    }

    fn say(&self, kind: EventKind) {
        let epoch = self.leadership.borrow().epoch;
        self.service.node.reporter().emit(epoch, kind);
    }

    fn step_down(&self, hold: Option<Duration>, reply: oneshot::Sender<Result<(), Error>>) {
        let own = self.own.as_ref().map(|own| Arc::clone(&own.node));
        let service = Arc::clone(&self.service);
        let in_force = self.arbiter.in_force();
        tokio::spawn(async move {
            let node = match (in_force, &own) {
                (Some(WhichSeat::Global), _) => Some(&service.node),
                (Some(WhichSeat::Own), Some(node)) => Some(&**node),
                (Some(WhichSeat::Own), None) | (None, _) => None,
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

/// What a node's leadership means to the arbiter; `None` while it winds down, which changes nothing yet.
fn input_of(
    now: &Leadership,
    leads: fn(Epoch) -> SeatChoiceInput,
    ended: SeatChoiceInput,
) -> Option<SeatChoiceInput> {
    match (now.acting_epoch(), now.role) {
        (Some(epoch), _) => Some(leads(Epoch(epoch))),
        (None, Some(Role::Leader | Role::Draining)) => None,
        (None, Some(Role::Standby | Role::Candidate) | None) => Some(ended),
    }
}

/// Whether an event says who leads. Such events come only from the arbiter in force.
fn is_of_leadership(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::LeaderChanged { .. }
            | EventKind::LeaderChangeSeen { .. }
            | EventKind::BecameLeader { .. }
            | EventKind::LostLeadership { .. }
    )
}

async fn received(events: Option<&mut broadcast::Receiver<Event>>) -> Result<Event, RecvError> {
    match events {
        Some(events) => events.recv().await,
        None => std::future::pending().await,
    }
}

async fn changed<T>(watched: Option<&mut watch::Receiver<T>>) -> bool {
    match watched {
        Some(watched) => watched.changed().await.is_ok(),
        None => std::future::pending().await,
    }
}
