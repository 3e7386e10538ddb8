//! Teeth: realistic mistakes that the test suite must catch.
//!
//! They exist in test builds only (feature `teeth`). Where a mistake would bite stands `Mutant::X.on()`: a constant `false`
//! without the feature, else whether this thread, or this process, runs with it.

/// An enum of mistakes, with `ALL`, `named`, `on`, `scoped`, `with` and `choose`.
#[macro_export]
macro_rules! mutants {
    ($(#[$about:meta])* $vis:vis enum $name:ident { $($(#[$doc:meta])+ $mutant:ident,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        $vis enum $name { $($(#[$doc])+ $mutant,)+ }

        #[allow(dead_code, reason = "not every crate that has mistakes uses every way to choose one")]
        impl $name {
            /// All of them.
            $vis const ALL: &[$name] = &[$($name::$mutant,)+];

            /// The mistake of this name.
            $vis fn named(name: &str) -> Option<$name> {
                $name::ALL.iter().find(|mutant| format!("{mutant:?}") == name).copied()
            }

            /// Whether this thread or this process makes this mistake: never without the feature `teeth`.
            #[inline(always)]
            $vis fn on(self) -> bool {
                #[cfg(feature = "teeth")]
                return $name::of_thread().get() == Some(self) || $name::of_process().get() == Some(&self);
                #[cfg(not(feature = "teeth"))]
                false
            }

            #[cfg(feature = "teeth")]
            fn of_thread() -> &'static std::thread::LocalKey<std::cell::Cell<Option<$name>>> {
                thread_local! {
                    static CHOSEN: std::cell::Cell<Option<$name>> = const { std::cell::Cell::new(None) };
                }
                &CHOSEN
            }

            #[cfg(feature = "teeth")]
            fn of_process() -> &'static std::sync::OnceLock<$name> {
                static CHOSEN: std::sync::OnceLock<$name> = std::sync::OnceLock::new();
                &CHOSEN
            }

            /// This thread makes this mistake until the returned value is dropped.
            #[cfg(feature = "teeth")]
            #[must_use]
            $vis fn scoped(mutant: Option<$name>) -> impl Drop {
                struct Restore(Option<$name>);
                impl Drop for Restore {
                    fn drop(&mut self) {
                        $name::of_thread().set(self.0);
                    }
                }
                Restore($name::of_thread().replace(mutant))
            }

            /// Runs something with this mistake, on this thread.
            #[cfg(feature = "teeth")]
            $vis fn with<R>(mutant: Option<$name>, run: impl FnOnce() -> R) -> R {
                let _until_here = $name::scoped(mutant);
                run()
            }

            /// From here on, this process makes this mistake.
            #[cfg(feature = "teeth")]
            $vis fn choose(self) {
                // Only the first choice counts.
                let _ = $name::of_process().set(self);
            }
        }
    };
}

