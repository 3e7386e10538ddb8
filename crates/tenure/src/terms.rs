//! Terms of leaders: who led in which epoch, from when until when, and why it ended.
//!
//! The seat itself says most of it. Whoever vacates it writes why, and whoever claims it writes what it found: nobody else knows
//! how long the last holder had been silent. It costs no request. Nothing in the protocol depends on it.

use crate::documents::Documents;
use crate::election::codec::SeatDocument;
use crate::error::Error;
use crate::event::LostReason;
use crate::wire::{incarnation, told};
use jiff::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::time::Duration;
use tenure_core::{Epoch, LossReason, NodeId};
use tenure_store::StoreTime;

/// The longest name of whoever asked a leader to step down.
const BY_MAX_CHARS: usize = 64;

/// Times of objects are whole seconds in some stores.
const ROUNDING_MS: u64 = 1000;

/// One term of a leader.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Term {
    /// The epoch.
    #[serde(deserialize_with = "epoch")]
    pub epoch: u64,
    /// Who led.
    #[serde(deserialize_with = "node")]
    pub leader: String,
    /// The life of the node that led, as 16 hex digits; none if nobody wrote it down.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "life")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub incarnation: Option<String>,
    /// When it claimed the seat, by its own wall clock; none if nobody wrote it down.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime, nullable = false))]
    pub from: Option<Timestamp>,
    /// When it ended: by its own wall clock if it said so itself, or its last sign of life by that of its successor. None while it
    /// goes on, and if nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime, nullable = false))]
    pub until: Option<Timestamp>,
    /// Why it ended; none while it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub ended: Option<TermEnd>,
    /// How long it had been silent when its successor took over, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub silent_ms: Option<u64>,
    /// Who asked it to step down, if anybody did from outside.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "asker")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub by: Option<String>,
}

/// Why a term ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TermEnd {
    /// The leader was shut down, and vacated the seat.
    Shutdown,
    /// The leader was asked to hand over.
    #[serde(rename = "step down")]
    StepDown,
    /// The leader vacated the seat and did not say why.
    #[serde(rename = "handed over")]
    HandedOver,
    /// The leader fell silent: its successor waited for its lease to expire.
    Silent,
    /// The leader's lease ran out before a renewal got through, as it says itself.
    #[serde(rename = "lease expired")]
    LeaseExpired,
    /// The leader found another on the seat.
    Superseded,
    /// The store refused the leader's renewals.
    #[serde(rename = "store denied")]
    StoreDenied,
    /// The leader could not read the seat back.
    #[serde(rename = "seat unreadable")]
    SeatUnreadable,
    /// The leader found no seat.
    #[serde(rename = "seat gone")]
    SeatGone,
    /// The leader's work was told to stop and did not.
    #[serde(rename = "processes stuck")]
    ProcessesStuck,
    /// The leader's election panicked.
    Panic,
    /// Nobody knows, or a later version of this software does.
    #[serde(other)]
    Unknown,
}

impl From<LostReason> for TermEnd {
    fn from(reason: LostReason) -> TermEnd {
        match reason {
            LostReason::Protocol(LossReason::Shutdown) => TermEnd::Shutdown,
            LostReason::Protocol(LossReason::StepDown) => TermEnd::StepDown,
            LostReason::Protocol(LossReason::LeaseExpired) => TermEnd::LeaseExpired,
            LostReason::Protocol(LossReason::Superseded) => TermEnd::Superseded,
            LostReason::Protocol(LossReason::StoreDenied) => TermEnd::StoreDenied,
            LostReason::Protocol(LossReason::SeatUnreadable) => TermEnd::SeatUnreadable,
            LostReason::Protocol(LossReason::SeatGone) => TermEnd::SeatGone,
            LostReason::Protocol(LossReason::ProcessesStuck) => TermEnd::ProcessesStuck,
            LostReason::Panic => TermEnd::Panic,
        }
    }
}

