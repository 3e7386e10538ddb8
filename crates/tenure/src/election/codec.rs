//! What an election has on the store, as JSON: the seat and the presences of nodes.

use crate::metrics::Metrics;
use crate::terms::{SeatTerms, Term, TermEnd, asked_by, to_ms};
use crate::wire::{
    DOCUMENT_MAX_BYTES, FieldRule, SOFTWARE, Unreadable, VERSION, field_error, fields_of, id, incarnation,
    nonce, nonce_text, parse, to_bytes, told,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tenure_core::{Epoch, Holder, Lease, Nonce, Seat, SeatState, Terms};

/// Longest expiry (a hundred leases of a day, the limits of the settings); a longer one on the store is corrupt.
const EXPIRY_MAX_MS: u64 = 100 * 24 * 3600 * 1000;

/// Most renewals; a higher number on the store is corrupt.
pub(crate) const RENEWALS_MAX: u64 = u64::MAX / 2;

/// A longer silence is no time that a calendar can show.
const SILENT_MAX_MS: u64 = 100 * 365 * 24 * 3600 * 1000;

/// `seat.json`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SeatDocument {
    v: u64,
    pub(crate) epoch: u64,
    state: StateName,
    holder: HolderDocument,
    lease_hold: u64,
    lease_expiry: u64,
    renewals: u64,
    nonce: String,
    /// When the holder claimed, by its wall clock. For people; no decision depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) claimed_at: Option<String>,
    /// The mark: somebody asks the holder to hand over. It counts only for the epoch it names, so that one carried along by
    /// an older version does no harm. Any other content here is not a mark, and no reason to reject the seat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    step_down: Option<Value>,
    /// The settings of the namespace, as its leader has them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(crate) settings: Map<String, Value>,
    /// The newest snapshot of the workers. Read leniently: nothing in this field may cost the seat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    snapshot: Option<Value>,
    /// Nodes that lost the seat because they fell silent, the latest first. For people; no decision depends on it, and
    /// nothing in this field may cost the seat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deposed: Option<Value>,
    /// Why a vacant seat was vacated. Read like `deposed`, and for people too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vacated: Option<Value>,
    /// The terms before this one, the newest first, as the holder found them when it claimed. Read like `deposed`, and for people too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    former: Option<Value>,
    /// When the object was written, by the store's clock; `None` unless it was read.
    #[serde(skip)]
    pub(crate) modified_ms: Option<u64>,
    /// Fields that a later minor version added.
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// A holder that fell silent and lost the seat to another.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Deposed {
    pub(crate) node: String,
    /// When it was declared dead, by the store's clock. Anything it wrote after that shows that it is alive.
    pub(crate) at: u64,
}

/// Why a holder gave the seat up.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Vacated {
    why: TermEnd,
    /// By its wall clock.
    at: String,
    /// Who asked it to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
}

/// Most former terms that are remembered: so many leaders in a row may end before they can write down who led.
const FORMER_MAX: usize = 4;

/// Most silent holders in a row that are remembered.
const DEPOSED_MAX: usize = 8;

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

/// The newest snapshot of the workers, as the seat names it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SnapshotPointer {
    /// The version of `snapshot.json`.
    pub(crate) version: String,
    /// The epoch of its publisher.
    pub(crate) epoch: u64,
    /// Its number within the epoch.
    pub(crate) sequence: u64,
}

/// The typed fields of a seat.
const SEAT_FIELDS: &[FieldRule] = &[
    ("epoch", Value::is_u64),
    ("state", |value| matches!(value.as_str(), Some("held" | "vacant"))),
    ("holder", |value| {
        ["node", "incarnation"].iter().all(|name| value.get(name).is_some_and(Value::is_string))
    }),
    ("leaseHold", Value::is_u64),
    ("leaseExpiry", Value::is_u64),
    ("renewals", Value::is_u64),
    ("nonce", Value::is_string),
    ("claimedAt", |value| value.is_string() || value.is_null()),
    ("settings", Value::is_object),
];

