//! Supervision: which leader-only processes run, in which order, and what happens when one ends.
//!
//! One supervision belongs to one node. While the node leads, every declared process has at most one instance. The machine
//! takes leadership up when it is told of it, starts processes in the declared order, restarts those that end according to
//! their strategy, and stops all of them, in reverse order, before leadership ends. It reads no clock and runs nothing.
//!
//! # What the caller owes
//!
//! 1. Every [`SupervisionOutput::Start`] is followed by exactly one [`SupervisionCommand::Exited`] with its instance, once
//!    nothing of that instance runs any more. An instance that never ends is never reported.
//! 2. [`SupervisionCommand::Leadership`] comes whenever leadership has changed. Before any other input, a deadline that has
//!    moved is told, or a renewal would be taken for a loss.
//! 3. An instance's guard ends when the instance is cancelled or aborted, whether the instance listens or not.
//! 4. Every [`SupervisionOutput::StandAside`] is followed by exactly one [`SupervisionCommand::StoodAside`].
//!
//! # What is not promised
//!
//! Nobody can end an instance that ignores its abort (because it blocks a thread). It counts as stuck: its guard has ended,
//! and this node does not lead again until the instance has ended.

mod machine;

use crate::election::Epoch;
use crate::time::Time;
use std::collections::VecDeque;

/// When to start a process again after it ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Restart {
    /// However it ended.
    #[default]
    Permanent,
    /// Only if it failed or panicked.
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
    Panicked,
    /// The supervision cut it off.
    Aborted,
}

impl ProcessOutcome {
    /// The outcome as it appears in events.
    pub fn as_str(self) -> &'static str {
        match self {
            ProcessOutcome::Done => "done",
            ProcessOutcome::Failed => "failed",
            ProcessOutcome::Panicked => "panicked",
            ProcessOutcome::Aborted => "aborted",
        }
    }
}

/// Why the supervision stopped all processes and gave up leadership.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GaveUp {
    /// There were more restarts within the window than allowed.
    Intensity,
    /// A process did not become ready: it failed too often before that, failed and is not restarted, or took too long.
    CannotStart,
    /// An instance from an earlier term still runs and cannot be stopped.
    StillStuck,
}

