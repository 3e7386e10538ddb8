//! Supervision: which leader-only processes run, in which order, and what happens when one ends.
//!
//! One supervision belongs to one node. While the node leads, every declared process has at most one instance; the
//! machine starts them in the declared order, restarts what ends by its strategy, and stops all of them, in reverse
//! order, before leadership is over. It reads no clock and runs nothing: [`Supervision::handle`] takes one
//! [`SupervisionInput`] and pushes [`SupervisionEffect`]s.
//!
//! # What the caller owes
//!
//! 1. Every [`SupervisionEffect::Start`] is followed by exactly one [`SupervisionInput::Exited`] with its instance, once
//!    nothing of that instance runs any more; never, if it never ends.
//! 2. [`SupervisionInput::Wake`] comes at or after [`Supervision::due`].
//! 3. An instance's guard is over when it is cancelled or aborted, whether the instance listens or not.
//! 4. [`SupervisionInput::Lost`] as soon as leadership ends or is to be given up.
//!
//! # What is not promised
//!
//! An instance that ignores its abort (it blocks a thread) cannot be ended by anybody. It counts as stuck: its guard is
//! over, and this node does not lead again before it has ended.

mod machine;

use crate::mutant::Mutant;
use crate::seat::Epoch;
use crate::time::Time;
use std::collections::VecDeque;

/// When a process that ended is started again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Restart {
    /// Always.
    #[default]
    Permanent,
    /// If it failed or panicked; not if it is done.
    Transient,
    /// Never.
    Temporary,
}

/// How an instance ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProcessOutcome {
    /// It returned without an error.
    Done,
    /// It returned an error.
    Failed,
    /// It panicked.
    Panicked,
    /// It was cut off.
    Aborted,
}

impl ProcessOutcome {
    /// A short name for events.
    pub fn as_str(self) -> &'static str {
        match self {
            ProcessOutcome::Done => "done",
            ProcessOutcome::Failed => "failed",
            ProcessOutcome::Panicked => "panicked",
            ProcessOutcome::Aborted => "aborted",
        }
    }
}

/// Why all processes were stopped and leadership given up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GaveUp {
    /// More restarts within the window than allowed.
    Intensity,
    /// A process did not become ready: it failed too often before, failed without being restarted, or took too long.
    CannotStart,
    /// An instance of an earlier term still runs and cannot be stopped.
    StillStuck,
}

impl GaveUp {
    /// A short name for events.
    pub fn as_str(self) -> &'static str {
        match self {
            GaveUp::Intensity => "restart intensity",
            GaveUp::CannotStart => "cannot start",
            GaveUp::StillStuck => "still stuck",
        }
    }
}

/// One process, as declared.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ProcessPlan {
    /// When it is started again.
    pub restart: Restart,
    /// How long it may take until it says that it is ready; `None` if it is ready as soon as it is started.
    pub ready_within_ms: Option<u64>,
    /// How long it may take to stop by itself, if there is that much time.
    pub stop_grace_ms: u64,
}

/// The numbers a supervision runs by. All durations in milliseconds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SupervisionConfig {
    /// The processes, in the order of their start. They are stopped in reverse.
    pub processes: Vec<ProcessPlan>,
    /// How many restarts, of all processes together, are allowed within the window. Counted together as in Erlang: what
    /// matters is whether this node is a good place to lead from.
    pub intensity: u32,
    /// The window. A process that ran this long starts with the first pause again; a term this long without a restart
    /// makes earlier failures forgotten.
    pub window_ms: u64,
    /// The pause before the first restart, doubled with every failure in a row …
    pub backoff_first_ms: u64,
    /// … up to this.
    pub backoff_max_ms: u64,
    /// How long the node claims nothing after it gave up, doubled every time in a row …
    pub hold_first_ms: u64,
    /// … up to this.
    pub hold_max_ms: u64,
    /// How long all processes together may take to stop when the supervision gives up by itself.
    pub drain_ms: u64,
}

/// What the machine is told.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SupervisionInput {
    /// This node leads.
    Led {
        /// In this epoch.
        epoch: Epoch,
    },
    /// An instance is ready.
    Ready {
        /// Which process.
        process: usize,
        /// Which instance of it.
        instance: u64,
    },
    /// An instance has ended.
    Exited {
        /// Which process.
        process: usize,
        /// Which instance of it.
        instance: u64,
        /// How.
        outcome: ProcessOutcome,
    },
    /// Leadership is over or is being given up.
    Lost {
        /// Every process must have been stopped or aborted by then.
        by: Time,
    },
    /// End for good.
    Stop {
        /// Every process must have been stopped or aborted by then.
        by: Time,
    },
    /// Time has passed.
    Wake,
}

/// What the machine wants done, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SupervisionEffect {
    /// Start an instance.
    Start {
        /// Of this process.
        process: usize,
        /// Its number: no other instance ever has it.
        instance: u64,
        /// Which start in this term; 1 for the first.
        attempt: u32,
    },
    /// Ask the process to stop, and end its guard.
    Cancel {
        /// Which.
        process: usize,
    },
    /// Cut it off.
    Abort {
        /// Which.
        process: usize,
    },
    /// No process of this epoch runs any more, except for those that are stuck.
    Released {
        /// The epoch.
        epoch: Epoch,
    },
    /// Give leadership up, and claim nothing for this long. Answer with [`SupervisionInput::Lost`] when it is over.
    StandAside {
        /// How long.
        hold_ms: u64,
    },
    /// Tell whoever watches.
    Emit(SupervisionEvent),
    /// The supervision is over.
    Ended,
}

