//! From raw answers to outcomes: the one table of what each status means.

use super::credentials::NoCredentials;
use super::wire::{Call, Ending};
use crate::{Condition, List, Read, Remove, Trouble, TroubleKind, Write};

/// What a failed request amounts to, whatever it asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// The condition was checked and did not hold (412, 304).
    Condition,
    /// There is no such object (404).
    NoObject,
    /// The request had no effect, for a passing reason.
    Passing(Trouble),
    /// The request had no effect, for a lasting reason.
    Lasting(Trouble),
    /// The request may have had an effect.
    Unclear(Trouble),
}

/// Error codes that blame the key, the secret, the token or the clock, whatever the status.
const CREDENTIAL_CODES: [&str; 14] = [
    "AuthFailure",
    "AuthenticationFailed",
    "AuthorizationHeaderMalformed",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidAuthenticationInfo",
    "InvalidClientTokenId",
    "InvalidSecurity",
    "InvalidToken",
    "MissingSecurityHeader",
    "NoAuthenticationInformation",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
];

/// Codes that say the bucket, not the object, is missing.
const NO_BUCKET_CODES: [&str; 2] = ["NoSuchBucket", "ContainerNotFound"];

/// Judges a failed call. `ever_sent` says whether this store has ever got as far as sending a request: missing credentials
/// are a configuration error at the first request, and a passing one later.
pub(super) fn judge(
    call: &Call,
    what: &str,
    error: Option<&object_store::Error>,
    ever_sent: bool,
) -> Failure {
    match &call.store {
        None => not_sent(call, what, error, ever_sent),
        Some(Ending::Open) => {
            Failure::Unclear(Trouble::new(TroubleKind::Timeout, format!("{what}: no answer in time")))
        }
        Some(Ending::NotConnected { detail, timeout }) => {
            let kind = if *timeout { TroubleKind::Timeout } else { TroubleKind::Connection };
            Failure::Passing(Trouble::new(kind, format!("{what}: cannot connect: {detail}")))
        }
        Some(Ending::Broken { detail, timeout: true }) => Failure::Unclear(Trouble::new(
            TroubleKind::Timeout,
            format!("{what}: no answer in time: {detail}"),
        )),
        Some(Ending::Broken { detail, timeout: false }) => Failure::Unclear(Trouble::new(
            TroubleKind::Connection,
            format!("{what}: the answer was lost: {detail}"),
        )),
        // It succeeded, but the answer lacks something required (an ETag) or is unreadable. The client's text cannot contain
        // a signed URL: only errors of failed requests do.
        Some(Ending::Answered { status: status @ 200..=299, .. }) => {
            let why = error.map_or_else(|| "no whole answer in time".to_owned(), ToString::to_string);
            Failure::Unclear(Trouble::new(TroubleKind::Malformed, format!("{what}: {status}, but {why}")))
        }
        Some(Ending::Answered { status, code, message }) => answered(*status, code, message, what),
    }
}

/// The client stopped before it sent anything: it has no credentials, or refuses the request itself.
fn not_sent(call: &Call, what: &str, error: Option<&object_store::Error>, ever_sent: bool) -> Failure {
    let (why, is_passing) = match (error.and_then(NoCredentials::behind), error, &call.waiting) {
        (Some(none), _, _) => (none.to_string(), none.is_passing),
        (None, None, Some(waiting)) => (waiting.clone(), true),
        (None, Some(_), _) | (None, None, None) => not_opened(call, error),
    };
    // A failure before any request comes from a token file or a helper program, so it is about credentials too.
    let kind = match (&call.other, &call.waiting, error) {
        (None, None, None) => TroubleKind::Timeout,
        (Some(_), _, _) | (_, Some(_), _) | (_, _, Some(_)) => TroubleKind::Credentials,
    };
    let trouble = Trouble::new(kind, format!("{what}: {why}"));
    match is_passing || ever_sent {
        true => Failure::Passing(trouble),
        false => Failure::Lasting(trouble),
    }
}

/// The client has credentials but could not open a session with them (S3 Express), or refused the request.
fn not_opened(call: &Call, error: Option<&object_store::Error>) -> (String, bool) {
    let place = &call.other_place;
    match &call.other {
        Some(Ending::Answered { status, code, .. }) => {
            (format!("no session: {place} answered {status} {code}"), *status >= 500)
        }
        Some(Ending::NotConnected { detail, timeout } | Ending::Broken { detail, timeout }) => {
            (format!("no session: {place} did not answer: {detail}"), *timeout)
        }
        Some(Ending::Open) => (format!("no session: {place} did not answer in time"), true),
        // No request was made, so there is no signed URL that the text could repeat.
        None => match error {
            Some(error) => (error.to_string(), false),
            None => ("nothing was sent in time".to_owned(), true),
        },
    }
}

