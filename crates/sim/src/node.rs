//! A simulated node: its machines and everything around them; how it dies, comes back with a new life, stands still and goes on.

use crate::caller_mistakes::CallerMistake;
use crate::computer::Computer;
use crate::fault::FaultKind;
use crate::kind::Kind;
use crate::machines::dispatcher::JobDispatch;
use crate::machines::once::OnceRun;
use crate::machines::submitter::JobSubmission;
use crate::machines::supervision::Processes;
use crate::machines::sweep::NodeSweep;
use crate::queue::Happening;
use crate::shell::{Part, Who};
use crate::trace::Noted;
use crate::world::World;
use rand::RngExt;
use tenure_core::{
    Config, Coordinator, Epoch, FenceRule, Holder, Incarnation, Input, NodeId, Supervision, Sweep, Time,
    Verdict,
};

/// How work behaves when it is told to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    Prompt,
    Slow,
    Stuck,
}

/// Work that runs on behalf of an epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acting {
    pub(crate) epoch: Epoch,
    /// On the node's own clock.
    pub(crate) deadline: Time,
    pub(crate) told: bool,
    /// In true time.
    pub(crate) since: u64,
}

/// What a receiver of tasks knows, as in the library's fence.
#[derive(Clone, Debug, Default)]
pub(crate) struct FenceState {
    pub(crate) known: Epoch,
    pub(crate) changed: Time,
}

impl FenceState {
    pub(crate) fn observe(&mut self, epoch: Epoch, now: Time) {
        if epoch > self.known {
            (self.known, self.changed) = (epoch, now);
        }
    }

    /// Judges like the library's fence: a newer epoch is remembered, everything else follows the rule.
    pub(crate) fn judge(&mut self, rule: FenceRule, now: Time, task: Epoch, age_ms: Option<u64>) -> Verdict {
        self.observe(task, now);
        rule.judge(self.known, now.since(self.changed), task, age_ms)
    }
}

pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) config: Config,
    pub(crate) election: Part<Coordinator>,
    /// If there are workers.
    pub(crate) sweep: Option<NodeSweep>,
    /// If leaders have work of their own.
    pub(crate) processes: Option<Processes>,
    /// While its process runs.
    pub(crate) dispatch: Option<JobDispatch>,
    pub(crate) submission: Option<JobSubmission>,
    /// While it leads and there is work for a key.
    pub(crate) once: Option<OnceRun>,
    /// Identifies the node and its life: the incarnation.
    pub(crate) life: u64,
    pub(crate) alive: bool,
    /// It takes part.
    pub(crate) running: bool,
    pub(crate) computer: Computer,
    pub(crate) work: Work,
    /// It dies after this many effects.
    pub(crate) crash_in: Option<u32>,
    pub(crate) acting: Option<Acting>,
    /// When its work last stopped acting, in true time; a crash does not count.
    pub(crate) ended: Option<u64>,
    pub(crate) sent: [u64; Kind::COUNT],
    pub(crate) fence: FenceState,
    /// The highest epoch this incarnation has lost.
    pub(crate) lost: Epoch,
    /// The current second, and the number of the election's requests in it.
    pub(crate) second: (u64, u64),
}

impl Node {
    pub(crate) fn core(&self) -> &Coordinator {
        &self.election.machine
    }

    pub(crate) fn acts(&self, now: u64, unchecked: bool) -> bool {
        let in_time = |acting: &Acting| unchecked || self.computer.clock.local(now) < acting.deadline;
        self.alive && self.acting.as_ref().is_some_and(in_time)
    }

    /// The epoch in which it leads, by its own clock.
    pub(crate) fn led_epoch(&self, now: u64) -> Option<Epoch> {
        let acting = self.acting.filter(|acting| !acting.told && self.acts(now, false))?;
        Some(acting.epoch)
    }

    /// When its work stopped acting, in true time, as far as is known by now.
    pub(crate) fn acted_until(&self, now: u64) -> Option<u64> {
        match &self.acting {
            Some(acting) => self.computer.clock.when(acting.deadline).map(|end| end.min(now)),
            None => self.ended,
        }
    }

    pub(crate) fn count(&self, kind: Kind) -> u64 {
        self.sent[kind as usize]
    }
}