impl SeatDocument {
    /// The document for a record of the core. Keeps what `before` carried beyond the record.
    pub(crate) fn new(
        seat: &Seat,
        before: Option<&SeatDocument>,
        claimed_at: String,
        settings: Map<String, Value>,
        snapshot: Option<&SnapshotPointer>,
    ) -> SeatDocument {
        let same_tenure = before.filter(|before| before.epoch == seat.epoch.0);
        let document = SeatDocument {
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
            lease_hold: seat.lease.hold_ms,
            lease_expiry: seat.lease.expiry_ms,
            renewals: seat.renewals.min(RENEWALS_MAX),
            nonce: nonce_text(seat.nonce),
            claimed_at: same_tenure
                .and_then(|before| before.claimed_at.clone())
                .or_else(|| Some(claimed_at.clone())),
            step_down: seat.step_down.then(|| {
                let kept = same_tenure.filter(|before| before.is_marked()).and_then(|b| b.step_down.clone());
                kept.unwrap_or_else(|| serde_json::json!({"epoch": seat.epoch.0}))
            }),
            settings: before
                .map(|before| before.settings.clone())
                .unwrap_or_default()
                .into_iter()
                .chain(settings.clone())
                .chain(seat.terms.into_iter().flat_map(terms_fields))
                .collect(),
            snapshot: match snapshot {
                Some(pointer) => serde_json::to_value(pointer).ok(),
                None => before.and_then(|before| before.snapshot.clone()),
            },
            deposed: before.and_then(|before| before.deposed_by(seat)),
            vacated: same_tenure.and_then(|before| before.vacated.clone()),
            former: same_tenure.and_then(|before| before.former.clone()),
            modified_ms: None,
            extra: before.map(|before| before.extra.clone()).unwrap_or_default(),
        };
        // Other people's fields must not make it longer than anybody would read: then nobody could lead.
        match before {
            Some(_) if document.is_too_long() => {
                SeatDocument::new(seat, None, claimed_at, settings, snapshot)
            }
            Some(_) | None => document,
        }
    }

    /// The deposed nodes once this record is on the seat.
    fn deposed_by(&self, seat: &Seat) -> Option<Value> {
        let mut all = self.deposed();
        let taken = self.state == StateName::Held && seat.epoch.0 > self.epoch;
        if let Some(written_ms) = self.modified_ms.filter(|_| taken) {
            all.retain(|deposed| deposed.node != self.holder.node);
            let at = written_ms.saturating_add(self.lease_expiry);
            all.insert(0, Deposed { node: self.holder.node.clone(), at });
        }
        all.retain(|deposed| deposed.node != seat.holder.node.as_str());
        all.truncate(DEPOSED_MAX);
        if all.is_empty() { None } else { serde_json::to_value(all).ok() }
    }

    /// The deposed nodes, as far as they can be read.
    pub(crate) fn deposed(&self) -> Vec<Deposed> {
        let all = self.deposed.as_ref().and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        all.iter().take(DEPOSED_MAX).filter_map(|one| serde_json::from_value(one.clone()).ok()).collect()
    }

    /// The vacant record of a holder that gave the seat up now. Whoever set the mark asked for it, unless the holder was
    /// shut down.
    pub(crate) fn vacated_because(
        mut self,
        before: &SeatDocument,
        why: Option<TermEnd>,
        at: String,
    ) -> SeatDocument {
        let mark = before.step_down.as_ref().filter(|_| before.is_marked() && why != Some(TermEnd::Shutdown));
        let by = mark.and_then(|mark| mark.get("by")?.as_str().map(asked_by));
        let why = why.or(mark.map(|_| TermEnd::StepDown)).unwrap_or(TermEnd::HandedOver);
        self.vacated = serde_json::to_value(Vacated { why, at, by }).ok();
        self.or_without_terms()
    }

    /// The record of a claim, with the term that it ends: its holder vacated the seat, or was silent for this long.
    pub(crate) fn claimed_from(mut self, before: &SeatDocument, silent_ms: Option<u64>) -> SeatDocument {
        let mut term = before.term();
        if before.state == StateName::Held {
            (term.ended, term.silent_ms) = (Some(TermEnd::Silent), silent_ms);
            let now = self.term().from;
            let silent =
                silent_ms.map(|ms| jiff::SignedDuration::from_millis(ms.min(SILENT_MAX_MS).cast_signed()));
            // By two wall clocks it could have ended before it began.
            term.until =
                now.zip(silent).and_then(|(now, silent)| Some(now.checked_sub(silent).ok()?.max(term.from?)));
        }
        let mut terms = before.former();
        terms.insert(0, term);
        terms.truncate(FORMER_MAX);
        self.former = serde_json::to_value(terms).ok();
        self.or_without_terms()
    }

    /// No room is no reason to lose the seat.
    fn or_without_terms(mut self) -> SeatDocument {
        if self.is_too_long() {
            (self.vacated, self.former) = Default::default();
        }
        self
    }

