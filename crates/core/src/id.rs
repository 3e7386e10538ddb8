//! Identities: who a node is, which of its lives this is, and which write is whose.

use std::fmt;
use std::sync::Arc;

/// The longest id, in bytes. Ids become object keys and log fields.
const ID_MAX_BYTES: usize = 128;

/// Why a text is not a valid id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdError {
    /// What the text was meant to be: `node id`, say.
    pub noun: &'static str,
    /// The offending text, cut to a length that can be printed.
    pub value: String,
    pub rule: &'static str,
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a {}: it {}", self.value, self.noun, self.rule)
    }
}

impl std::error::Error for IdError {}

/// One type for the id of each thing, so that mixing two of them up does not compile:
///
/// ```compile_fail
/// use tenure_core::{JobId, WorkerId};
/// let worker: WorkerId = JobId::new("mail-7").unwrap();
/// ```
macro_rules! ids {
    ($($(#[$doc:meta])+ $name:ident: $noun:literal,)+) => {$(
        $(#[$doc])+
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Accepts letters, digits, `-`, `_` and `.`; starts with a letter or digit; 1 to 128 bytes; no `..`: it becomes
            /// part of an object key.
            pub fn new(text: &str) -> Result<$name, IdError> {
                check_id($noun, text).map($name)
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<$name, IdError> {
                $name::new(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )+};
}

ids! {
    /// The name of a node (`pod-a`), unique in its namespace.
    ///
    /// ```
    /// use tenure_core::NodeId;
    /// assert!(NodeId::new("pod-a").is_ok());
    /// assert!(NodeId::new("../pod-a").is_err());
    /// assert!(NodeId::new("a/b").unwrap_err().to_string().contains("a/b"));
    /// ```
    NodeId: "node id",
    /// Unique in its namespace.
    WorkerId: "worker id",
    /// Unique in its namespace.
    JobId: "job id",
    /// What kind of job, or of check: workers say which kinds they run.
    KindName: "kind",
    /// Jobs whose watermarks rise. Once one was created, none with its watermark or a lower one is created again, even after
    /// it is forgotten.
    SeriesId: "series of jobs",
    /// The jobs of a schedule are a series of the same name.
    ScheduleId: "schedule id",
    /// The name of one check of a schedule.
    CheckName: "check name",
    /// What a worker says of itself and a job may ask for: its partition, its domain, a capability.
    Label: "label",
    /// Where jobs wait. A queue is made by the first job that names it.
    QueueName: "queue",
    /// The name of a plugin, of a worker's as well.
    PluginName: "plugin name",
    /// The name of a leader-only process.
    ProcessName: "process name",
    /// The name of a document that a leader keeps.
    DocumentName: "document name",
    /// A namespace: one election, one seat, one set of workers and jobs.
    Namespace: "namespace",
}

impl ScheduleId {
    pub fn series(&self) -> SeriesId {
        SeriesId(Arc::clone(&self.0))
    }

    /// The id of the job for a due time. The same from every leader, so that none is created twice. An error if it would be too
    /// long.
    pub fn job(&self, due_ms: u64) -> Result<JobId, IdError> {
        JobId::new(&format!("{self}-{due_ms}"))
    }
}

impl Default for QueueName {
    /// The queue of jobs that name none.
    fn default() -> QueueName {
        QueueName(Arc::from("default"))
    }
}

impl SeriesId {
    /// The schedule that makes these jobs, if one does.
    pub fn schedule(&self) -> ScheduleId {
        ScheduleId(Arc::clone(&self.0))
    }
}

fn check_id(noun: &'static str, text: &str) -> Result<Arc<str>, IdError> {
    match broken_rule(text) {
        None => Ok(Arc::from(text)),
        Some(rule) => Err(IdError { noun, value: text.chars().take(64).collect(), rule }),
    }
}

fn broken_rule(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        return Some("must not be empty");
    }
    if text.len() > ID_MAX_BYTES {
        return Some("must be at most 128 bytes long");
    }
    if !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
        return Some("may contain only letters, digits, '-', '_' and '.'");
    }
    if !text.as_bytes()[0].is_ascii_alphanumeric() {
        return Some("must start with a letter or a digit");
    }
    if text.contains("..") {
        return Some("must not contain '..'");
    }
    None
}

/// One life of a node: a random number drawn every time the process starts.
///
/// A node that crashed and came back has the same id and a new incarnation, so it never mistakes its former self's seat for
/// its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Incarnation(pub u64);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A mark that no two writes share: the incarnation that wrote it, and the number of the write.
///
/// Stores derive versions from content, so a repeated body would bring an old version back to life. And only by finding its
/// own mark can a writer tell a lost answer from a lost race.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nonce {
    pub incarnation: Incarnation,
    /// Counts the writer's writes, so that no two share a nonce.
    pub sequence: u64,
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}-{}", self.incarnation, self.sequence)
    }
}

/// Who holds (or last held) the seat.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Holder {
    pub node: NodeId,
    pub incarnation: Incarnation,
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:?}", self.node, self.incarnation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_meant_can_be_read() {
        let holder = Holder { node: NodeId::new("pod-a").expect("valid"), incarnation: Incarnation(0xab) };
        assert_eq!(format!("{holder:?}"), "pod-a/ab");
        assert_eq!(holder.incarnation.to_string(), "00000000000000ab");
        let error = NodeId::new("a/b").expect_err("a slash");
        assert!(error.to_string().starts_with("\"a/b\" is not a node id: it "), "{error}");
    }

    #[test]
    fn ids_that_could_leave_their_folder_are_refused() {
        let long = "x".repeat(1 << 20);
        for bad in ["", ".", "..", "a/b", "/a", "a..b", "-a", "a b", "ä", "a\n", "a\0", long.as_str()] {
            let error = NodeId::new(bad).expect_err(bad);
            assert!(error.value.len() <= 64, "the message stays readable");
        }
        for good in ["a", "pod-a", "10.0.0.1", "Node_7", &"x".repeat(128)] {
            assert!(NodeId::new(good).is_ok(), "{good}");
        }
    }
}