mutants! {
/// A deliberately broken variant of the protocol.
pub enum Mutant {
    /// A document's write of unknown outcome cannot land any more.
    DocumentDoubtForgotten,
    /// A refused write of a document is not read back.
    DocumentRefusalNotReadBack,
    /// A former leader's document counts as one's own before it was written.
    DocumentAdoptSkipped,
    /// A document of a later epoch is written over.
    DocumentEpochIgnored,
    /// A document's write of unknown outcome counts as landed.
    DocumentUnknownTakenForWon,
    /// The lease deadline is counted from the answer to a renewal instead of from when it was sent.
    DeadlineFromAnswer,
    /// A refused conditional write is taken for a successful one.
    LostTakenForWon,
    /// An unknown outcome is taken for a success without reading back.
    UnknownTakenForWon,
    /// The next epoch is not derived from the highest one seen.
    EpochNotRaised,
    /// The leader goes on past its deadline while the store does not answer.
    DeadlineIgnored,
    /// A standby takes over after half a hold instead of the expiry.
    ExpiryTooShort,
    /// A standby takes over once the hold is over by its own clock, as if clocks never drifted.
    HoldTakenForExpiry,
    /// A node that finds its own late record leads by it, however old the write is.
    LateRecordAdopted,
    /// The seat is vacated while the leader's processes still run.
    VacatedBeforeStopped,
    /// A leader that is asked from outside to step down renews instead.
    MarkIgnored,
    /// A look at the other seat that got no answer counts as what was last seen, or as free.
    UnansweredLookTakenForFree,
    /// A read of the other seat that was sent before this one was won counts like one that was sent afterwards.
    EarlierReadCounts,
    /// A new holder of the global seat does not look at the plugin's own seat first.
    SeatNotChecked,
    /// The next epoch is derived from the leader last announced, not from the seat that was read.
    EpochFromLastLeader,
    /// The next epoch is derived only from the seat that was read; higher ones seen before are forgotten.
    HighestForgotten,
    /// Vacating restarts the count of epochs, as deleting the seat would.
    VacateResetsEpoch,
    /// A cold start calls a seat dead by the store's clock without any margin.
    StoreClockTrusted,
    /// A leader that reads its own record back assumes that its unknown renewal landed, whatever the nonce.
    NonceIgnored,
    /// The silence is counted from when the read that saw the last change was sent.
    SilenceFromSending,
    /// Every node thinks it is first in rank.
    RankIgnored,
    /// The first claim does not wait for nodes that start at the same time.
    SettleSkipped,
    /// A node leads again by a late record of an epoch it has lost.
    RetiredEpochLed,
    /// A denied claim is treated as a refused one and tried again without a growing pause.
    DeniedTakenForLost,
    /// Processes are not wound down at 80 % of the hold.
    WindDownIgnored,
    /// A record with the same node id is taken for the node's own, whichever of its lives wrote it.
    IncarnationIgnored,
    /// A node that stepped down claims again at once.
    CooldownSkipped,
    /// A presence counts as live forever.
    PresenceLiveForever,
    /// A node that leaves vacates the seat it sees, whoever holds it.
    OthersRecordVacated,
    /// The next renewal is due one heartbeat after the answer to the last one.
    CadenceStretched,
    /// The leader renews while another seat request is in flight.
    TwoSeatRequests,
    /// A renewal of unknown outcome ends leadership at once.
    UnknownEndsLeadership,
    /// Work is started again while work that was told to stop still runs.
    RecoversBeforeStopped,
    /// A held seat that vanished is claimed without waiting for its holder's lease to end.
    VanishedSeatClaimed,
    /// A leader that finds somebody else on the seat renews what it finds.
    SupersededIgnored,
    /// A silent leader is replaced without the takeover delay.
    TakeoverDelaySkipped,
    /// A failed read is repeated at once, forever.
    NoBackOff,
    /// A node that leaves forgets to remove its presence.
    PresenceLeftBehind,
    /// The record of work that did not stop is vacated while that work may act.
    StuckRecordVacated,
    /// The probe's verdict is not awaited: any store will do.
    UnsafeStoreAccepted,
    /// The fence's grace trusts only the sender's word.
    GraceBySenderOnly,
    /// The fence's grace trusts only the receiver's clock.
    GraceByReceiverOnly,
    /// The fence's grace covers every older epoch, not only the one just before.
    GraceForAllEpochs,
    /// The fence accepts the previous epoch forever.
    GraceNeverEnds,
    /// A process is restarted as often as it fails.
    RestartIntensityIgnored,
    /// Processes are stopped in the order they were started.
    StoppedInStartOrder,
    /// Processes are reported stopped as soon as they were asked to stop.
    ReleasedBeforeExited,
    /// A process that waits for its restart is started even though leadership is over.
    RestartedAfterLoss,
    /// A process that failed is restarted at once, however often it failed.
    RestartPauseSkipped,
    /// A worker's silence is counted up to the answer to a list, not up to when it was sent.
    WorkerSilenceToAnswer,
    /// A worker's silence is counted from when the list that saw its last change was sent.
    WorkerSilenceFromSending,
    /// A new leader does not give every worker a full timeout of its own watch.
    WorkerWatchSkipped,
    /// A new leader forgets which silences the last snapshot reported.
    WorkerSilencesForgotten,
    /// A snapshot is not made again when its publication is not known to have worked.
    WorkerSnapshotTakenForPublished,
    /// A silence gets a new name in every snapshot.
    WorkerSilenceRenamed,
    /// A node reports a silence with every snapshot that contains it.
    WorkerTimeoutToldAgain,
    /// A refused heartbeat is taken as proof of another process under the id.
    WorkerRefusalTakenForSuperseded,
    /// The id of another process is taken over without watching whether that process is alive.
    WorkerRivalNotWatched,
    /// A refused heartbeat is sent again with the version of whatever is there as its condition.
    WorkerRivalOverwritten,
    /// A worker that leaves removes the object without checking whose it is.
    WorkerRemovesBlindly,
    /// A worker that is back is not reported.
    WorkerNeverRecovers,
    /// An object that could not be read is read again in every sweep.
    WorkerReadsRepeated,
    /// A job is written into an inbox before the ledger says that it is there.
    JobDispatchedUnrecorded,
    /// A new leader leaves the inboxes as it finds them, open to writes of the previous leader.
    JobInboxNotFenced,
    /// A former leader that finds another leader's ledger carries on with its own.
    JobLedgerReclaimed,
    /// A result is applied no matter which attempt it belongs to.
    JobLateResultApplied,
    /// An entry counts as withdrawn before the inbox was written.
    JobWithdrawnUnwritten,
    /// A result is removed from the inbox before it is in the ledger.
    JobResultDropped,
    /// A write of unknown outcome that was not found is forgotten, although it may still land.
    JobDoubtForgotten,
    /// A job is tried again without limit.
    JobAttemptsUnbounded,
    /// A worker runs what it has seen, not only what it has claimed.
    JobRunUnclaimed,
    /// A worker runs what a former life of it claimed.
    JobClaimInherited,
    /// A worker writes off what another life of it claimed without asking whose id it is now.
    JobSuccessorWrittenOff,
    /// A new leader believes the previous leader about which workers are gone, without having listed the workers itself.
    JobWorkersNotListed,
    /// Jobs are dispatched to a worker that has said it takes no more.
    JobDrainIgnored,
    /// A new leader dispatches by the ledger it read, without having written it.
    JobLedgerNotAdopted,
    /// The watermark of a series is not kept longer than the job.
    JobWatermarkNotKept,
    /// A claimed job is given to another worker because it takes long.
    JobReassignedWhileRun,
    /// A late failure reopens a finished job.
    JobLateResultReopens,
    /// An order is taken out before the ledger on the store shows what it asked for.
    JobOrderTakenEarly,
    /// A job leaves the ledger while somebody still asks for it.
    JobForgottenWhileOrdered,
    /// Nobody remembers which batches of orders were served.
    JobBatchForgotten,
    /// A new leader counts only the jobs of a queue that it dispatched itself.
    JobQueueUncounted,
    /// A job leaves the ledger before the history has it.
    JobForgottenUnrecorded,
    /// The history takes jobs that are not over in the ledger on the store.
    HistoryBeforeLedger,
    /// The newest jobs of the history are let go before all parts have taken them.
    HistoryHandedOverEarly,
    /// The history lets go of a job before the notice of its end is kept.
    NoticeForgotten,
    /// A notice that could not be delivered is given up.
    NoticeSentOnce,
    /// A new leader dispatches before it knows which queues are paused.
    JobPauseUnread,
    /// A worker is given jobs that it does not take.
    JobServesIgnored,
    /// A worker runs what only a former life of it took.
    JobUnservedIsRun,
    /// What may have been begun for a key is run again without having been asked to.
    OnceAgain,
    /// What is done once for a key is begun before the record says so.
    OnceUnrecorded,
    /// A new leader tries a job again without waiting for the end of its backoff.
    JobBackoffForgotten,
    /// A job that was called off is tried again.
    JobCancelForgotten,
    /// An order to try a job again that is found twice is served twice.
    JobRetriedTwice,
    /// A process that does not stop when asked is never cut off.
    AbortForgotten,
    /// Every missed due time is created.
    PlanEveryMissed,
    /// Open jobs are not counted.
    PlanOpenForgotten,
    /// A due time whose job exists is submitted again.
    PlanExistingForgotten,
    /// The next round is planned before the last one was answered.
    PlanWhileSubmitting,
    /// Jobs are submitted before anything is known about those in the ledger.
    PlanUnobserved,
    /// Requested jobs are created whether there is room or not.
    PlanRequestsUnlimited,
}
}