    /// The term of the holder, or of whoever vacated it.
    fn term(&self) -> Term {
        let time = |text: &str| text.parse().ok().map(to_ms);
        let vacated = self.vacated.clone().filter(|_| self.state == StateName::Vacant);
        let vacated = vacated.and_then(|value| serde_json::from_value::<Vacated>(value).ok());
        let unsaid = (self.state == StateName::Vacant).then_some(TermEnd::HandedOver);
        Term {
            epoch: self.epoch,
            leader: self.holder.node.clone(),
            incarnation: incarnation(&self.holder.incarnation).map(|life| life.to_string()),
            from: self.claimed_at.as_deref().and_then(time),
            until: vacated.as_ref().and_then(|vacated| time(&vacated.at)),
            ended: vacated.as_ref().map(|vacated| vacated.why).or(unsaid),
            silent_ms: None,
            by: vacated.and_then(|vacated| vacated.by).as_deref().map(asked_by),
        }
    }

    /// The terms before this one, as far as they can be read.
    fn former(&self) -> Vec<Term> {
        let all = self.former.as_ref().and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut below = self.epoch;
        let read = all.iter().take(FORMER_MAX).map_while(|one| {
            let term: Term = serde_json::from_value(one.clone()).ok()?;
            let fits = term.ended.is_some() && term.epoch < std::mem::replace(&mut below, term.epoch);
            fits.then_some(term)
        });
        read.collect()
    }

    /// What it says about terms.
    pub(crate) fn seat_terms(&self) -> SeatTerms {
        SeatTerms { current: self.term(), former: self.former(), silent: None }
    }

    pub(crate) fn expiry_ms(&self) -> u64 {
        self.lease_expiry
    }

    fn is_too_long(&self) -> bool {
        self.to_bytes().len() > DOCUMENT_MAX_BYTES
    }

    /// The same record with the mark and the requester's nonce. Everything else stays as it is, if there is room.
    pub(crate) fn marked(&self, nonce: Nonce, by: &str, at: String) -> SeatDocument {
        let mark = serde_json::json!({"epoch": self.epoch, "by": told(by), "at": at});
        let mut document = SeatDocument { nonce: nonce_text(nonce), step_down: Some(mark), ..self.clone() };
        if document.is_too_long() {
            (document.extra, document.settings, document.holder.extra) = Default::default();
            (document.claimed_at, document.snapshot, document.deposed) = Default::default();
            (document.vacated, document.former) = Default::default();
        }
        document
    }

    pub(crate) fn with_nonce(self, nonce: Nonce) -> SeatDocument {
        SeatDocument { nonce: nonce_text(nonce), ..self }
    }

    fn is_marked(&self) -> bool {
        let epoch = self.step_down.as_ref().and_then(|mark| mark.get("epoch")?.as_u64());
        self.state == StateName::Held && epoch == Some(self.epoch)
    }

    /// Where the newest snapshot of the workers is, if the seat says so legibly.
    pub(crate) fn snapshot(&self) -> Option<SnapshotPointer> {
        let pointer: SnapshotPointer = serde_json::from_value(self.snapshot.clone()?).ok()?;
        (pointer.epoch <= Epoch::MAX.0).then_some(pointer)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        to_bytes(self)
    }

    /// Reads an object that may be anything at all.
    pub(crate) fn parse(body: &[u8]) -> Result<(SeatDocument, Seat), Unreadable> {
        let value = Value::Object(fields_of(body, DOCUMENT_MAX_BYTES)?);
        let document = SeatDocument::deserialize(&value)
            .map_err(|e| Unreadable::corrupt(field_error(&e, &value, SEAT_FIELDS)))?;
        let seat = document.seat().map_err(Unreadable::corrupt)?;
        Ok((document, seat))
    }

