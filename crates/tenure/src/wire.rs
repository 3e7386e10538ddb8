//! The objects on the store: JSON, camelCase, with a major version. Fields this version does not know are kept.

use crate::metrics::Metrics;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tenure_core::{Epoch, Holder, Incarnation, NodeId, Nonce, Seat, SeatProblem, SeatState};

/// What this software calls itself on the store.
pub(crate) const SOFTWARE: &str = concat!("tenure ", env!("CARGO_PKG_VERSION"));

/// The major version this software writes and reads.
pub(crate) const VERSION: u64 = 1;

/// No object of ours is larger; a larger one is foreign.
pub(crate) const DOCUMENT_MAX_BYTES: usize = 64 * 1024;

/// No lease is longer; a longer one on the store is corrupt, and would otherwise freeze the seat.
const LEASE_MAX_MS: u64 = 24 * 3600 * 1000;

/// The longest explanation of what is wrong with an object, in characters.
pub(crate) const DETAIL_MAX_CHARS: usize = 300;

/// `seat.json`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SeatDocument {
    v: u64,
    pub(crate) epoch: u64,
    state: StateName,
    holder: HolderDocument,
    lease_timeout: u64,
    renewals: u64,
    nonce: String,
    /// When the holder claimed, by its wall clock. For people; nothing is decided by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) claimed_at: Option<String>,
    /// The mark: somebody asks the holder to hand over. It counts for the epoch it names and no other, so that one that an
    /// older version carried along does no harm; whatever else stands there is no mark, and no reason to refuse the seat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    step_down: Option<Value>,
    /// The settings the namespace runs by, as its leader has them. For people and for later plugins.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(crate) settings: Map<String, Value>,
    /// Which snapshot of the workers is the newest. Read leniently: whatever stands here must not cost the seat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    snapshot: Option<Value>,
    /// Whatever a later minor version added.
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StateName {
    Held,
    Vacant,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct HolderDocument {
    node: String,
    incarnation: String,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// Which snapshot of the workers is the newest, as the seat carries it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SnapshotPointer {
    /// The version of `snapshot.json`.
    pub(crate) version: String,
    /// The epoch of its publisher.
    pub(crate) epoch: u64,
    /// Its number within the epoch.
    pub(crate) sequence: u64,
}

/// Why an object is not a seat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unreadable {
    pub(crate) problem: SeatProblem,
    pub(crate) detail: String,
}

impl Unreadable {
    fn corrupt(detail: impl Into<String>) -> Unreadable {
        Unreadable { problem: SeatProblem::Corrupt, detail: told(&detail.into()) }
    }
}

/// What a message may repeat of an object that may be anything: one line, of a bounded length.
pub(crate) fn told(detail: &str) -> String {
    let mut chars = detail.chars().map(|c| if c.is_control() { ' ' } else { c });
    let cut: String = chars.by_ref().take(DETAIL_MAX_CHARS).collect();
    if chars.next().is_some() { cut + "…" } else { cut }
}

