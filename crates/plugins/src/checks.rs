//! Checks: what an agent looks at when a job of a schedule comes, and what its answers say about the health of each check.
//!
//! [`Checks`] is the agent's side: it runs the checks of a job. [`JobReport`] is what it sends back, and [`Health`] is what the
//! leader concludes from many of them.

pub(crate) mod agent;
pub(crate) mod check;
pub(crate) mod health;
pub(crate) mod link_local;
pub(crate) mod report;

pub use agent::Checks;
pub use check::{Check, DnsCheck, HttpCheck, JobRun, TcpCheck};
pub use health::{CheckHealth, Health, Transition};
pub use link_local::LinkLocal;
pub use report::{CheckResult, JobReport};