    fn seat(&self) -> Result<Seat, String> {
        let node = id("holder.node", &self.holder.node)?;
        let incarnation =
            incarnation(&self.holder.incarnation).ok_or("`holder.incarnation` must be 16 hex digits")?;
        let nonce = nonce(&self.nonce).ok_or("`nonce` must be 16 hex digits, a dash and a number")?;
        let lease = Lease { hold_ms: self.lease_hold, expiry_ms: self.lease_expiry };
        if lease.hold_ms == 0 || lease.expiry_ms <= lease.hold_ms || lease.expiry_ms > EXPIRY_MAX_MS {
            return Err(format!(
                "`leaseHold` {} must be above 0 and below `leaseExpiry` {}, which must be at most {EXPIRY_MAX_MS} ms",
                lease.hold_ms, lease.expiry_ms
            ));
        }
        if !(1..=Epoch::MAX.0).contains(&self.epoch) {
            return Err(format!("`epoch` {} must be 1 to {}", self.epoch, Epoch::MAX.0));
        }
        if self.renewals > RENEWALS_MAX {
            return Err(format!("`renewals` {} must be at most {RENEWALS_MAX}", self.renewals));
        }
        Ok(Seat {
            epoch: Epoch(self.epoch),
            state: match self.state {
                StateName::Held => SeatState::Held,
                StateName::Vacant => SeatState::Vacant,
            },
            holder: Holder { node, incarnation },
            lease,
            terms: self.terms(),
            renewals: self.renewals,
            nonce,
            step_down: self.is_marked(),
        })
    }

    /// How the leader wants to be watched, if the values are plausible.
    fn terms(&self) -> Option<Terms> {
        let ms = |name: &str, least_ms: u64, most_ms: u64| {
            let value = self.settings.get(name)?.as_u64()?;
            (least_ms..=most_ms).contains(&value).then_some(value)
        };
        // A node that looks less often than twice per expiry sees a takeover late.
        let looks_ms = (self.lease_expiry / 2).min(TERMS_MAX_MS);
        Some(Terms {
            heartbeat_ms: ms(HEARTBEAT, 1, TERMS_MAX_MS)?,
            election_interval_ms: ms(ELECTION_INTERVAL, 1, looks_ms)?,
            takeover_delay_ms: ms(TAKEOVER_DELAY, 0, TERMS_MAX_MS)?,
            presence_ms: ms(PRESENCE, 1, TERMS_MAX_MS)?,
        })
    }
}

/// The longest time that a setting can have.
const TERMS_MAX_MS: u64 = 24 * 3600 * 1000;

const HEARTBEAT: &str = "heartbeatInterval";
const ELECTION_INTERVAL: &str = "electionInterval";
const TAKEOVER_DELAY: &str = "takeoverDelay";
const PRESENCE: &str = "presenceInterval";

