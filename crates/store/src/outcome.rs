//! Outcomes: what a store may answer, and what each answer does and does not mean.

use bytes::Bytes;
use std::fmt;
use std::sync::Arc;

/// The store's compare-and-swap tag (ETag, generation, row version). Opaque: compare it, send it back, nothing else.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(Arc<str>);

impl Version {
    /// Wraps a tag as the store gave it.
    pub fn new(tag: impl Into<Arc<str>>) -> Version {
        Version(tag.into())
    }

    /// The tag as the store gave it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v:{}", self.0)
    }
}

/// A moment on the store's own clock, in milliseconds from an origin of the store's choosing.
///
/// Only differences between two times of *one* store mean anything. Some engines round to whole seconds. The embedded
/// store counts boot time and gives everything written before the last boot the time 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StoreTime(pub u64);

/// An object as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// At most [`BODY_MAX_BYTES`](crate::BODY_MAX_BYTES).
    pub body: Bytes,
    /// To be sent back in a condition.
    pub version: Version,
    /// When it was last written, on the store's clock.
    pub modified: StoreTime,
}

/// What a write requires of the object it replaces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// There must be no such object.
    Absent,
    /// The object must still have this version.
    Matches(Version),
    /// Nothing: the last writer wins. For objects that have one writer and that no decision depends on.
    Any,
}

/// The answer to a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Write {
    /// The write happened; this is the object's new version.
    Won(Version),
    /// The write did not happen: the condition did not hold.
    Lost,
    /// The write may have happened, or may happen later. Read back and compare the nonce.
    Unknown(Trouble),
    /// The write did not happen, for a passing reason.
    Unavailable(Trouble),
    /// The write did not happen, for a reason that lasts until somebody changes something.
    Denied(Trouble),
}

/// The answer to a read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Read {
    /// The object exists.
    Found(Object),
    /// The object still has the version the caller named.
    Unchanged,
    /// There is no such object.
    Absent,
    /// No answer, for a passing reason.
    Unavailable(Trouble),
    /// No answer, for a reason that lasts until somebody changes something.
    Denied(Trouble),
}

/// The answer to a removal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Remove {
    /// The object is gone, or was never there.
    Done,
    /// It may or may not be gone.
    Unknown(Trouble),
    /// Nothing was removed, for a passing reason.
    Unavailable(Trouble),
    /// Nothing was removed, for a reason that lasts until somebody changes something.
    Denied(Trouble),
}

/// One entry in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The complete key, as `get` takes it.
    pub key: String,
    /// When it was last written, on the store's clock.
    pub modified: StoreTime,
    /// Size of the body in bytes.
    pub bytes: u64,
    /// The version, spelled as `get` spells it; `None` if this store's lists have no versions.
    ///
    /// Not promised: that lists and reads agree on every engine. A caller that saves reads this way must cope with one where
    /// they don't.
    pub version: Option<Version>,
}

/// The answer to a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum List {
    /// The list succeeded.
    Entries {
        /// At most the limit, in key order.
        entries: Vec<Entry>,
        /// Whether the limit cut the list off.
        more: bool,
    },
    /// No answer, for a passing reason.
    Unavailable(Trouble),
    /// No answer, for a reason that lasts until somebody changes something.
    Denied(Trouble),
}

/// Why a store did not do what it was asked: a kind to act on and a sentence to read. Contains no secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trouble {
    /// For programs to act on.
    pub kind: TroubleKind,
    /// For people to read; at most a few hundred characters.
    pub detail: String,
}

impl Trouble {
    /// Cuts the detail to 400 characters and strips control characters, because it may come from the other side of a
    /// network.
    pub fn new(kind: TroubleKind, detail: impl fmt::Display) -> Trouble {
        let detail =
            detail.to_string().chars().map(|c| if c.is_control() { ' ' } else { c }).take(400).collect();
        Trouble { kind, detail }
    }
}

impl std::error::Error for Trouble {}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.as_str(), self.detail)
    }
}

/// What kind of problem a store has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TroubleKind {
    /// No answer in time.
    Timeout,
    /// The connection could not be made, or broke.
    Connection,
    /// The store asked for fewer requests (429, 503 SlowDown).
    Throttled,
    /// Two writers at once (409), or a locked embedded database.
    Busy,
    /// The store failed (5xx).
    Server,
    /// The credentials are missing, wrong or expired.
    Credentials,
    /// The credentials are valid, but lack permission for this.
    Permission,
    /// There is no such bucket, container or database file.
    Missing,
    /// The store cannot do this at all (501, or a conditional write it does not support).
    Unsupported,
    /// The object is larger than [`BODY_MAX_BYTES`](crate::BODY_MAX_BYTES).
    TooLarge,
    /// The answer makes no sense.
    Malformed,
}

impl TroubleKind {
    /// A short name for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            TroubleKind::Timeout => "timeout",
            TroubleKind::Connection => "connection",
            TroubleKind::Throttled => "throttled",
            TroubleKind::Busy => "busy",
            TroubleKind::Server => "server error",
            TroubleKind::Credentials => "credentials",
            TroubleKind::Permission => "permission denied",
            TroubleKind::Missing => "missing",
            TroubleKind::Unsupported => "unsupported",
            TroubleKind::TooLarge => "too large",
            TroubleKind::Malformed => "malformed answer",
        }
    }
}

/// How to spell an ETag in `If-Match`. The standard says quoted; Ceph includes the quotes in the comparison and so refuses
/// every correct version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EtagForm {
    /// `"abc"`, as documented.
    Quoted,
    /// `abc`, without quotes.
    Unquoted,
}

impl EtagForm {
    /// The form as one word, for people.
    pub fn as_str(self) -> &'static str {
        match self {
            EtagForm::Quoted => "quoted",
            EtagForm::Unquoted => "unquoted",
        }
    }
}
