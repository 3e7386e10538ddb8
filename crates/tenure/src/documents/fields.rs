//! How anybody's type looks as a document: its fields, flat beside those of the envelope.

use super::Codec;
use crate::wire::{Envelope, Unreadable, fields_of, incarnation, nonce};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::marker::PhantomData;
use std::sync::Arc;
use tenure_core::document::Stamp;
use tenure_core::{Epoch, Incarnation, Nonce};

/// The largest document, in bytes.
pub(crate) const MAX_BYTES: usize = 1024 * 1024;

/// Room for the envelope in it.
const ENVELOPE_BYTES: usize = 256;

const ENVELOPE: [&str; 4] = ["v", "epoch", "owner", "nonce"];

/// The codec of documents whose body is a `T`.
pub(crate) struct Fields<T>(PhantomData<fn() -> T>);

impl<T> Fields<T> {
    pub(crate) fn new() -> Fields<T> {
        Fields(PhantomData)
    }
}

impl<T> Clone for Fields<T> {
    fn clone(&self) -> Fields<T> {
        Fields::new()
    }
}

/// A body, and what it looks like.
pub(crate) struct FieldsBody<T> {
    fields: Map<String, Value>,
    pub(crate) value: T,
}

/// `None` stands for a document that has an owner, but no body yet.
pub(crate) type Body<T> = Option<Arc<FieldsBody<T>>>;

impl<T: Serialize> FieldsBody<T> {
    /// The body, if it can be a document beside the fields that a rewrite keeps. The error is the rule it breaks.
    pub(crate) fn new(value: T, kept: &Map<String, Value>) -> Result<Arc<FieldsBody<T>>, String> {
        let fields = fields(&value)?;
        let text = |map: &Map<String, Value>| serde_json::to_vec(map).map_or(usize::MAX, |bytes| bytes.len());
        let bytes = text(&fields).saturating_add(text(kept)).saturating_add(ENVELOPE_BYTES);
        if bytes > MAX_BYTES {
            return Err(format!("a document has at most {MAX_BYTES} bytes; this one would have {bytes}"));
        }
        Ok(Arc::new(FieldsBody { fields, value }))
    }
}

#[cfg(any(test, feature = "fuzzing"))]
impl<T> FieldsBody<T> {
    /// The names of its own fields.
    pub(crate) fn names(&self) -> Vec<String> {
        self.fields.keys().cloned().collect()
    }
}

fn fields<T: Serialize>(value: &T) -> Result<Map<String, Value>, String> {
    let fields = match serde_json::to_value(value) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) => return Err("the body of a document must be a JSON object".to_owned()),
        Err(error) => return Err(format!("the body cannot be written as JSON: {error}")),
    };
    match ENVELOPE.iter().find(|name| fields.contains_key(**name)) {
        Some(name) => Err(format!("the field `{name}` belongs to the envelope of every document: rename it")),
        None => Ok(fields),
    }
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Codec for Fields<T> {
    type Body = Body<T>;
    type Kept = Map<String, Value>;
    const WHAT: &'static str = "a readable document";

    fn read(&self, bytes: &[u8]) -> Result<(Stamp, Body<T>, Map<String, Value>), Unreadable> {
        let mut rest = fields_of(bytes, MAX_BYTES)?;
        rest.remove("v");
        let stamp = stamp(&mut rest)?;
        if rest.is_empty() {
            return Ok((stamp, None, rest));
        }
        let value: T = serde_json::from_value(Value::Object(rest.clone()))
            .map_err(|error| Unreadable::corrupt(error.to_string()))?;
        let fields = fields(&value).map_err(Unreadable::corrupt)?;
        rest.retain(|name, _| !fields.contains_key(name));
        Ok((stamp, Some(Arc::new(FieldsBody { fields, value })), rest))
    }

    fn write(&self, stamp: Stamp, body: &Body<T>, kept: &Map<String, Value>) -> Vec<u8> {
        let mut all = kept.clone();
        all.extend(body.iter().flat_map(|body| body.fields.clone()));
        if let Ok(Value::Object(envelope)) = serde_json::to_value(Envelope::new(stamp)) {
            all.extend(envelope);
        }
        Value::Object(all).to_string().into_bytes()
    }
}