impl Mutant {
    /// Every mistake in a leader's own work that the simulator catches: supervision, jobs, scheduled jobs. The others
    /// are caught by tests of the core.
    pub const LEADERS_WORK: &[Mutant] = &[
        Mutant::JobDispatchedUnrecorded,
        Mutant::JobInboxNotFenced,
        Mutant::JobLedgerReclaimed,
        Mutant::JobLateResultApplied,
        Mutant::JobWithdrawnUnwritten,
        Mutant::JobResultDropped,
        Mutant::JobAttemptsUnbounded,
        Mutant::JobRunUnclaimed,
        Mutant::JobClaimInherited,
        Mutant::JobLedgerNotAdopted,
        Mutant::JobWatermarkNotKept,
        Mutant::JobReassignedWhileRun,
        Mutant::JobLateResultReopens,
        Mutant::JobQueueUncounted,
        Mutant::JobServesIgnored,
        Mutant::JobUnservedIsRun,
        Mutant::JobCancelForgotten,
        Mutant::NoticeForgotten,
        Mutant::NoticeSentOnce,
        Mutant::OnceAgain,
        Mutant::OnceUnrecorded,
        Mutant::RestartedAfterLoss,
        Mutant::ReleasedBeforeExited,
        Mutant::AbortForgotten,
        Mutant::PlanEveryMissed,
        Mutant::PlanOpenForgotten,
    ];

