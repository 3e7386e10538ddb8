//! A cluster in one process: the memory store, simulated time, one meter and one fault switch per node.
#![allow(dead_code, unreachable_pub, missing_docs)]

pub mod spy;

use spy::Spy;
use std::sync::Arc;
use std::time::Duration;
use tenure::clock::TokioClock;
use tenure::event::EventKind;
use tenure::settings::SettingsBuilder;
use tenure::store::{Faulty, Lanes, MemoryStore, Meter, Metered, Store};
use tenure::{Event, Node, Settings};
use tokio::sync::broadcast::Receiver;

pub struct Rig {
    pub store: Arc<MemoryStore>,
    pub clock: Arc<TokioClock>,
}

pub struct Member {
    pub node: Node,
    pub link: Faulty,
    pub meter: Meter,
    pub events: Receiver<Event>,
}

impl Rig {
    /// Must be called on a runtime with paused time.
    pub fn new() -> Rig {
        Rig { store: Arc::new(MemoryStore::new()), clock: TokioClock::new() }
    }

    /// The store, as somebody sees it who takes no part.
    pub fn lanes(&self) -> Lanes {
        Lanes::same(Arc::clone(&self.store) as Arc<dyn Store>)
    }

    /// Starts a node without jitter.
    pub async fn join(&self, name: &str) -> Member {
        self.join_with(name, 0, |settings| settings.startup_jitter_max(Duration::ZERO)).await
    }

    pub async fn join_with(
        &self,
        name: &str,
        random: u64,
        change: impl Fn(SettingsBuilder) -> SettingsBuilder,
    ) -> Member {
        self.enter(name, Some(random), self.store.clone(), change).await
    }

    /// Starts a node as an application does, its jitter its own affair; the spy sees its requests.
    pub async fn join_spied(
        &self,
        name: &str,
        change: impl Fn(SettingsBuilder) -> SettingsBuilder,
    ) -> (Member, Arc<Spy>) {
        let spy = Spy::new(&self.store, &[]);
        (self.enter(name, None, spy.clone(), change).await, spy)
    }

    async fn enter(
        &self,
        name: &str,
        random: Option<u64>,
        store: Arc<dyn Store>,
        change: impl Fn(SettingsBuilder) -> SettingsBuilder,
    ) -> Member {
        let settings = change(Settings::builder().namespace("test").node(name).store("memory:"));
        let link = Faulty::new(store, 7);
        let meter = Meter::default();
        let metered: Arc<dyn Store> = Arc::new(Metered::new(Arc::new(link.clone()), meter.clone()));
        let builder = Node::builder(settings.build().expect("valid settings"))
            .lanes(Lanes::same(metered))
            .clock(self.clock.clone());
        let builder = match random {
            Some(random) => builder.jitter_random(random),
            None => builder,
        };
        let events = builder.events();
        let node = builder.start().await.expect("a node");
        Member { node, link, meter, events }
    }

    pub async fn join_all(&self, names: &[&str]) -> Vec<Member> {
        let mut members = Vec::new();
        for name in names {
            members.push(self.join(name).await);
        }
        members
    }

    pub async fn seat(&self) -> serde_json::Value {
        let read = self.store.get("plg_coordinator_global/test/seat.json", None).await;
        let tenure::store::Read::Found(object) = read else { panic!("no seat: {read:?}") };
        serde_json::from_slice(&object.body).expect("JSON")
    }
}

impl Member {
    pub fn leads(&self) -> bool {
        self.node.leadership().borrow().is_leader()
    }

    /// The next event that fits; time runs on until it comes.
    pub async fn event(&mut self, wanted: impl Fn(&EventKind) -> bool) -> Event {
        let limit = Duration::from_secs(120);
        let found = tokio::time::timeout(limit, async {
            loop {
                let event = self.events.recv().await.expect("an event");
                if wanted(&event.kind) {
                    return event;
                }
            }
        });
        found.await.expect("the event within two simulated minutes")
    }

    pub async fn became_leader(&mut self) -> Event {
        self.event(|kind| matches!(kind, EventKind::BecameLeader { .. })).await
    }

    pub async fn lost_leadership(&mut self) -> Event {
        self.event(|kind| matches!(kind, EventKind::LostLeadership { .. })).await
    }

    /// What was said so far and not read yet.
    pub fn so_far(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }
}

pub fn leaders(members: &[Member]) -> Vec<String> {
    members.iter().filter(|member| member.leads()).map(|member| member.node.id().to_string()).collect()
}

pub async fn sleep_ms(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