/// Takes the envelope out. People and other programs may write documents too, without one. But a foreign field with such a
/// name would be lost with the next write.
fn stamp(fields: &mut Map<String, Value>) -> Result<Stamp, Unreadable> {
    let epoch = match fields.remove("epoch") {
        None => 0,
        Some(epoch) => epoch.as_u64().filter(|epoch| *epoch <= Epoch::MAX.0).ok_or_else(|| {
            Unreadable::corrupt(format!("`epoch` must be a number from 0 to {}", Epoch::MAX.0))
        })?,
    };
    let nobody = Incarnation(0);
    let owner = match fields.remove("owner") {
        None => nobody,
        Some(owner) => owner.as_str().and_then(incarnation).ok_or_else(|| {
            Unreadable::corrupt("`owner` must be 16 hex digits: it belongs to the envelope")
        })?,
    };
    let written = match fields.remove("nonce") {
        None => None,
        // One that nobody here could have written is simply not one's own.
        Some(Value::String(text)) => nonce(&text),
        Some(_) => return Err(Unreadable::corrupt("`nonce` must be text: it belongs to the envelope")),
    };
    let nonce = written.unwrap_or(Nonce { incarnation: nobody, sequence: 0 });
    Ok(Stamp { epoch: Epoch(epoch), owner, nonce })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, Serialize, Deserialize)]
    struct Quota {
        left: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    }

    type Parts = (Stamp, Body<Quota>, Map<String, Value>);

    fn read(text: &str) -> Result<Parts, Unreadable> {
        Fields::<Quota>::new().read(text.as_bytes())
    }

    #[test]
    fn fields_that_are_not_the_types_own_survive_a_rewrite() {
        let before = r#"{"v": 1, "epoch": 4, "owner": "00000000000000ab", "nonce": "00000000000000ab-7",
            "left": 3, "note": "n", "tomorrow": {"x": 1}}"#;
        let (stamp, body, kept) = read(before).expect("readable");
        assert_eq!(body.as_ref().map(|body| body.value.left), Some(3));
        let same = Fields::<Quota>::new().write(stamp, &body, &kept);
        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).expect("JSON");
        assert_eq!(json(&same), json(before.as_bytes()));
        let body = FieldsBody::new(Quota { left: 2, note: None }, &kept).expect("fits");
        let after = json(&Fields::<Quota>::new().write(stamp, &Some(body), &kept));
        assert_eq!((&after["left"], &after["tomorrow"]["x"]), (&json!(2), &json!(1)));
        assert_eq!(after.get("note"), None, "its own field does not come back");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, detail) in [
            ("[]", "not a JSON object"),
            ("{}", "`v` must be 1"),
            (r#"{"v": 1, "epoch": -1}"#, "`epoch` must be a number from 0 to 9007199254740991"),
            (
                r#"{"v": 1, "left": 1, "owner": {}}"#,
                "`owner` must be 16 hex digits: it belongs to the envelope",
            ),
            (r#"{"v": 1, "left": 1, "nonce": 7}"#, "`nonce` must be text: it belongs to the envelope"),
            (r#"{"v": 1, "note": "n"}"#, "missing field `left`"),
        ] {
            let unreadable = read(text).map(drop).expect_err("refused");
            assert_eq!((unreadable.newer, &*unreadable.detail), (false, detail), "{text}");
        }
        assert!(read(r#"{"v": 2}"#).map(drop).expect_err("refused").newer);
        assert!(read(r#"{"v": 1, "epoch": 3}"#).expect("readable").1.is_none(), "an owner, but no body");
    }

    #[test]
    fn a_body_that_cannot_be_a_document_is_refused() {
        let refused = |body: Value| FieldsBody::new(body, &Map::new()).map(drop).expect_err("refused");
        assert!(refused(json!([1])).contains("must be a JSON object"));
        assert!(refused(json!({"epoch": 1})).contains("`epoch` belongs to the envelope"));
        assert!(refused(json!({"x": "y".repeat(MAX_BYTES)})).contains("at most 1048576 bytes"));
    }

    proptest! {
        #[test]
        fn anything_may_stand_there(bytes in any::<Vec<u8>>(), text in r#"\{("v":[0-2],)?("(epoch|owner|nonce|left)":("?[0-9a-f-]{0,18}"?),?){0,4}\}"#) {
            for bytes in [&bytes[..], text.as_bytes()] {
                if let Ok((stamp, body, kept)) = Fields::<Quota>::new().read(bytes) {
                    let again = Fields::<Quota>::new().write(stamp, &body, &kept);
                    let (same, _, still_kept) = Fields::<Quota>::new().read(&again).expect("our own");
                    prop_assert_eq!((same, still_kept), (stamp, kept));
                }
            }
        }
    }
}