fn answered(status: u16, code: &str, message: &str, what: &str) -> Failure {
    let said = |kind: TroubleKind| {
        // An engine's message about credentials may repeat some of them; its code is enough.
        let words = if kind == TroubleKind::Credentials { "" } else { message };
        let text =
            [code, words].iter().filter(|text| !text.is_empty()).copied().collect::<Vec<_>>().join(": ");
        Trouble::new(kind, format!("{what}: {status} {text}").trim_end())
    };
    if (400..500).contains(&status) && CREDENTIAL_CODES.contains(&code) {
        return Failure::Lasting(said(TroubleKind::Credentials));
    }
    match status {
        304 | 412 => Failure::Condition,
        300..=399 => {
            let detail =
                format!("{what}: {status} {code}: the bucket is at another endpoint or in another region");
            Failure::Lasting(Trouble::new(TroubleKind::Missing, detail))
        }
        401 => Failure::Lasting(said(TroubleKind::Credentials)),
        403 => Failure::Lasting(said(TroubleKind::Permission)),
        404 if NO_BUCKET_CODES.contains(&code) => Failure::Lasting(said(TroubleKind::Missing)),
        404 => Failure::NoObject,
        // Azure answers 409 with this code when the object to be created exists. Every other 409 means two writers at once:
        // it does not say that somebody holds the object, and nothing was written.
        409 if code == "BlobAlreadyExists" => Failure::Condition,
        409 => Failure::Passing(said(TroubleKind::Busy)),
        408 => Failure::Unclear(said(TroubleKind::Timeout)),
        400 if code == "RequestTimeout" => Failure::Unclear(said(TroubleKind::Timeout)),
        413 => Failure::Lasting(said(TroubleKind::TooLarge)),
        429 | 503 => Failure::Unclear(said(TroubleKind::Throttled)),
        400..=499 | 501 | 505 => Failure::Lasting(said(TroubleKind::Unsupported)),
        // Ceph answers a lost race with 500. It may also have written: nothing is known.
        _ => Failure::Unclear(said(TroubleKind::Server)),
    }
}

/// Judges an error of a store whose wire is not observed.
pub(super) fn judge_unseen(error: &object_store::Error, what: &str) -> Failure {
    use object_store::Error as E;
    let said = |kind: TroubleKind| Trouble::new(kind, format!("{what}: {error}"));
    match error {
        E::AlreadyExists { .. } | E::Precondition { .. } | E::NotModified { .. } => Failure::Condition,
        E::NotFound { .. } => Failure::NoObject,
        E::PermissionDenied { .. } => Failure::Lasting(said(TroubleKind::Permission)),
        E::Unauthenticated { .. } => Failure::Lasting(said(TroubleKind::Credentials)),
        E::NotSupported { .. } | E::NotImplemented { .. } | E::UnknownConfigurationKey { .. } => {
            Failure::Lasting(said(TroubleKind::Unsupported))
        }
        E::InvalidPath { .. } => Failure::Lasting(said(TroubleKind::Malformed)),
        E::Generic { .. } | E::JoinError { .. } | _ => Failure::Unclear(said(TroubleKind::Server)),
    }
}

impl Failure {
    pub(super) fn into_write(self, condition: &Condition, what: &str) -> Write {
        let odd = |answer: &str| {
            let detail = format!("{what}: answered {answer} to a write without a condition");
            Write::Denied(Trouble::new(TroubleKind::Malformed, detail))
        };
        match (self, condition) {
            (Failure::Condition, Condition::Absent | Condition::Matches(_)) => Write::Lost,
            (Failure::Condition, Condition::Any) => odd("412"),
            // The object to be replaced does not exist.
            (Failure::NoObject, Condition::Matches(_)) => Write::Lost,
            (Failure::NoObject, Condition::Absent | Condition::Any) => Write::Denied(Trouble::new(
                TroubleKind::Missing,
                format!("{what}: 404, no such bucket or container"),
            )),
            (Failure::Passing(trouble), _) => Write::Unavailable(trouble),
            (Failure::Lasting(trouble), _) => Write::Denied(trouble),
            (Failure::Unclear(trouble), _) => Write::Unknown(trouble),
        }
    }

    pub(super) fn into_read(self, conditional: bool, what: &str) -> Read {
        match self {
            Failure::Condition if conditional => Read::Unchanged,
            Failure::Condition => Read::Denied(Trouble::new(
                TroubleKind::Malformed,
                format!("{what}: answered 304 or 412 to a read without a condition"),
            )),
            Failure::NoObject => Read::Absent,
            Failure::Passing(trouble) | Failure::Unclear(trouble) => Read::Unavailable(trouble),
            Failure::Lasting(trouble) => Read::Denied(trouble),
        }
    }

    pub(super) fn into_remove(self, what: &str) -> Remove {
        match self {
            Failure::NoObject => Remove::Done,
            Failure::Condition => {
                Remove::Unknown(Trouble::new(TroubleKind::Malformed, format!("{what}: answered 304 or 412")))
            }
            Failure::Passing(trouble) => Remove::Unavailable(trouble),
            Failure::Lasting(trouble) => Remove::Denied(trouble),
            Failure::Unclear(trouble) => Remove::Unknown(trouble),
        }
    }

    pub(super) fn into_list(self, what: &str) -> List {
        match self {
            // A prefix without objects is an empty list, never a 404.
            Failure::NoObject => List::Denied(Trouble::new(
                TroubleKind::Missing,
                format!("{what}: 404, no such bucket or container"),
            )),
            Failure::Condition => List::Unavailable(Trouble::new(
                TroubleKind::Malformed,
                format!("{what}: answered 304 or 412"),
            )),
            Failure::Passing(trouble) | Failure::Unclear(trouble) => List::Unavailable(trouble),
            Failure::Lasting(trouble) => List::Denied(trouble),
        }
    }
}