/// A field and whether a value can be its own.
pub(crate) type FieldRule = (&'static str, fn(&Value) -> bool);

/// The parser's error with the field it is about, which the parser does not say once fields are kept that it does not
/// know. `body` is the object, `rules` those of its fields that have a type.
pub(crate) fn field_error(error: &serde_json::Error, body: &Value, rules: &[FieldRule]) -> String {
    let wrong = |(name, fits): &&FieldRule| body.get(*name).is_some_and(|value| !fits(value));
    match rules.iter().find(wrong) {
        Some((name, _)) => format!("`{name}`: {error}"),
        None => error.to_string(),
    }
}

/// The fields of a seat that have a type.
const SEAT_FIELDS: &[FieldRule] = &[
    ("epoch", Value::is_u64),
    ("state", |value| matches!(value.as_str(), Some("held" | "vacant"))),
    ("holder", |value| {
        ["node", "incarnation"].iter().all(|name| value.get(name).is_some_and(Value::is_string))
    }),
    ("leaseTimeout", Value::is_u64),
    ("renewals", Value::is_u64),
    ("nonce", Value::is_string),
    ("claimedAt", |value| value.is_string() || value.is_null()),
    ("settings", Value::is_object),
];

impl SeatDocument {
    /// The document for a record of the core. What `before` carried beyond the record is kept.
    pub(crate) fn new(
        seat: &Seat,
        before: Option<&SeatDocument>,
        claimed_at: String,
        settings: Map<String, Value>,
        snapshot: Option<&SnapshotPointer>,
    ) -> SeatDocument {
        let same_tenure = before.filter(|before| before.epoch == seat.epoch.0);
        SeatDocument {
            v: VERSION,
            epoch: seat.epoch.0,
            state: match seat.state {
                SeatState::Held => StateName::Held,
                SeatState::Vacant => StateName::Vacant,
            },
            holder: HolderDocument {
                node: seat.holder.node.to_string(),
                incarnation: seat.holder.incarnation.to_string(),
                extra: same_tenure.map(|before| before.holder.extra.clone()).unwrap_or_default(),
            },
            lease_timeout: seat.lease_ms,
            renewals: seat.renewals,
            nonce: nonce_text(seat.nonce),
            claimed_at: same_tenure.and_then(|before| before.claimed_at.clone()).or(Some(claimed_at)),
            step_down: seat.step_down.then(|| {
                let kept = same_tenure.filter(|before| before.is_marked()).and_then(|b| b.step_down.clone());
                kept.unwrap_or_else(|| serde_json::json!({"epoch": seat.epoch.0}))
            }),
            settings: before
                .map(|before| before.settings.clone())
                .unwrap_or_default()
                .into_iter()
                .chain(settings)
                .collect(),
            snapshot: match snapshot {
                Some(pointer) => serde_json::to_value(pointer).ok(),
                None => before.and_then(|before| before.snapshot.clone()),
            },
            extra: before.map(|before| before.extra.clone()).unwrap_or_default(),
        }
    }

    /// The same record with the mark on it, and a nonce of whoever asks. Everything else stays as it is.
    pub(crate) fn marked(&self, nonce: Nonce, by: &str, at: String) -> SeatDocument {
        let mark = serde_json::json!({"epoch": self.epoch, "by": by, "at": at});
        SeatDocument { nonce: nonce_text(nonce), step_down: Some(mark), ..self.clone() }
    }

    fn is_marked(&self) -> bool {
        let epoch = self.step_down.as_ref().and_then(|mark| mark.get("epoch")?.as_u64());
        self.state == StateName::Held && epoch == Some(self.epoch)
    }

    /// Where the newest snapshot of the workers is, if the seat says so in a way that can be read.
    pub(crate) fn snapshot(&self) -> Option<SnapshotPointer> {
        self.snapshot.clone().and_then(|value| serde_json::from_value(value).ok())
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("maps with text keys always serialize")
    }

    /// Reads an object that may be anything at all.
    pub(crate) fn parse(body: &[u8]) -> Result<(SeatDocument, Seat), Unreadable> {
        if body.len() > DOCUMENT_MAX_BYTES {
            return Err(Unreadable::corrupt(format!(
                "{} bytes, at most {DOCUMENT_MAX_BYTES} are expected",
                body.len()
            )));
        }
        let value: Value =
            serde_json::from_slice(body).map_err(|e| Unreadable::corrupt(format!("not JSON: {e}")))?;
        let version = value.get("v").and_then(Value::as_u64);
        match version {
            Some(VERSION) => {}
            Some(newer) if newer > VERSION => {
                let detail =
                    format!("written in version {newer}, this software knows up to {VERSION}: upgrade it");
                return Err(Unreadable { problem: SeatProblem::Newer, detail });
            }
            Some(_) | None => return Err(Unreadable::corrupt("`v` must be 1")),
        }
        let document = SeatDocument::deserialize(&value)
            .map_err(|e| Unreadable::corrupt(field_error(&e, &value, SEAT_FIELDS)))?;
        let seat = document.seat().map_err(Unreadable::corrupt)?;
        Ok((document, seat))
    }

    fn seat(&self) -> Result<Seat, String> {
        let node = NodeId::new(&self.holder.node).map_err(|e| format!("`holder.node`: {e}"))?;
        let incarnation =
            incarnation(&self.holder.incarnation).ok_or("`holder.incarnation` must be 16 hex digits")?;
        let nonce = nonce(&self.nonce).ok_or("`nonce` must be 16 hex digits, a dash and a number")?;
        if !(1..=LEASE_MAX_MS).contains(&self.lease_timeout) {
            return Err(format!("`leaseTimeout` {} must be 1 to {LEASE_MAX_MS} ms", self.lease_timeout));
        }
        // An epoch near the end of the number range could not be raised any more; nobody ever counted that far.
        if self.epoch == 0 || self.epoch > u64::MAX / 2 {
            return Err(format!("`epoch` {} is out of range", self.epoch));
        }
        // Neither could this: its holder adds one to it.
        if self.renewals > u64::MAX / 2 {
            return Err(format!("`renewals` {} is out of range", self.renewals));
        }
        Ok(Seat {
            epoch: Epoch(self.epoch),
            state: match self.state {
                StateName::Held => SeatState::Held,
                StateName::Vacant => SeatState::Vacant,
            },
            holder: Holder { node, incarnation },
            lease_ms: self.lease_timeout,
            renewals: self.renewals,
            nonce,
            step_down: self.is_marked(),
        })
    }
}

pub(crate) fn incarnation(text: &str) -> Option<Incarnation> {
    // Digits only: the number parser would take a sign too.
    let plain = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(text, 16).ok()).flatten().map(Incarnation)
}