fn terms_fields(terms: Terms) -> [(String, Value); 4] {
    [
        (HEARTBEAT.to_owned(), terms.heartbeat_ms.into()),
        (ELECTION_INTERVAL.to_owned(), terms.election_interval_ms.into()),
        (TAKEOVER_DELAY.to_owned(), terms.takeover_delay_ms.into()),
        (PRESENCE.to_owned(), terms.presence_ms.into()),
    ]
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
    /// Whether somebody else keeps writing this object.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) conflict: bool,
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
            conflict: false,
        }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        to_bytes(self)
    }

    /// Reads an object that may be anything at all.
    pub(crate) fn parse(body: &[u8]) -> Option<PresenceDocument> {
        parse(body, DOCUMENT_MAX_BYTES, &[]).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::DETAIL_MAX_CHARS;
    use tenure_core::{Incarnation, NodeId};

    fn seat() -> Seat {
        Seat {
            epoch: Epoch(16),
            state: SeatState::Held,
            holder: Holder { node: NodeId::new("pod-b").expect("valid"), incarnation: Incarnation(0xab) },
            lease: Lease { hold_ms: 5000, expiry_ms: 7500 },
            terms: None,
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
    fn hi3_who_vacates_says_why_and_who_claims_says_what_it_found() {
        let at = |minute: u64| format!("2026-01-01T00:{minute:02}:00Z");
        let next = |seat: &Seat, before: &SeatDocument, at| {
            SeatDocument::new(seat, Some(before), at, Map::new(), None)
        };
        let vacant = Seat { state: SeatState::Vacant, ..seat() };
        let claim = Seat { epoch: Epoch(17), ..seat() };
        let nonce = Nonce { incarnation: Incarnation(0xee), sequence: 1 };
        let marked = document().marked(nonce, "ops", at(3));
        for (before, why, ended, by) in [
            (document(), Some(TermEnd::Shutdown), TermEnd::Shutdown, None),
            (document(), Some(TermEnd::StepDown), TermEnd::StepDown, None),
            (document(), None, TermEnd::HandedOver, None),
            (marked.clone(), None, TermEnd::StepDown, Some("ops")),
            (marked.clone(), Some(TermEnd::StepDown), TermEnd::StepDown, Some("ops")),
            (marked.clone(), Some(TermEnd::Shutdown), TermEnd::Shutdown, None),
        ] {
            let left = next(&vacant, &before, at(5)).vacated_because(&before, why, at(5));
            let term = left.seat_terms().current;
            assert_eq!((term.ended, term.by.as_deref()), (Some(ended), by));
            assert_eq!((term.epoch, term.led_for().map(|led| led.as_secs())), (16, Some(300)));
            let claimed = next(&claim, &left, at(6)).claimed_from(&left, Some(1));
            assert_eq!(claimed.seat_terms().former, std::slice::from_ref(&term), "as it was said");
            let renewed = next(&Seat { renewals: 4, ..claim.clone() }, &claimed, at(7));
            assert_eq!(renewed.seat_terms().former, [term], "and kept");
            assert_eq!(renewed.vacated, None);
        }
        for (silent_ms, led_s) in [(Some(10_000), Some(350)), (Some(u64::MAX), Some(0)), (None, None)] {
            let claimed = next(&claim, &document(), at(6)).claimed_from(&document(), silent_ms);
            let former = claimed.seat_terms().former.swap_remove(0);
            assert_eq!((former.ended, former.silent_ms), (Some(TermEnd::Silent), silent_ms));
            assert_eq!(former.led_for().map(|led| led.as_secs()), led_s);
        }
    }

    #[test]
    fn hi3_the_seat_remembers_the_last_four_terms() {
        let mut before = document();
        for epoch in 17..=23 {
            let claim = Seat { epoch: Epoch(epoch), ..seat() };
            let claimed = SeatDocument::new(&claim, Some(&before), "later".to_owned(), Map::new(), None);
            before = claimed.claimed_from(&before, Some(epoch));
            let former: Vec<(u64, Option<u64>)> =
                before.seat_terms().former.iter().map(|term| (term.epoch, term.silent_ms)).collect();
            let wanted: Vec<(u64, Option<u64>)> =
                (16..epoch).rev().take(4).map(|former| (former, Some(former + 1))).collect();
            assert_eq!(former, wanted);
        }
    }

    #[test]
    fn hi3_nothing_that_is_said_of_terms_costs_the_seat() {
        let nonsense = [
            Value::from(7),
            serde_json::json!({"why": 1, "at": 2}),
            // One that goes on, or is no former one.
            serde_json::json!([{"epoch": 15, "leader": "pod-a"}]),
            serde_json::json!([{"epoch": 16, "leader": "pod-a", "ended": "shutdown"}]),
            serde_json::json!([{"epoch": 99, "leader": "pod-a", "ended": "shutdown"}]),
        ];
        for value in nonsense {
            let mut body: Value = serde_json::from_slice(&document().to_bytes()).expect("JSON");
            (body["former"], body["vacated"], body["claimedAt"]) =
                (value.clone(), value.clone(), "soon".into());
            let (read, record) =
                SeatDocument::parse(body.to_string().as_bytes()).expect("a seat all the same");
            assert_eq!(record, seat(), "{value}");
            let terms = read.seat_terms();
            assert_eq!(
                (terms.former, terms.current.from, terms.current.ended),
                (Vec::new(), None, None),
                "{value}"
            );
        }
        // Other people's fields have all the room.
        let mut body: Value = serde_json::from_slice(&document().to_bytes()).expect("JSON");
        body["later"] = "x".repeat(DOCUMENT_MAX_BYTES - body.to_string().len() - 100).into();
        let (full, _) = SeatDocument::parse(body.to_string().as_bytes()).expect("still ours");
        let claim = Seat { epoch: Epoch(17), ..seat() };
        let claimed = SeatDocument::new(&claim, Some(&full), "later".to_owned(), Map::new(), None);
        let claimed = claimed.claimed_from(&full, Some(u64::MAX));
        assert!(claimed.to_bytes().len() <= DOCUMENT_MAX_BYTES);
        assert_eq!((claimed.former.is_none(), claimed.extra.len()), (true, 1));
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
        assert_eq!(PresenceDocument::parse(&body).and_then(|read| read.metrics), Some(metrics));
        for other in [&b""[..], b"null", b"{\"v\":1}", &[b'['; 70_000], &body[..body.len() / 2]] {
            assert_eq!(PresenceDocument::parse(other), None);
        }
    }

    /// Whatever is read, any record written after it can be read again: nobody writes something that freezes the election.
    #[test]
    fn what_is_written_over_any_seat_is_read_again() {
        let grown = |field: &str, bytes: usize| {
            let mut value = serde_json::to_value(document()).expect("serializes");
            let room = DOCUMENT_MAX_BYTES - value.to_string().len() - bytes;
            match field {
                "holder" => value["holder"]["extra"] = "x".repeat(room).into(),
                "settings" => value["settings"]["extra"] = "x".repeat(room).into(),
                field => value[field] = "x".repeat(room).into(),
            }
            value
        };
        let mut bodies = Vec::new();
        for field in ["later", "holder", "settings", "claimedAt", "snapshot"] {
            bodies.extend([30, 60, 200].map(|bytes| grown(field, bytes)));
        }
        for (epoch, renewals) in [(1, 0), (Epoch::MAX.0 - 1, RENEWALS_MAX), (Epoch::MAX.0, RENEWALS_MAX)] {
            let mut value = serde_json::to_value(document()).expect("serializes");
            (value["epoch"], value["renewals"]) = (epoch.into(), renewals.into());
            value["stepDown"] = serde_json::json!({"epoch": epoch, "by": "me"});
            bodies.push(value);
        }
        let settings: Map<String, Value> =
            (0..50).map(|n| (format!("aSettingOfOurs{n}"), Value::from(u64::MAX))).collect();
        let pointer = SnapshotPointer { version: "v".repeat(100), epoch: 17, sequence: u64::MAX / 2 };
        for body in bodies {
            let (read, record) = SeatDocument::parse(body.to_string().as_bytes()).expect("a seat");
            let other = Holder { node: NodeId::new("pod-c").expect("valid"), incarnation: Incarnation(0xcd) };
            let claimed = Seat {
                epoch: record.epoch.next().unwrap_or(Epoch::MAX),
                holder: other,
                renewals: 0,
                step_down: false,
                ..record.clone()
            };
            let renewed = Seat { renewals: record.renewals + 1, ..record.clone() };
            let vacated = Seat { state: SeatState::Vacant, step_down: false, ..record.clone() };
            for next in [claimed, renewed, vacated] {
                let now = "2026-01-01T00:00:00.000Z".to_owned();
                let written = SeatDocument::new(&next, Some(&read), now, settings.clone(), Some(&pointer));
                let (_, found) = SeatDocument::parse(&written.to_bytes()).expect("what was written");
                let capped = Seat { renewals: next.renewals.min(RENEWALS_MAX), ..next };
                assert_eq!(found, capped);
            }
            let marked = read.marked(record.nonce, &"me".repeat(10_000), "2026-01-01T00:00:00Z".to_owned());
            let (_, found) = SeatDocument::parse(&marked.to_bytes()).expect("what was written");
            assert_eq!(found, Seat { step_down: true, ..record });
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
            (b"null".to_vec(), "not a JSON object"),
            (b"{}".to_vec(), "`v`"),
            (vec![b'['; 200_000], "at most"),
            (b"[[[[[".to_vec(), "not JSON"),
            (
                change("holder", serde_json::json!({"node": "../x", "incarnation": "00000000000000ab"})),
                "holder.node",
            ),
            (change("leaseExpiry", u64::MAX.into()), "leaseExpiry"),
            (change("epoch", 0.into()), "epoch"),
            (change("epoch", (Epoch::MAX.0 + 1).into()), "`epoch` 9007199254740992 must be 1 to"),
            (change("epoch", u64::MAX.into()), "epoch"),
            (change("epoch", (-1).into()), "`epoch`: invalid value"),
            (change("nonce", "x".into()), "nonce"),
            (change("nonce", "+0000000000000ab-1".into()), "nonce"),
            (change("nonce", "00000000000000ab-+1".into()), "nonce"),
            (change("state", "stolen".into()), "`state`: unknown variant `stolen`"),
            (change("state", "x\n".repeat(20_000).into()), "…"),
            (change("renewals", u64::MAX.into()), "renewals"),
            (change("leaseHold", 0.into()), "leaseHold"),
            (change("leaseHold", 7500.into()), "below `leaseExpiry` 7500"),
            (change("leaseHold", "2s".into()), "`leaseHold`: invalid type"),
            (change("settings", 1.into()), "`settings`: invalid type"),
            (change("holder", "pod-a".into()), "`holder`: invalid type"),
        ] {
            let error = SeatDocument::parse(&body).expect_err(says);
            assert!(!error.newer, "{says}");
            assert!(error.detail.contains(says), "{says:?} not in {:?}", error.detail);
            assert!(error.detail.chars().count() <= DETAIL_MAX_CHARS + 1, "{says}");
        }
        let newer = SeatDocument::parse(&change("v", 2.into())).expect_err("newer");
        assert!(newer.newer);
    }
}
