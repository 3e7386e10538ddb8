//! Ids, each of its own type: a worker's id cannot be taken for a job's.
//!
//! Ids become parts of object keys and of log lines. So they have 1 to 128 bytes of letters, digits, `-`, `_` and `.`, start with a
//! letter or a digit, and do not contain `..`. Whatever comes from outside is checked once, where it comes in:
//!
//! ```
//! use tenure::id::{JobId, WorkerId};
//!
//! let worker: WorkerId = "q1-worker-1".parse()?;
//! assert_eq!(worker.as_str(), "q1-worker-1");
//!
//! let error = JobId::new("a/b").unwrap_err();
//! assert!(error.to_string().starts_with("\"a/b\" is not a job id: it "));
//! # Ok::<_, tenure::id::IdError>(())
//! ```
//!
//! An id says nothing about whether there is such a thing.

pub use tenure_core::{
    CheckName, DocumentName, IdError, JobId, KindName, Label, Namespace, NodeId, PluginName, ProcessName,
    QueueName, ScheduleId, SeriesId, WorkerId,
};