impl GaveUp {
    /// The cause as it appears in events.
    pub fn as_str(self) -> &'static str {
        match self {
            GaveUp::Intensity => "restart intensity",
            GaveUp::CannotStart => "cannot start",
            GaveUp::StillStuck => "still stuck",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ProcessConfig {
    pub restart: Restart,
    /// How long it may take to report that it is ready; `None` if it is ready as soon as it is started.
    pub ready_within_ms: Option<u64>,
    /// How long it may take to stop by itself, if there is that much time.
    pub stop_grace_ms: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SupervisionConfig {
    /// The processes in start order. They are stopped in reverse.
    pub processes: Vec<ProcessConfig>,
    /// How many restarts are allowed within the window, for all processes together. Counted together, as in Erlang: what
    /// matters is whether this node is a good place to lead from.
    pub intensity: u32,
    /// The window. After running this long, a process starts over with the first pause. A term with no restart for this long
    /// clears earlier failures.
    pub window_ms: u64,
    /// The pause before the first restart. It doubles with every consecutive failure …
    pub backoff_first_ms: u64,
    /// … up to this.
    pub backoff_max_ms: u64,
    /// How long the node claims nothing after giving up. It doubles every consecutive time …
    pub hold_first_ms: u64,
    /// … up to this.
    pub hold_max_ms: u64,
    /// How long all processes together may take to stop when the supervision gives up by itself.
    pub drain_ms: u64,
}

/// `process` is an index in [`SupervisionConfig::processes`], `instance` the number from [`SupervisionOutput::Start`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SupervisionCommand {
    /// Leadership as it is now: the epoch in which this node may act, and until when; `None` while it may not.
    Leadership(Option<(Epoch, Time)>),
    /// The instance reports that it is ready.
    Ready { process: usize, instance: u64 },
    /// Nothing of the instance runs any more.
    Exited { process: usize, instance: u64, outcome: ProcessOutcome },
    /// Leadership was given up, or there was none to give up.
    StoodAside,
    /// End the supervision for good.
    Stop,
}

/// To be done in this order. `process` is an index in [`SupervisionConfig::processes`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SupervisionOutput {
    /// `instance` is unique: no other ever has this number. `attempt` is the start number within this term, from 1.
    Start { process: usize, instance: u64, attempt: u32 },
    /// Ask the process to stop, and end its guard.
    Cancel { process: usize },
    /// Cut the process off.
    Abort { process: usize },
    /// No process of this epoch runs any more, except those that are stuck.
    Released { epoch: Epoch },
    /// Give up leadership and claim nothing for this long.
    StandAside { hold_ms: u64 },
    /// For whoever watches.
    Event(Epoch, SupervisionEvent),
    /// The supervision is over.
    Ended,
}

/// Facts stated by a supervision; nothing depends on them. `process` is an index in [`SupervisionConfig::processes`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SupervisionEvent {
    /// A process runs: for the first time in this term, or again. `attempt` is the start number within this term, from 1.
    Started { process: usize, attempt: u32 },
    /// `restart_in_ms` is `None` if it is not started again.
    Exited { process: usize, outcome: ProcessOutcome, ran_ms: u64, restart_in_ms: Option<u64> },
    /// A process did not stop. Its guard has ended, but it still runs.
    Stuck { process: usize },
    /// All processes are stopped and leadership is given up, because of this process. The node claims nothing for `hold_ms`.
    GaveUp { process: usize, cause: GaveUp, hold_ms: u64 },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ProcessState {
    /// This node does not lead, or it is not this process's turn yet.
    #[default]
    Idle,
    /// It runs and has not reported yet that it is ready.
    Starting,
    /// It runs and is ready.
    Running,
    /// It ended and will be started again after a pause.
    Waiting,
    /// It was asked to stop.
    Stopping,
    /// It did not stop: it still runs, without a guard.
    Stuck,
    /// It has ended and will not be started again in this term.
    Ended,
}

impl ProcessState {
    /// A short name, for status output.
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

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Supervision {
    config: SupervisionConfig,
    now: Time,
    /// Leadership as last told, until its deadline.
    lease: Option<(Epoch, Time)>,
    /// The last known deadline of the term.
    deadline: Time,
    phase: Phase,
    slots: Vec<Slot>,
    /// Instances started so far.
    instances: u64,
    /// The epoch of the term these fields describe.
    term: Epoch,
    /// Restarts decided in this term, oldest first; never more than allowed.
    restarts: VecDeque<Time>,
    /// Since when every process has been ready or done.
    calm_since: Option<Time>,
    /// How many consecutive times leadership was given up.
    releases: u32,
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
    },
    /// Everything has stopped and leadership is being given up.
    Yielding {
        epoch: Epoch,
        /// It was not given up: when to take it up again.
        again_at: Option<Time>,
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
    /// Consecutive failures, for the pause.
    failures: u32,
    /// How many of those came before it was ready.
    failed_starts: u32,
    /// It was ready, or done, at least once in this term, so the next process may start.
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
    /// The next process waits no longer than this.
    move_on_at: Time,
    aborted: Option<Time>,
}

impl Supervision {
    pub fn new(config: SupervisionConfig) -> Supervision {
        let slots = vec![Slot::default(); config.processes.len()];
        Supervision {
            config,
            now: Time(0),
            lease: None,
            deadline: Time(0),
            phase: Phase::Off,
            slots,
            instances: 0,
            term: Epoch(0),
            restarts: VecDeque::new(),
            calm_since: None,
            releases: 0,
        }
    }

    /// The epoch in which processes run; `None` while none may run.
    pub fn epoch(&self) -> Option<Epoch> {
        match &self.phase {
            Phase::Leading { epoch } | Phase::Winding { epoch, .. } => Some(*epoch),
            Phase::Off | Phase::Yielding { .. } | Phase::Ended => None,
        }
    }

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
