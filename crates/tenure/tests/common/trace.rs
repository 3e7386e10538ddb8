//! What happened, in its order: processes that write down what they do, and a store and events that join in.
#![allow(dead_code, unreachable_pub, missing_docs)]

use super::common::{Rig, sleep_ms};
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure::clock::{Clock, TokioClock};
use tenure::event::EventKind;
use tenure::process::{ProcessContext, ProcessSpec, Supervisor};
use tenure::store::{Condition, Faults, Lanes, List, MemoryStore, Read, Remove, Store, Version, Write};
use tenure::{LeadershipEnded, Node, Settings, async_trait};

#[derive(Clone, Default, Debug)]
pub struct Trace(Arc<Mutex<Vec<String>>>);

impl Trace {
    pub fn note(&self, line: String) {
        self.0.lock().expect("unpoisoned").push(line);
    }

    pub fn lines(&self) -> Vec<String> {
        self.0.lock().expect("unpoisoned").clone()
    }

    pub fn clear(&self) {
        self.0.lock().expect("unpoisoned").clear();
    }

    pub fn count(&self, part: &str) -> usize {
        self.lines().iter().filter(|line| line.contains(part)).count()
    }

    /// Time runs on until the line is there.
    pub async fn until(&self, line: &str) {
        for _ in 0..12_000 {
            if self.count(line) > 0 {
                return;
            }
            sleep_ms(10).await;
        }
        panic!("not within two simulated minutes: {line}, {:?}", self.lines());
    }

    /// A process that is ready after a while, and takes its time to stop.
    pub fn process(&self, label: &str, name: &str, ready_after_ms: u64, stops_after_ms: u64) -> ProcessSpec {
        let (trace, label) = (self.clone(), label.to_owned());
        ProcessSpec::new(name, move |context: ProcessContext| {
            let (trace, label) = (trace.clone(), label.clone());
            async move {
                trace.note(format!("{label} starts in {}", context.epoch()));
                let _gone = Gone(trace.clone(), label.clone());
                sleep_ms(ready_after_ms).await;
                context.ready();
                context.cancelled().await;
                let valid = if context.is_valid() { " WITH A VALID GUARD" } else { "" };
                trace.note(format!("{label} is asked to stop{valid}"));
                sleep_ms(stops_after_ms).await;
                trace.note(format!("{label} stops"));
                Ok::<_, LeadershipEnded>(())
            }
        })
    }
}

/// Says when an instance is gone, however it went.
struct Gone(Trace, String);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.note(format!("{} is gone", self.1));
    }
}

/// A store that writes down when a seat is vacated, and a node whose losses are written down.
#[derive(Debug)]
pub struct Witness(Arc<MemoryStore>, Trace);

impl Witness {
    pub async fn join(rig: &Rig, name: &str, trace: &Trace) -> Node {
        let settings = Settings::builder().namespace("test").node(name).store("memory:");
        let store: Arc<dyn Store> = Arc::new(Witness(Arc::clone(&rig.store), trace.clone()));
        let builder = Node::builder(settings.startup_jitter_max(Duration::ZERO).build().expect("valid"))
            .lanes(Lanes::same(store))
            .clock(rig.clock.clone());
        let (mut events, trace) = (builder.events(), trace.clone());
        tokio::spawn(async move {
            while let Ok(event) = events.recv().await {
                if let EventKind::LostLeadership { reason, .. } = event.kind {
                    trace.note(format!("{}: {}", event.name(), reason.as_str()));
                }
            }
        });
        builder.start().await.expect("a node")
    }
}

#[async_trait]
impl Store for Witness {
    async fn get(&self, key: &str, unless: Option<&Version>) -> Read {
        self.0.get(key, unless).await
    }

    async fn put(&self, key: &str, body: Bytes, condition: Condition) -> Write {
        let vacates = String::from_utf8_lossy(&body).contains("\"vacant\"");
        let write = self.0.put(key, body, condition).await;
        if vacates && matches!(write, Write::Won(_)) {
            self.1.note("the seat is vacated".to_owned());
        }
        write
    }