fn nonce_text(nonce: Nonce) -> String {
    format!("{}-{}", nonce.incarnation, nonce.sequence)
}

pub(crate) fn nonce(text: &str) -> Option<Nonce> {
    let (incarnation_text, sequence) = text.split_once('-')?;
    if !sequence.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(Nonce { incarnation: incarnation(incarnation_text)?, sequence: sequence.parse().ok()? })
}

/// `nodes/<id>.json`. Only its age matters to the protocol; the rest is for people.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PresenceDocument {
    pub(crate) v: u64,
    pub(crate) node: String,
    pub(crate) incarnation: String,
    pub(crate) nonce: String,
    pub(crate) software: String,
    pub(crate) started_at: String,
    /// The node's figures, for whoever asks; of a fixed size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) metrics: Option<Metrics>,
}

impl PresenceDocument {
    pub(crate) fn new(me: &Holder, nonce: Nonce, started_at: &str, metrics: Metrics) -> PresenceDocument {
        PresenceDocument {
            v: VERSION,
            node: me.node.to_string(),
            incarnation: me.incarnation.to_string(),
            nonce: nonce_text(nonce),
            software: SOFTWARE.to_owned(),
            started_at: started_at.to_owned(),
            metrics: Some(metrics),
        }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain text fields always serialize")
    }

