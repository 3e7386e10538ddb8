//! Tenure's election protocol as a pure state machine.
//!
//! [`Coordinator::step`] takes the time and one [`Input`], and pushes [`Effect`]s. It reads no clock, draws no random
//! number, does no IO and depends on nothing, so the whole protocol can be replayed, simulated and explored.
//!
//! Leadership is decided by **one thing only**: compare-and-swap on the seat. Lists, times and heartbeats only decide who
//! tries when.
//!
//! # What the caller owes
//!
//! 1. `now` never goes back, keeps advancing while the machine is suspended, and runs at most
//!    [`Config::tolerated_drift_permille`] faster or slower than the other nodes' clocks.
//! 2. Every [`Effect::Request`] is answered exactly once, within a bounded time; if nothing came back, with
//!    [`Request::unanswered`].
//! 3. `Unknown` is passed on as `Unknown`. `Lost` and `Unavailable` mean that the write did not and will not happen.
//! 4. [`Effect::Wake`] replaces the previous wake-up; [`Input::Wake`] comes at or after its time.
//! 5. [`Input::ProcessesStopped`] is sent only when nothing acts in the name of that epoch any more.
//! 6. Whatever acts as leader checks the deadline of [`Effect::StartProcesses`] and [`Effect::ExtendLease`] by itself,
//!    immediately before each side effect: the machine may have been paused between two inputs.
//! 7. Every start of a process draws a new [`Incarnation`].
//!
//! # What is not promised
//!
//! - A paused process cannot stop acting *while* it is paused: a side effect that was already on its way when the pause
//!   began may land late. That is what the epoch in every task is for: the receiver must refuse stale epochs.
//! - If clocks drift apart by more than the tolerated drift, two nodes may *think* they lead at the same instant. They never
//!   do so with the same epoch.
//! - Some seconds without a leader after a crash are by design; see [`Config::failover_bound_ms`].

#![allow(
    missing_docs,
    reason = "an internal crate: a comment stands where the name and the type do not say it all"
)]

pub mod document;
mod election;
mod fallback;
mod fence;
mod id;
mod jobs;
pub mod machine;
mod mutants;
mod once;
mod processes;
mod schedules;
mod time;
mod workers;

pub use election::{
    Answer, Config, ContentionWatch, Coordinator, Cycle, CycleTracker, ELECTION_BUCKETS_MS, Effect,
    ElectionCause, ElectionDurations, ElectionTimer, Epoch, Event, Expect, HeartbeatLatencies, Input, Lease,
    LossReason, NodeEntry, NodesAnswer, ProbeAnswer, Request, RequestId, Role, Seat, SeatAnswer, SeatProblem,
    SeatState, Step, StopCause, Terms, Version, WakeToken, WriteAnswer,
};
#[cfg(feature = "explore")]
pub use election::{LeadView, Renumber, SeenView, View};
pub use fallback::{
    SeatChoice, SeatChoiceCommand, SeatChoiceConfig, SeatChoiceOutput, SeatChoiceRequest, SeatObserver,
    SeatObserverAnswer, SeatObserverCommand, SeatObserverConfig, SeatObserverOutput, SeatObserverRequest,
    SeatUse, WhichSeat,
};
pub use fence::{FenceRule, Verdict};
pub use id::{
    CheckName, DocumentName, Holder, IdError, Incarnation, JobId, KindName, Label, Namespace, NodeId, Nonce,
    PluginName, ProcessName, QueueName, ScheduleId, SeriesId, WorkerId,
};
pub use jobs::{
    AllowedCommand, Assign, BatchedOrder, Candidates, Claimer, ClaimerAnswer, ClaimerCommand, ClaimerConfig,
    ClaimerCounts, ClaimerOutput, ClaimerRequest, DispatchAnswer, DispatchCommand, DispatchCounts,
    DispatchEnd, DispatchOutput, DispatchRequest, Dispatcher, DispatcherConfig, Entry, EntryState,
    HISTORY_RUNS_MAX, HistoryChunk, HistoryHead, HistoryKey, HistoryLimits, HistoryPart, HistoryRow,
    HistoryRuns, InboxDoc, InboxListed, JOB_BATCHES_MAX, JOB_LATE_MAX, JOB_OBJECT_MAX_WEIGHT,
    JOB_PAYLOAD_MAX_BYTES, JOB_PRIORITY, JOB_PRIORITY_MAX, JOB_PROGRESS_MAX_BYTES, JOB_QUEUES_MAX,
    JOB_RESULT_MAX_BYTES, JOB_SERIES_MAX, JOB_SERVES_MAX_BYTES, JOB_SLOTS_MAX, JobLimits, JobRecord,
    JobState, JobUpdate, Kept, Labels, LateResult, LedgerDoc, Load, NOTICE_REASON_MAX_BYTES, NOTICES_MAX,
    NOTICES_TOLD_MAX, NoWorker, Notice, NoticeKind, NoticesDoc, Order, OrderAnswer, OrdersDoc, Outcome,
    OutcomeKind, Progress, QueueSettings, Refused, Serves, SubmitAnswer, Submitter, SubmitterCommand,
    SubmitterOutput, job_output_folder, job_shard,
};
pub use mutants::Mutant;
pub use once::{Once, OnceCommand, OnceEnd, OnceNext, OnceOutput, OnceRecord, OnceState, OnceTerms};
pub use processes::{
    GaveUp, ProcessConfig, ProcessOutcome, ProcessState, Restart, Supervision, SupervisionCommand,
    SupervisionConfig, SupervisionEvent, SupervisionOutput,
};
pub use schedules::{
    Due, DueTimes, Interval, JobAnswer, Misfire, Missed, NewJob, ObservedJob, PlanCounts, Planned, Planner,
    Requested, RunAnswer, ScheduleTerms, Scheduler, SchedulerCommand, SchedulerOutput, SeriesView,
    SubmitJobs,
};
pub use time::Time;
pub use workers::{
    KnownWorker, KnownWorkers, Listed, ListedWorkers, Listing, Liveness, LivenessConfig, ReadOutcome,
    RegisteredBy, Registration, RegistrationCommand, RegistrationConfig, RegistrationEnd, RegistrationEvent,
    RegistrationOutput, Skipped, Snapshot, SnapshotEntry, SnapshotId, Sweep, SweepAnswer, SweepCommand,
    SweepConfig, SweepOutcome, SweepOutput, SweepRequest, WORKERS_MAX, WorkerChange, WorkerDetails,
    WorkerEvent,
};