    async fn remove(&self, key: &str) -> Remove {
        self.0.remove(key).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> List {
        self.0.list(prefix, limit).await
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

/// A clock that breaks once when told to, and with it whoever reads it.
#[derive(Debug)]
pub struct Fragile(Arc<TokioClock>, AtomicBool);

impl Fragile {
    pub fn new(rig: &Rig) -> Fragile {
        Fragile(rig.clock.clone(), AtomicBool::new(false))
    }

    pub fn break_once(&self) {
        self.1.store(true, Ordering::SeqCst);
    }

    pub fn is_to_break(&self) -> bool {
        self.1.load(Ordering::SeqCst)
    }
}

impl Clock for Fragile {
    fn now_ms(&self) -> u64 {
        assert!(!self.1.swap(false, Ordering::SeqCst), "the clock broke (on purpose)");
        self.0.now_ms()
    }

    fn outruns_timers(&self) -> bool {
        false
    }
}

/// A small generator, so that a seed is all there is to a storm.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Three nodes and five simulated minutes of trouble. Returns the number of terms in which processes acted.
pub async fn storm(seed: u64) -> u64 {
    let rig = Rig::new();
    let mut dice = Dice(seed);
    let highest = Arc::new(AtomicU64::new(0));
    let running = Arc::new(Mutex::new(Vec::<(String, u64)>::new()));
    let wrong = Trace::default();
    let mut members = Vec::new();
    for name in ["pod-a", "pod-b", "pod-c"] {
        let member = rig.join(name).await;
        let specs: Vec<ProcessSpec> = ["one", "two"]
            .map(|process| actor(name, process, &highest, &running, &wrong, dice.roll(1000)))
            .into();
        let processes = Supervisor::new(specs).intensity(3, Duration::from_secs(10)).run(&member.node);
        members.push((member, processes.expect("valid")));
    }
    let mut terms = 0;
    for _ in 0..100 {
        let (member, _) = &members[usize::try_from(dice.roll(3)).expect("small")];
        match dice.roll(6) {
            0 => member.link.cut(true),
            1 | 2 => member.link.cut(false),
            3 => member.link.set(Faults {
                delay: 0.3,
                delay_max: Duration::from_millis(800),
                lost_request: 0.1,
                lost_answer: 0.2,
                late_landing: 0.1,
                ..Faults::default()
            }),
            4 => member.link.set(Faults::default()),
            _ => drop(member.node.step_down().await),
        }
        sleep_ms(500 + dice.roll(5000)).await;
    }
    terms += highest.load(Ordering::SeqCst);
    assert_eq!(wrong.lines(), [""; 0], "seed {seed}");
    for (member, _) in &members {
        member.link.cut(false);
        member.link.set(Faults::default());
    }
    // Everything is mended: somebody's processes run, unless all of them stand aside for now.
    for _ in 0..600 {
        if !running.lock().expect("unpoisoned").is_empty() {
            for (member, _) in members {
                member.node.shutdown().await;
            }
            assert_eq!(*running.lock().expect("unpoisoned"), [], "nothing outlives its node");
            return terms;
        }
        sleep_ms(1000).await;
    }
    panic!("seed {seed}: nobody's processes run ten minutes after the storm");
}

/// Acts every 50 ms as long as its guard says so, and sometimes fails.
fn actor(
    pod: &str,
    name: &str,
    highest: &Arc<AtomicU64>,
    running: &Arc<Mutex<Vec<(String, u64)>>>,
    wrong: &Trace,
    seed: u64,
) -> ProcessSpec {
    let me = format!("{pod} {name}");
    let (highest, running, name) = (Arc::clone(highest), Arc::clone(running), name.to_owned());
    let (dice, wrong) = (Arc::new(Mutex::new(Dice(seed))), wrong.clone());
    ProcessSpec::new(name.clone(), move |context: ProcessContext| {
        let (me, name, wrong) = (me.clone(), name.clone(), wrong.clone());
        let (highest, running, dice) = (Arc::clone(&highest), Arc::clone(&running), Arc::clone(&dice));
        async move {
            let epoch = context.epoch();
            let _runs = Runs::new(&running, me.clone(), epoch);
            loop {
                let ill = dice.lock().expect("unpoisoned").roll(400) == 0;
                if ill {
                    return Err("it fell ill");
                }
                if context.check().is_ok() {
                    let before = highest.fetch_max(epoch, Ordering::SeqCst);
                    // A panic here would be the process's own and contained: it is written down instead.
                    if before > epoch {
                        wrong.note(format!("{me} acts in {epoch} after somebody acted in {before}"));
                    }
                    let others = running.lock().expect("unpoisoned").clone();
                    let twin = others.iter().any(|(other, _)| *other != me && other.ends_with(&name));
                    if twin {
                        wrong.note(format!("{me} acts beside another: {others:?}"));
                    }
                }
                tokio::select! {
                    () = context.cancelled() => return Ok(()),
                    () = sleep_ms(50) => {}
                }
            }
        }
    })
}

struct Runs(Arc<Mutex<Vec<(String, u64)>>>, (String, u64));

impl Runs {
    fn new(running: &Arc<Mutex<Vec<(String, u64)>>>, me: String, epoch: u64) -> Runs {
        running.lock().expect("unpoisoned").push((me.clone(), epoch));
        Runs(Arc::clone(running), (me, epoch))
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        if let Ok(mut running) = self.0.lock() {
            let at = running.iter().position(|one| *one == self.1);
            at.map(|at| running.remove(at));
        }
    }
}