    /// The figures in a presence that may be anything at all.
    pub(crate) fn metrics_in(body: &[u8]) -> Option<Metrics> {
        if body.len() > DOCUMENT_MAX_BYTES {
            return None;
        }
        let document: PresenceDocument = serde_json::from_slice(body).ok()?;
        document.metrics.filter(|_| document.v == VERSION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat() -> Seat {
        Seat {
            epoch: Epoch(16),
            state: SeatState::Held,
            holder: Holder { node: NodeId::new("pod-b").expect("valid"), incarnation: Incarnation(0xab) },
            lease_ms: 2500,
            renewals: 3,
            nonce: Nonce { incarnation: Incarnation(0xab), sequence: 9 },
            step_down: false,
        }
    }

    fn document() -> SeatDocument {
        SeatDocument::new(&seat(), None, "2026-01-01T00:00:00Z".to_owned(), Map::new(), None)
    }

    #[test]
    fn a_seat_survives_the_round_trip() {
        let (read, record) = SeatDocument::parse(&document().to_bytes()).expect("our own");
        assert_eq!(record, seat());
        assert_eq!(read, document());
    }

    #[test]
    fn unknown_fields_are_kept_on_rewrite() {
        let mut value: Value = serde_json::from_slice(&document().to_bytes()).expect("JSON");
        value["snapshot"] = "etag-of-tomorrow".into();
        let (read, mut record) = SeatDocument::parse(value.to_string().as_bytes()).expect("still ours");
        record.renewals += 1;
        let rewritten =
            SeatDocument::new(&record, Some(&read), "later".to_owned(), Map::new(), None).to_bytes();
        let rewritten: Value = serde_json::from_slice(&rewritten).expect("JSON");
        assert_eq!(rewritten["snapshot"], "etag-of-tomorrow");
        assert_eq!(rewritten["claimedAt"], "2026-01-01T00:00:00Z", "a renewal does not move the claim");
    }

    #[test]
    fn a_mark_is_kept_by_renewals_and_dropped_by_claims_and_vacating() {
        let nonce = Nonce { incarnation: Incarnation(0xee), sequence: 1 };
        let marked = document().marked(nonce, "ops", "2026-01-02T00:00:00Z".to_owned());
        let (read, record) = SeatDocument::parse(&marked.to_bytes()).expect("ours");
        assert_eq!(record, Seat { nonce, step_down: true, ..seat() }, "nothing but the mark and the nonce");
        let next =
            |seat: Seat, before| SeatDocument::new(&seat, before, "later".to_owned(), Map::new(), None);
        let renewed = next(Seat { renewals: 4, ..record.clone() }, Some(&read));
        assert_eq!(renewed.step_down, marked.step_down);
        let unknown = next(record.clone(), None);
        assert!(
            SeatDocument::parse(&unknown.to_bytes()).expect("ours").1.step_down,
            "kept without its words"
        );
        let vacant = Seat { state: SeatState::Vacant, step_down: false, ..record.clone() };
        let claimed = Seat { epoch: Epoch(17), step_down: false, ..record };
        for seat in [vacant, claimed] {
            assert_eq!(next(seat, Some(&read)).step_down, None);
        }
    }

    #[test]
    fn what_is_no_mark_for_this_epoch_neither_counts_nor_costs_the_seat() {
        for no_mark in [
            serde_json::json!({"epoch": 15, "by": "ops"}),
            serde_json::json!({"by": "ops"}),
            serde_json::json!("now"),
            serde_json::json!([16]),
            Value::Null,
        ] {
            let mut value: Value = serde_json::from_slice(&document().to_bytes()).expect("JSON");
            value["stepDown"] = no_mark.clone();
            let (_, record) = SeatDocument::parse(value.to_string().as_bytes()).expect("a seat all the same");
            assert_eq!(record, seat(), "{no_mark}");
        }
    }

    #[test]
    fn a_presence_stays_small_and_its_figures_can_be_read_whatever_else_is_in_it() {
        let (big, rate) = (u64::MAX, f64::MAX);
        let kinds = serde_json::json!({"get": big, "getUnchanged": big, "put": big, "remove": big, "listPages": big,
            "extra": big, "bytesUp": big, "bytesDown": big});
        let metrics: Metrics = serde_json::from_value(serde_json::json!({
            "namespace": "n".repeat(128), "node": "n".repeat(128), "role": "candidate", "epoch": big,
            "heartbeats": big, "heartbeatLatencyP50": big, "heartbeatLatencyP99": big, "note": "n".repeat(128),
            "epochDriftEvents": big, "contentionEvents": big, "elections": big, "leaderChanges": big,
            "workersActive": big, "workersInactive": big, "workersSkipped": big, "workerTimeouts": big,
            "workerSweeps": big,
            "electionDurationHistogram": {"buckets": vec![serde_json::json!({"le": 60_000, "count": big}); 11]},
            "requests": {"lease": kinds, "bulk": kinds}, "requestsPerSecond": rate, "costPerMonth": rate,
            "aFieldOfTomorrow": 1,
        }))
        .expect("unknown fields are no error, missing ones neither");
        let nonce = Nonce { incarnation: Incarnation(1), sequence: big };
        let body =
            PresenceDocument::new(&seat().holder, nonce, "2026-01-01T00:00:00Z", metrics.clone()).to_bytes();
        assert!(body.len() <= 4096, "{} bytes", body.len());
        assert_eq!(PresenceDocument::metrics_in(&body), Some(metrics));
        for other in [&b""[..], b"null", b"{\"v\":1}", &[b'['; 70_000], &body[..body.len() / 2]] {
            assert_eq!(PresenceDocument::metrics_in(other), None);
        }
    }

    #[test]
    fn what_is_not_a_seat_is_named_and_never_panics() {
        let change = |field: &str, value: Value| {
            let mut document: Value = serde_json::from_slice(&document().to_bytes()).expect("JSON");
            document[field] = value;
            document.to_string().into_bytes()
        };
        for (body, says) in [
            (b"".to_vec(), "not JSON"),
            (b"null".to_vec(), "`v`"),
            (b"{}".to_vec(), "`v`"),
            (vec![b'['; 200_000], "at most"),
            (b"[[[[[".to_vec(), "not JSON"),
            (
                change("holder", serde_json::json!({"node": "../x", "incarnation": "00000000000000ab"})),
                "holder.node",
            ),
            (change("leaseTimeout", u64::MAX.into()), "leaseTimeout"),
            (change("epoch", 0.into()), "epoch"),
            (change("epoch", u64::MAX.into()), "epoch"),
            (change("epoch", (-1).into()), "`epoch`: invalid value"),
            (change("nonce", "x".into()), "nonce"),
            (change("nonce", "+0000000000000ab-1".into()), "nonce"),
            (change("nonce", "00000000000000ab-+1".into()), "nonce"),
            (change("state", "stolen".into()), "`state`: unknown variant `stolen`"),
            (change("state", "x\n".repeat(20_000).into()), "…"),
            (change("renewals", u64::MAX.into()), "renewals"),
            (change("leaseTimeout", "2s".into()), "`leaseTimeout`: invalid type"),
            (change("settings", 1.into()), "`settings`: invalid type"),
            (change("holder", "pod-a".into()), "`holder`: invalid type"),
        ] {
            let error = SeatDocument::parse(&body).expect_err(says);
            assert_eq!(error.problem, SeatProblem::Corrupt, "{says}");
            assert!(error.detail.contains(says), "{says:?} not in {:?}", error.detail);
            assert!(error.detail.chars().count() <= DETAIL_MAX_CHARS + 1, "{says}");
        }
        let newer = SeatDocument::parse(&change("v", 2.into())).expect_err("newer");
        assert_eq!(newer.problem, SeatProblem::Newer);
    }
}