impl TermEnd {
    fn words(self) -> &'static str {
        match self {
            TermEnd::Shutdown => "shut down",
            TermEnd::StepDown => "stepped down",
            TermEnd::HandedOver => "handed over",
            TermEnd::Silent => "fell silent",
            TermEnd::LeaseExpired => "its lease expired",
            TermEnd::Superseded => "found another leader on the seat",
            TermEnd::StoreDenied => "the store refused its renewals",
            TermEnd::SeatUnreadable => "could not read the seat",
            TermEnd::SeatGone => "the seat was gone",
            TermEnd::ProcessesStuck => "its work did not stop in time",
            TermEnd::Panic => "its election crashed",
            TermEnd::Unknown => "not known",
        }
    }

    /// How much it tells: whoever knows more is believed. Only the leader itself knows why it fell silent.
    fn rank(self) -> u8 {
        match self {
            TermEnd::Unknown => 1,
            TermEnd::HandedOver | TermEnd::Silent => 2,
            TermEnd::Shutdown
            | TermEnd::StepDown
            | TermEnd::LeaseExpired
            | TermEnd::Superseded
            | TermEnd::StoreDenied
            | TermEnd::SeatUnreadable
            | TermEnd::SeatGone
            | TermEnd::ProcessesStuck
            | TermEnd::Panic => 3,
        }
    }
}

impl Term {
    /// How long it lasted; `None` while it goes on, and if nobody knows. The two times may be of different clocks.
    pub fn led_for(&self) -> Option<Duration> {
        let led = self.until?.duration_since(self.from?);
        Some(Duration::try_from(led).unwrap_or_default())
    }

    /// Why it ended, in words: `fell silent for 8.5 s`. `None` while it goes on.
    pub fn why(&self) -> Option<String> {
        let words = self.ended?.words();
        let silent = self.silent_ms.map(|ms| format!("{:.1} s", Duration::from_millis(ms).as_secs_f64()));
        Some(match (self.ended?, silent, &self.by) {
            (TermEnd::Silent, Some(silent), _) => format!("{words} for {silent}"),
            (_, Some(silent), _) => format!("{words} (silent for {silent})"),
            (_, None, Some(by)) => format!("{words} (asked by {by})"),
            (_, None, None) => words.to_owned(),
        })
    }

    /// Learns what another record of the same term knows and this one does not.
    pub fn learn(&mut self, other: &Term) {
        let rank = |term: &Term| term.ended.map_or(0, TermEnd::rank);
        if rank(other) > rank(self) {
            (self.ended, self.until) = (other.ended, other.until.or(self.until));
        } else if self.ended.is_some() {
            self.until = self.until.or(other.until);
        }
        self.incarnation = self.incarnation.take().or_else(|| other.incarnation.clone());
        self.from = self.from.or(other.from);
        self.silent_ms = self.silent_ms.or(other.silent_ms);
        self.by = self.by.take().or_else(|| other.by.clone());
    }
}

/// What the seat says about terms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeatTerms {
    /// The term of its holder; ended if the seat is vacant.
    pub current: Term,
    /// The terms before it, the newest first, as their successors found them: at most four.
    pub former: Vec<Term>,
    /// How long its holder has been silent by the store's clock, if that is longer than its lease.
    pub silent: Option<Duration>,
}

impl Documents {
    /// What the seat says about the present term and those before it: one read. `None` if there is no seat.
    pub async fn seat_terms(&self) -> Result<Option<SeatTerms>, Error> {
        let key = self.keys().seat();
        let Some(object) = self.get(&key).await? else { return Ok(None) };
        let (document, _) = SeatDocument::parse(&object.body)
            .map_err(|unreadable| Error::unreadable(&key, unreadable.detail))?;
        let mut terms = document.seat_terms();
        if terms.current.ended.is_none() {
            let silent = silent_ms(self.store_now(), object.modified);
            let expired = silent.filter(|ms| *ms > document.expiry_ms() + ROUNDING_MS);
            terms.silent = expired.map(Duration::from_millis);
        }
        Ok(Some(terms))
    }
}

/// How long ago that was, by the store's clock.
pub(crate) fn silent_ms(now: Option<StoreTime>, modified: StoreTime) -> Option<u64> {
    // SQLite's clock starts over when the machine boots: a time later than now is from an earlier boot.
    now.and_then(|now| now.0.checked_sub(modified.0))
}

/// To the millisecond, as it is written.
pub(crate) fn to_ms(time: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time)
}

fn epoch<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let epoch = u64::deserialize(from)?;
    match (1..=Epoch::MAX.0).contains(&epoch) {
        true => Ok(epoch),
        false => Err(D::Error::custom(format_args!("`epoch` must be 1 to {}", Epoch::MAX.0))),
    }
}

fn node<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    NodeId::new(&String::deserialize(from)?).map(|id| id.to_string()).map_err(D::Error::custom)
}

fn life<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
    let life = incarnation(&text).ok_or_else(|| D::Error::custom("`incarnation` must be 16 hex digits"))?;
    Ok(Some(life.to_string()))
}

fn asker<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.as_deref().map(asked_by))
}

/// One line of bounded length.
pub(crate) fn asked_by(text: &str) -> String {
    told(&text.chars().take(BY_MAX_CHARS).collect::<String>())
}