impl World {
    /// Adds a node at rest; several may share one id.
    pub(crate) fn add(&mut self, id: &str, config: Config, rate: u64, work: Work) -> usize {
        let (node, life) = (self.nodes.len(), self.new_life());
        let id = NodeId::new(id).expect("a valid id");
        let me = Holder { node: id.clone(), incarnation: Incarnation(life) };
        self.nodes.push(Node {
            id,
            election: Part::new(Coordinator::new(config.clone(), me), life),
            config,
            sweep: None,
            processes: None,
            dispatch: None,
            submission: None,
            once: None,
            life,
            alive: true,
            running: false,
            computer: Computer::new(self.now, rate),
            work,
            crash_in: None,
            acting: None,
            ended: None,
            sent: [0; Kind::COUNT],
            fence: FenceState::default(),
            lost: Epoch(0),
            second: (0, 0),
        });
        self.new_sweep(node);
        self.new_processes(node);
        node
    }

    pub(crate) fn start(&mut self, node: usize, random: u64) {
        self.nodes[node].running = true;
        self.command::<Coordinator>(Who::Node(node), Input::Start { random });
    }

    /// Starts a node again that is dead or has left.
    pub(crate) fn come_back(&mut self, node: usize, random: u64) {
        if !self.nodes[node].alive {
            self.restart(node, random);
        } else if !self.nodes[node].running {
            self.start(node, random);
        }
    }

    pub(crate) fn crash(&mut self, node: usize) {
        let target = &mut self.nodes[node];
        (target.alive, target.computer.paused, target.acting) = (false, false, None);
        (target.running, target.crash_in) = (false, None);
        (target.dispatch, target.submission, target.once) = (None, None, None);
        self.trace.note(self.now, node, || Noted::Crashed);
        for worker in self.workers_on(node).collect::<Vec<_>>() {
            self.crash_worker(worker);
        }
    }

    /// Whether a node is still there for the next effect of a step.
    pub(crate) fn survives(&mut self, who: Who) -> bool {
        let Who::Node(node) = who else { return true };
        match &mut self.nodes[node].crash_in {
            Some(0) => {
                self.strike(FaultKind::CrashMidway, who);
                self.crash(node);
            }
            Some(left) => *left -= 1,
            None => {}
        }
        self.nodes[node].alive
    }

    /// Starts a new life of a dead node.
    pub(crate) fn restart(&mut self, node: usize, random: u64) {
        let life = self.new_life();
        let target = &mut self.nodes[node];
        let me = Holder { node: target.id.clone(), incarnation: Incarnation(life) };
        target.election = Part::new(Coordinator::new(target.config.clone(), me), life);
        (target.life, target.alive, target.computer.paused) = (life, true, false);
        (target.acting, target.ended, target.lost) = (None, None, Epoch(0));
        target.fence = FenceState::default();
        self.trace.note(self.now, node, || Noted::Restarted);
        self.new_sweep(node);
        self.new_processes(node);
        self.start(node, random);
        for worker in self.workers_on(node).collect::<Vec<_>>() {
            self.begin_worker(worker);
        }
    }

    /// A computer stands still, with everybody on it.
    pub(crate) fn pause(&mut self, who: Who, ms: u64) {
        let (now, life) = (self.now, self.life(who));
        let sleeps = self.mistake == Some(CallerMistake::ClockSleeps);
        let computer = self.computer_mut(who);
        computer.paused = true;
        if sleeps {
            if computer.clock.rate() > 0 {
                computer.awake_rate = computer.clock.rate();
            }
            computer.clock.set_rate(now, 0);
        }
        self.tell(who, || Noted::Paused(ms));
        self.schedule(now + ms, who, Happening::Resume { life });
    }

    pub(crate) fn resume(&mut self, who: Who) {
        let (now, sleeps) = (self.now, self.mistake == Some(CallerMistake::ClockSleeps));
        let computer = self.computer_mut(who);
        if !std::mem::take(&mut computer.paused) {
            return;
        }
        if sleeps {
            let rate = computer.awake_rate;
            computer.clock.set_rate(now, rate);
            self.clock_changed(who);
        }
        self.tell(who, || Noted::Resumed);
        // What ran meanwhile is seen to have ended before what came in, or after it.
        let held = std::mem::take(&mut self.computer_mut(who).held);
        let first = self.rng.random_bool(0.5);
        if !first {
            self.hand_out_held(who);
        }
        for (who, life, what) in held {
            self.schedule(now, who, Happening::Run { life, what });
        }
        if first {
            self.hand_out_held(who);
        }
        if let Who::Node(_) = who {
            self.nudge::<Sweep>(who);
            self.nudge::<Supervision>(who);
        }
    }
}