    /// Every mistake in the election and the workers. Mistakes in the choice of a seat are caught by the core's own schedules.
    pub const ELECTION: &[Mutant] = &[
        Mutant::DeadlineFromAnswer,
        Mutant::LostTakenForWon,
        Mutant::UnknownTakenForWon,
        Mutant::EpochNotRaised,
        Mutant::DeadlineIgnored,
        Mutant::ExpiryTooShort,
        Mutant::HoldTakenForExpiry,
        Mutant::LateRecordAdopted,
        Mutant::VacatedBeforeStopped,
        Mutant::EpochFromLastLeader,
        Mutant::HighestForgotten,
        Mutant::VacateResetsEpoch,
        Mutant::StoreClockTrusted,
        Mutant::NonceIgnored,
        Mutant::SilenceFromSending,
        Mutant::RankIgnored,
        Mutant::SettleSkipped,
        Mutant::RetiredEpochLed,
        Mutant::DeniedTakenForLost,
        Mutant::WindDownIgnored,
        Mutant::IncarnationIgnored,
        Mutant::CooldownSkipped,
        Mutant::PresenceLiveForever,
        Mutant::OthersRecordVacated,
        Mutant::CadenceStretched,
        Mutant::TwoSeatRequests,
        Mutant::UnknownEndsLeadership,
        Mutant::RecoversBeforeStopped,
        Mutant::VanishedSeatClaimed,
        Mutant::SupersededIgnored,
        Mutant::TakeoverDelaySkipped,
        Mutant::NoBackOff,
        Mutant::PresenceLeftBehind,
        Mutant::StuckRecordVacated,
        Mutant::UnsafeStoreAccepted,
        Mutant::GraceBySenderOnly,
        Mutant::GraceByReceiverOnly,
        Mutant::GraceForAllEpochs,
        Mutant::GraceNeverEnds,
        Mutant::MarkIgnored,
        Mutant::WorkerSilenceToAnswer,
        Mutant::WorkerSilenceFromSending,
        Mutant::WorkerWatchSkipped,
        Mutant::WorkerSilencesForgotten,
        Mutant::WorkerSnapshotTakenForPublished,
        Mutant::WorkerSilenceRenamed,
        Mutant::WorkerTimeoutToldAgain,
        Mutant::WorkerRefusalTakenForSuperseded,
        Mutant::WorkerRivalNotWatched,
        Mutant::WorkerRivalOverwritten,
        Mutant::WorkerRemovesBlindly,
        Mutant::WorkerNeverRecovers,
        Mutant::WorkerReadsRepeated,
    ];

    /// Mistakes of [`Document`](crate::document::Document), caught by its own schedules.
    pub const DOCUMENT: &[Mutant] = &[
        Mutant::DocumentDoubtForgotten,
        Mutant::DocumentRefusalNotReadBack,
        Mutant::DocumentAdoptSkipped,
        Mutant::DocumentEpochIgnored,
        Mutant::DocumentUnknownTakenForWon,
    ];

    /// Mistakes of [`Scheduler`](crate::Scheduler), caught by its own schedules.
    pub const SCHEDULER: &[Mutant] = &[
        Mutant::PlanExistingForgotten,
        Mutant::PlanWhileSubmitting,
        Mutant::PlanUnobserved,
        Mutant::PlanRequestsUnlimited,
        Mutant::PlanOpenForgotten,
    ];
}