/// A time of a wall clock.
mod moment {
    use super::{Deserialize, Deserializer, Timestamp, to_ms};
    use serde::{Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(time: &Option<Timestamp>, into: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => into.collect_str(&format_args!("{time:.3}")),
            None => into.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
        let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
        let time: Timestamp = text.parse().map_err(D::Error::custom)?;
        Ok(Some(to_ms(time)))
    }
}

impl fmt::Display for TermEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn term(value: Value) -> Term {
        serde_json::from_value(value).expect("a term")
    }

    #[test]
    fn hi3_why_a_term_ended_is_told_in_words() {
        for (more, why, led_s) in [
            (json!({}), None, None),
            (json!({"ended": "shutdown", "until": "2026-11-15T15:00:20Z"}), Some("shut down"), Some(20)),
            (json!({"ended": "step down"}), Some("stepped down"), None),
            (json!({"ended": "step down", "by": "ops"}), Some("stepped down (asked by ops)"), None),
            (json!({"ended": "silent", "silentMs": 8500}), Some("fell silent for 8.5 s"), None),
            (json!({"ended": "silent"}), Some("fell silent"), None),
            (
                json!({"ended": "lease expired", "silentMs": 8500}),
                Some("its lease expired (silent for 8.5 s)"),
                None,
            ),
            (json!({"ended": "eaten by a later version"}), Some("not known"), None),
            // The clocks of two nodes.
            (json!({"ended": "silent", "until": "2026-11-15T14:00:00Z"}), Some("fell silent"), Some(0)),
        ] {
            let mut value = json!({"epoch": 3, "leader": "pod-a", "from": "2026-11-15T15:00:00Z"});
            value.as_object_mut().expect("an object").extend(more.as_object().expect("one too").clone());
            let term = term(value);
            assert_eq!((term.why().as_deref(), term.led_for().map(|led| led.as_secs())), (why, led_s));
        }
    }

    #[test]
    fn hi3_whoever_knows_more_is_believed() {
        let with = |end: Value| term(json!({"epoch": 3, "leader": "pod-a", "ended": end}));
        let own = term(
            json!({"epoch": 3, "leader": "pod-a", "ended": "lease expired", "until": "2026-11-15T15:00:05Z"}),
        );
        let seen = term(
            json!({"epoch": 3, "leader": "pod-a", "ended": "silent", "until": "2026-11-15T15:00:01Z", "silentMs": 9000}),
        );
        let merged = |first: &Term, second: &Term| {
            let mut merged = first.clone();
            merged.learn(second);
            merged
        };
        assert_eq!(merged(&own, &seen), merged(&seen, &own), "in either order");
        assert_eq!(merged(&own, &seen), Term { silent_ms: Some(9000), ..own.clone() });
        assert_eq!(merged(&with(json!("unknown")), &seen).ended, Some(TermEnd::Silent));
        assert_eq!(merged(&with(Value::Null), &with(json!("unknown"))).ended, Some(TermEnd::Unknown));
        // One that goes on has no end, whatever another record says of its time.
        assert_eq!(merged(&with(Value::Null), &with(Value::Null)).until, None);
    }

    #[test]
    fn hi3_what_is_no_term_is_refused_and_what_is_one_stays_the_same() {
        for bad in [
            json!({"epoch": 0, "leader": "pod-a"}),
            json!({"epoch": Epoch::MAX.0 + 1, "leader": "pod-a"}),
            json!({"epoch": 1, "leader": "../x"}),
            json!({"epoch": 1, "leader": "pod-a", "from": "yesterday"}),
            json!({"epoch": 1, "leader": "pod-a", "incarnation": "x"}),
            json!({"epoch": 1, "leader": "pod-a", "silentMs": -1}),
            json!({"epoch": 1}),
            json!([]),
        ] {
            assert!(serde_json::from_value::<Term>(bad.clone()).is_err(), "{bad}");
        }
        let full = json!({
            "epoch": 1, "leader": "pod-a", "incarnation": "00000000000000ab", "from": "2026-11-15T15:00:00.000Z",
            "until": "2026-11-15T15:00:05.125Z", "ended": "processes stuck", "silentMs": 1, "by": "ops"
        });
        assert_eq!(serde_json::to_value(term(full.clone())).expect("JSON"), full);
        let long = term(json!({"epoch": 1, "leader": "pod-a", "by": "\u{1b}".repeat(500)}));
        assert_eq!(long.by, Some(" ".repeat(BY_MAX_CHARS)));
    }
}
