//! The one error of this library.

use crate::fence::Refused;
use crate::guard::LeadershipEnded;
use crate::settings::SettingsError;
use std::fmt;
use std::sync::Arc;
use tenure_core::IdError;
use tenure_store::{Entry, List, Object, OpenError, Read, Trouble};

/// Why something was not done: a kind for programs and a sentence for people.
///
/// ```
/// use tenure::error::ErrorKind;
/// use tenure::{Error, Namespace};
///
/// let error = Error::from(Namespace::new("a/b").unwrap_err());
/// assert_eq!(error.kind(), ErrorKind::Invalid);
/// assert!(!error.is_retryable());
/// println!("{error}");
/// ```
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    sentence: String,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    may_have_been_written: bool,
}

/// What kind of error it is. For most callers the predicates of [`Error`] are enough.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorKind {
    /// A setting, id, name, document or job breaks a rule. Nothing was written.
    Invalid,
    /// Somebody else has this name or id.
    Taken,
    /// There is no such thing.
    NotFound,
    /// This node does not lead: ask the leader.
    NotLeading,
    /// Somebody else leads or owns it now, or this leadership has ended. Stop the work that relies on it.
    Fenced,
    /// It was there, and is over.
    Ended,
    /// There is no room for more at present.
    Full,
    /// The object on the store cannot be read, or a newer version wrote it. It was left alone.
    Unreadable,
    /// Others changed the object during every attempt.
    Raced,
    /// The store refuses this process.
    Denied,
    /// The store does not answer.
    Unavailable,
}

impl ErrorKind {
    /// Whether the same call may succeed a little later.
    pub fn is_retryable(self) -> bool {
        matches!(self, ErrorKind::Unavailable | ErrorKind::Raced | ErrorKind::Full)
    }

    /// Whether this leader may no longer do it.
    pub fn is_fenced(self) -> bool {
        self == ErrorKind::Fenced
    }

    /// Whether the store refuses this process.
    pub fn is_denied(self) -> bool {
        self == ErrorKind::Denied
    }
}

impl Error {
    /// An error of this kind that says this.
    pub fn new(kind: ErrorKind, sentence: impl fmt::Display) -> Error {
        Error { kind, sentence: sentence.to_string(), source: None, may_have_been_written: false }
    }

    /// Adds what caused it.
    #[must_use]
    pub fn because(self, source: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error { source: Some(Arc::new(source)), ..self }
    }

    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call may succeed a little later.
    pub fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }

    /// Whether this leader may no longer do it: a later epoch or another owner was there, or leadership ended. Stop the work
    /// that relies on it.
    pub fn is_fenced(&self) -> bool {
        self.kind.is_fenced()
    }

    /// Whether the store refuses this process. It stays so until somebody changes permissions or credentials.
    pub fn is_denied(&self) -> bool {
        self.kind.is_denied()
    }

    /// Whether an object stands there that cannot be read, or that a newer version wrote.
    pub fn is_unreadable(&self) -> bool {
        self.kind == ErrorKind::Unreadable
    }

    /// Whether what was to be written may be on the store all the same, or may still get there.
    pub fn may_have_been_written(&self) -> bool {
        self.may_have_been_written
    }

    pub(crate) fn perhaps_written(self, may_have_been_written: bool) -> Error {
        Error { may_have_been_written, ..self }
    }

    pub(crate) fn not_leading() -> Error {
        Error::new(ErrorKind::NotLeading, "this node does not lead")
    }

    /// The store did not answer.
    pub fn unavailable(trouble: Trouble) -> Error {
        Error::new(ErrorKind::Unavailable, format_args!("the store does not answer: {trouble}"))
            .because(trouble)
    }

    /// The store refused.
    pub fn denied(trouble: Trouble) -> Error {
        Error::new(ErrorKind::Denied, format_args!("the store refuses: {trouble}")).because(trouble)
    }

    /// The object at this key is not what it should be.
    pub(crate) fn unreadable(key: &str, detail: String) -> Error {
        let sentence = format_args!("the object {key} cannot be read: {detail}");
        Error::new(ErrorKind::Unreadable, sentence).because(Detail(detail))
    }

    /// What an unreadable object's problem is, without its key.
    pub(crate) fn detail(&self) -> String {
        self.source.as_ref().map_or_else(|| self.sentence.clone(), ToString::to_string)
    }
}

/// What is wrong with an object.
#[derive(Debug)]
pub(crate) struct Detail(pub(crate) String);

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Detail {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// Two errors that say the same are the same, whatever caused them.
impl PartialEq for Error {
    fn eq(&self, other: &Error) -> bool {
        (self.kind, &self.sentence, self.may_have_been_written)
            == (other.kind, &other.sentence, other.may_have_been_written)
    }
}

impl Eq for Error {}

impl From<SettingsError> for Error {
    fn from(error: SettingsError) -> Error {
        Error::new(ErrorKind::Invalid, &error).because(error)
    }
}

impl From<IdError> for Error {
    fn from(error: IdError) -> Error {
        Error::new(ErrorKind::Invalid, &error).because(error)
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Error {
        let kind = if error.is_usage() { ErrorKind::Invalid } else { ErrorKind::Unavailable };
        Error::new(kind, &error).because(error)
    }
}

impl From<LeadershipEnded> for Error {
    fn from(ended: LeadershipEnded) -> Error {
        Error::new(ErrorKind::Fenced, ended).because(ended)
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        let kind = match refused {
            Refused::Stale { .. } => ErrorKind::Fenced,
            Refused::Expired { .. } => ErrorKind::Ended,
        };
        Error::new(kind, &refused).because(refused)
    }
}

/// What a read found, for whoever only looks; `None` if there is nothing, or nothing new.
pub(crate) fn found(read: Read) -> Result<Option<Object>, Error> {
    match read {
        Read::Found(object) => Ok(Some(object)),
        Read::Absent | Read::Unchanged => Ok(None),
        Read::Unavailable(trouble) => Err(Error::unavailable(trouble)),
        Read::Denied(trouble) => Err(Error::denied(trouble)),
    }
}

/// What a list showed, for whoever only looks, and whether there is more.
pub(crate) fn listed(list: List) -> Result<(Vec<Entry>, bool), Error> {
    match list {
        List::Entries { entries, more } => Ok((entries, more)),
        List::Unavailable(trouble) => Err(Error::unavailable(trouble)),
        List::Denied(trouble) => Err(Error::denied(trouble)),
    }
}
