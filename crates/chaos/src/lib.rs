//! Real processes of the real binary on a real store, with a fault proxy between each node and the store, and a judge of what all
//! of them recorded.
//!
//! | module | what |
//! |---|---|
//! | [`schedule`] | which faults, decided by a seed alone |
//! | [`proxy`] | an HTTP proxy per node that can cut, delay, drop, refuse, and writes down every request for the seat |
//! | [`cluster`] | the nodes: processes of the binary, what they say, signals |
//! | [`runner`] | carries the schedule out |
//! | [`record`] | what a run leaves on disk; everything below reads only this |
//! | [`leadership`] | did two ever act at once, did an epoch have two holders |
//! | [`linearizable`] | is the history of the seat linearizable, did its epochs rise |
//! | [`checks`] | all checks and figures of a record |
//! | [`exec`] | commands under `tenure exec`, judged by what they themselves wrote |
//! | [`broken`] | programs that are broken on purpose, which the judges must catch |
//! | [`jobs`] | schedules and queues while leaders and agents are killed, judged by what arrived at a target |
//!
//! Nothing here uses the crates under test: bounds and deadlines come from what the binary prints, and the judge shares no code,
//! and so no mistake, with the code it judges. A run need not find a given mistake: it is one schedule on one machine; the
//! simulator runs millions of schedules.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "an internal crate: comment what names and types do not say")]

pub mod broken;
pub mod checks;
pub mod clock;
pub mod cluster;
pub mod exec;
pub mod jobs;
pub mod leadership;
pub mod linearizable;
pub mod proxy;
pub mod record;
pub mod report;
pub mod runner;
pub mod schedule;
pub mod stall_watch;
