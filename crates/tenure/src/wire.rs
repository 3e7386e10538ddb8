//! What all objects on the store have in common: JSON, camelCase, with a major version. Fields this version does not know are kept.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::str::FromStr;
use tenure_core::document::Stamp;
use tenure_core::{Epoch, IdError, Incarnation, Nonce, SeatProblem};

/// How this software identifies itself on the store.
pub(crate) const SOFTWARE: &str = concat!("tenure ", env!("CARGO_PKG_VERSION"));

/// The major version this software writes and reads.
pub(crate) const VERSION: u64 = 1;

/// Largest object of ours; a larger one is foreign.
pub(crate) const DOCUMENT_MAX_BYTES: usize = 64 * 1024;

/// The longest explanation of what is wrong with an object, in characters.
pub(crate) const DETAIL_MAX_CHARS: usize = 300;

/// Why an object is not the document it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unreadable {
    /// A newer major version of this software wrote it.
    pub(crate) newer: bool,
    /// What is wrong, for people.
    pub(crate) detail: String,
}

impl Unreadable {
    pub(crate) fn corrupt(detail: impl Into<String>) -> Unreadable {
        Unreadable { newer: false, detail: told(&detail.into()) }
    }

    pub(crate) fn problem(&self) -> SeatProblem {
        if self.newer { SeatProblem::Newer } else { SeatProblem::Corrupt }
    }
}

/// What every document begins with.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Envelope {
    v: u64,
    pub(crate) epoch: u64,
    owner: String,
    nonce: String,
}

impl Envelope {
    pub(crate) fn new(stamp: Stamp) -> Envelope {
        let (owner, nonce) = (stamp.owner.to_string(), nonce_text(stamp.nonce));
        Envelope { v: VERSION, epoch: stamp.epoch.0, owner, nonce }
    }

    pub(crate) fn stamp(&self) -> Result<Stamp, String> {
        if self.epoch > Epoch::MAX.0 {
            return Err(format!("`epoch` is {}, but at most {} is allowed", self.epoch, Epoch::MAX.0));
        }
        let owner = incarnation(&self.owner).ok_or("`owner` must be 16 hex digits")?;
        let nonce = nonce(&self.nonce).ok_or("`nonce` must be 16 hex digits, a dash and a number")?;
        Ok(Stamp { epoch: Epoch(self.epoch), owner, nonce })
    }
}

fn check_size(body: &[u8], most: usize) -> Result<(), Unreadable> {
    match body.len() {
        bytes if bytes > most => {
            Err(Unreadable::corrupt(format!("{bytes} bytes, but at most {most} are allowed")))
        }
        _ => Ok(()),
    }
}

fn check_version(version: Option<u64>) -> Result<(), Unreadable> {
    match version {
        Some(VERSION) => Ok(()),
        Some(newer) if newer > VERSION => {
            let detail = format!(
                "written in version {newer}, but this software only knows up to {VERSION}: upgrade it"
            );
            Err(Unreadable { newer: true, detail })
        }
        Some(_) | None => Err(Unreadable::corrupt("`v` must be 1")),
    }
}

/// The fields of an object that may be anything at all.
pub(crate) fn fields_of(body: &[u8], most_bytes: usize) -> Result<Map<String, Value>, Unreadable> {
    check_size(body, most_bytes)?;
    match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => {
            check_version(fields.get("v").and_then(Value::as_u64))?;
            Ok(fields)
        }
        Ok(_) => Err(Unreadable::corrupt("not a JSON object")),
        Err(error) => Err(Unreadable::corrupt(format!("not JSON: {error}"))),
    }
}

/// Reads an object that may be anything at all, and may be large: good documents are parsed once.
pub(crate) fn parse<T: DeserializeOwned>(
    body: &[u8],
    most_bytes: usize,
    rules: &[FieldRule],
) -> Result<T, Unreadable> {
    #[derive(Deserialize)]
    struct Versioned {
        v: u64,
    }
    check_size(body, most_bytes)?;
    let Versioned { v } = serde_json::from_slice(body)
        .map_err(|error| Unreadable::corrupt(format!("not a Tenure document: {error}")))?;
    check_version(Some(v))?;
    serde_json::from_slice(body).map_err(|error| {
        let value = serde_json::from_slice(body).unwrap_or(Value::Null);
        Unreadable::corrupt(field_error(&error, &value, rules))
    })
}

/// An id in a field.
pub(crate) fn id<T: FromStr<Err = IdError>>(field: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("`{field}`: {error}"))
}

/// A document as bytes.
pub(crate) fn to_bytes(document: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(document).expect("maps with text keys always serialize")
}

/// What a message may repeat of an object that may be anything: one line of bounded length.
pub(crate) fn told(detail: &str) -> String {
    let mut chars = detail.chars().map(|c| if c.is_control() { ' ' } else { c });
    let cut: String = chars.by_ref().take(DETAIL_MAX_CHARS).collect();
    if chars.next().is_some() { cut + "…" } else { cut }
}

/// A field, and whether a value fits it.
pub(crate) type FieldRule = (&'static str, fn(&Value) -> bool);

/// The parser's error with the field it concerns. The parser does not name the field, because unknown fields are kept.
/// `body` is the object, `rules` the rules of its typed fields.
pub(crate) fn field_error(error: &serde_json::Error, body: &Value, rules: &[FieldRule]) -> String {
    let wrong = |(name, fits): &&FieldRule| body.get(*name).is_some_and(|value| !fits(value));
    match rules.iter().find(wrong) {
        Some((name, _)) => format!("`{name}`: {error}"),
        None => error.to_string(),
    }
}

pub(crate) fn incarnation(text: &str) -> Option<Incarnation> {
    // Digits only: the number parser would accept a sign too.
    let plain = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(text, 16).ok()).flatten().map(Incarnation)
}

pub(crate) fn nonce_text(nonce: Nonce) -> String {
    format!("{}-{}", nonce.incarnation, nonce.sequence)
}

pub(crate) fn nonce(text: &str) -> Option<Nonce> {
    let (incarnation_text, sequence) = text.split_once('-')?;
    if !sequence.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(Nonce { incarnation: incarnation(incarnation_text)?, sequence: sequence.parse().ok()? })
}