/// Facts; nothing depends on them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SupervisionEvent {
    /// A process runs: the first time in this term, or again.
    Started {
        /// Which.
        process: usize,
        /// Which start in this term; 1 for the first.
        attempt: u32,
    },
    /// A process has ended.
    Exited {
        /// Which.
        process: usize,
        /// How.
        outcome: ProcessOutcome,
        /// How long it ran.
        ran_ms: u64,
        /// When it is started again; `None` if it is not.
        restart_in_ms: Option<u64>,
    },
    /// A process did not stop. Its guard is over; it goes on running.
    Stuck {
        /// Which.
        process: usize,
    },
    /// All processes are stopped and leadership is given up.
    GaveUp {
        /// Because of this process.
        process: usize,
        /// Why.
        cause: GaveUp,
        /// How long this node claims nothing.
        hold_ms: u64,
    },
}

/// What a process does now.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ProcessState {
    /// This node does not lead, or the process is not due yet.
    #[default]
    Idle,
    /// It runs and has not said yet that it is ready.
    Starting,
    /// It runs.
    Running,
    /// It ended and is started again after a pause.
    Waiting,
    /// It was asked to stop.
    Stopping,
    /// It did not stop: without a guard, it still runs.
    Stuck,
    /// It has ended and is not started again in this term.
    Ended,
}

impl ProcessState {
    /// A short name.
    pub fn as_str(self) -> &'static str {
        match self {
            ProcessState::Idle => "idle",
            ProcessState::Starting => "starting",
            ProcessState::Running => "running",
            ProcessState::Waiting => "waiting",
            ProcessState::Stopping => "stopping",
            ProcessState::Stuck => "stuck",
            ProcessState::Ended => "ended",
        }
    }
}

/// The processes of one node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Supervision {
    config: SupervisionConfig,
    now: Time,
    phase: Phase,
    slots: Vec<Slot>,
    /// Instances started so far.
    instances: u64,
    /// The epoch of the term these facts are of.
    term: Epoch,
    /// Restarts decided in this term, the oldest first; never more than allowed.
    restarts: VecDeque<Time>,
    /// Since when every process has been ready or done.
    calm_since: Option<Time>,
    /// How often in a row leadership was given up.
    releases: u32,
    mutant: Option<Mutant>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Phase {
    /// This node does not lead.
    Off,
    Leading {
        epoch: Epoch,
    },
    /// Processes are being stopped.
    Winding {
        epoch: Epoch,
        by: Time,
        then: Then,
        /// Leadership that came meanwhile.
        next: Option<Epoch>,
    },
    /// Everything has stopped and leadership is being given up.
    Yielding {
        epoch: Epoch,
    },
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Then {
    Wait,
    StandAside { hold_ms: u64 },
    End,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Slot {
    state: State,
    /// Starts in this term.
    attempt: u32,
    /// Failures in a row, for the pause.
    failures: u32,
    /// Of those, the ones before it was ready.
    failed_starts: u32,
    /// It was ready, or done, at least once in this term: the next may start.
    passed: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
enum State {
    #[default]
    Idle,
    Alive {
        instance: u64,
        since: Time,
        ready: bool,
        halt: Option<Halt>,
    },
    Waiting {
        until: Time,
    },
    Stuck {
        instance: u64,
        since: Time,
    },
    Ended,
}

/// A process that is being stopped.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Halt {
    abort_at: Time,
    /// The next one is not kept waiting beyond this.
    move_on_at: Time,
    /// When it was cut off.
    aborted: Option<Time>,
}

impl Supervision {
    /// Nothing runs, and this node does not lead.
    pub fn new(config: SupervisionConfig) -> Supervision {
        let slots = vec![Slot::default(); config.processes.len()];
        Supervision {
            config,
            now: Time(0),
            phase: Phase::Off,
            slots,
            instances: 0,
            term: Epoch(0),
            restarts: VecDeque::new(),
            calm_since: None,
            releases: 0,
            mutant: None,
        }
    }

    /// One with a deliberate mistake, for tests that must catch it.
    #[cfg(feature = "teeth")]
    pub fn broken(config: SupervisionConfig, mutant: Mutant) -> Supervision {
        Supervision { mutant: Some(mutant), ..Supervision::new(config) }
    }

    /// The epoch processes run in; `None` while none may.
    pub fn epoch(&self) -> Option<Epoch> {
        match &self.phase {
            Phase::Leading { epoch } | Phase::Winding { epoch, .. } => Some(*epoch),
            Phase::Off | Phase::Yielding { .. } | Phase::Ended => None,
        }
    }

    /// What a process does now.
    pub fn state(&self, process: usize) -> ProcessState {
        match self.slots.get(process).map(|slot| &slot.state) {
            Some(State::Idle) | None => ProcessState::Idle,
            Some(State::Alive { halt: Some(_), .. }) => ProcessState::Stopping,
            Some(State::Alive { ready: true, .. }) => ProcessState::Running,
            Some(State::Alive { ready: false, .. }) => ProcessState::Starting,
            Some(State::Waiting { .. }) => ProcessState::Waiting,
            Some(State::Stuck { .. }) => ProcessState::Stuck,
            Some(State::Ended) => ProcessState::Ended,
        }
    }
}
