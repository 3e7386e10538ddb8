//! Why a document was not read or written.

use crate::status::StatusError;
use tenure_store::Trouble;

/// Why a document was not read or written. The predicates say what to do about it.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// Tenure has an object or a folder with this name.
    #[error("the document name {0:?} is reserved for Tenure's own objects")]
    Reserved(String),
    /// Somebody else owns the document now, or this leadership has ended.
    #[error("{key}: {detail}{}", doubt(*.may_have_been_written))]
    Fenced {
        /// The document's key on the store.
        key: String,
        /// By whom.
        detail: String,
        /// Whether this body may have stood there for a while.
        may_have_been_written: bool,
    },
    /// What stands there cannot be read, and was left alone.
    #[error("{key} was left alone: {detail}")]
    Blocked {
        /// The document's key on the store.
        key: String,
        /// Whether a newer major version wrote it.
        newer: bool,
        /// What is wrong with it.
        detail: String,
    },
    /// The store refuses this process.
    #[error("{key}: {trouble}")]
    Denied {
        /// The document's key on the store.
        key: String,
        /// What the store said.
        trouble: Trouble,
    },
    /// The store did not answer.
    #[error("{key}: {trouble}{}", doubt(*.may_have_been_written))]
    Unavailable {
        /// The document's key on the store.
        key: String,
        /// What went wrong.
        trouble: Trouble,
        /// Whether this body may stand there, or may still get there.
        may_have_been_written: bool,
    },
    /// Somebody else wrote it during every attempt.
    #[error("{key}: somebody else changed it during every attempt{}", doubt(*.may_have_been_written))]
    Raced {
        /// The document's key on the store.
        key: String,
        /// Whether this body may have stood there for a while.
        may_have_been_written: bool,
    },
    /// The body cannot be a document. Nothing was sent.
    #[error("{key}: {rule}")]
    Body {
        /// The document's key on the store.
        key: String,
        /// The rule it breaks.
        rule: String,
    },
}

fn doubt(may_have_been_written: bool) -> &'static str {
    if may_have_been_written { "; it may or may not have been written" } else { "" }
}

impl DocumentError {
    /// Whether this leader may no longer write the document: a later epoch wrote it, somebody opened it again, or
    /// leadership ended. Stop the work that relies on it.
    pub fn is_fenced(&self) -> bool {
        matches!(self, DocumentError::Fenced { .. })
    }

    /// Whether the store refuses this process.
    pub fn is_denied(&self) -> bool {
        matches!(self, DocumentError::Denied { .. })
    }

    /// Whether an object stands there that cannot be read, or that a newer version wrote.
    pub fn is_blocked(&self) -> bool {
        matches!(self, DocumentError::Blocked { .. })
    }

    /// Whether the same call may succeed a little later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, DocumentError::Unavailable { .. } | DocumentError::Raced { .. })
    }

    /// Whether the body may be on the store all the same.
    pub fn may_have_been_written(&self) -> bool {
        match self {
            DocumentError::Fenced { may_have_been_written, .. }
            | DocumentError::Unavailable { may_have_been_written, .. }
            | DocumentError::Raced { may_have_been_written, .. } => *may_have_been_written,
            DocumentError::Reserved(_)
            | DocumentError::Blocked { .. }
            | DocumentError::Denied { .. }
            | DocumentError::Body { .. } => false,
        }
    }
}

/// For whoever reads a document as part of looking at a namespace.
impl From<DocumentError> for StatusError {
    fn from(error: DocumentError) -> StatusError {
        let detail = error.to_string();
        match error {
            DocumentError::Unavailable { trouble, .. } => StatusError::Unavailable(trouble),
            DocumentError::Denied { trouble, .. } => StatusError::Denied(trouble),
            DocumentError::Blocked { key, detail, .. } => StatusError::Unreadable { key, detail },
            DocumentError::Reserved(key)
            | DocumentError::Fenced { key, .. }
            | DocumentError::Raced { key, .. }
            | DocumentError::Body { key, .. } => StatusError::Unreadable { key, detail },
        }
    }
}
