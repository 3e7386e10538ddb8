//! Asks the leader from outside to hand over, with a mark on the seat.
//!
//! The mark is a rewrite of the seat, on the condition that the seat is still the one that was read: same holder, epoch and
//! renewals, with the requester's nonce and a field that says so. It makes the leader's next renewal fail. The leader then
//! reads the seat, finds its own record marked, stops its work, vacates, and lets others try. Nobody has to look for a mark,
//! so this costs nothing until somebody asks; and the condition ties the mark to the very record it was meant for.
//!
//! Not promised: that the leader gives up. A dead one cannot; a version that does not know marks renews over it; and a
//! leader whose work does not stop keeps the seat until its expiry. [`hand_over`] reports the outcome. To standbys, a mark
//! on a dead leader's seat is a change like any other, and can delay a takeover by one expiry.

use crate::documents::{Documents, SeatBody, SeatCodec, Tries};
use crate::error::{Error, ErrorKind};
use crate::keys::Election;
use crate::status::{LOOK_EVERY, read_seat};
use std::sync::Arc;
use std::time::Duration;
use tenure_core::SeatState;
use tenure_store::Lanes;

/// How often to try the mark: the leader may renew between the read and the write, or the store may not answer.
const ATTEMPTS_MAX: u32 = 5;

/// A store that certainly did not take the mark is not asked again: the caller knows where it stands.
const TRIES: Tries = Tries { writes: ATTEMPTS_MAX, failures: 1 };

/// The time limit of one request; the store's own is shorter as a rule.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest name of a requester, in characters; the rest is cut off.
const BY_MAX: usize = 128;

/// A leader that was asked to hand over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AskedLeader {
    /// The leader's node id.
    pub node: String,
    /// The epoch it should end.
    pub epoch: u64,
    /// Whether somebody else had already asked; nothing was written.
    pub already: bool,
}

/// The outcome of asking.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StepDownAnswer {
    /// The mark is on the seat: the leader learns of it with its next renewal.
    Asked(AskedLeader),
    /// Nobody holds the seat.
    NoLeader {
        /// The epoch of the last leader; 0 if there never was one.
        epoch: u64,
    },
    /// The leader gave up or was replaced before it could be asked. Its successor was left alone.
    Ended {
        /// The leader that should have been asked.
        node: String,
        /// Its epoch.
        epoch: u64,
    },
}

/// Asks the leader of an election, usually a namespace's, to hand over, and returns who that is. Does not wait for it: see [`hand_over`].
///
/// `by` is kept on the seat for people. The request is meant for the present leader only: if that leader ends by itself in
/// the meantime, its successor is not asked. Two operators, or one with a slow store, must not depose two leaders.
pub async fn request_step_down(
    lanes: &Lanes,
    election: impl Into<Election>,
    by: &str,
) -> Result<StepDownAnswer, Error> {
    let keys = election.into().keys();
    let by: String = by.chars().filter(|c| !c.is_control()).take(BY_MAX).collect();
    let documents = Documents::new(Arc::clone(&lanes.lease), Arc::from(keys.root()), REQUEST_TIMEOUT);
    let mut meant: Option<AskedLeader> = None;
    let ask = |found: Option<&SeatBody>, unsure: bool| {
        let there = held(found, meant.as_ref()).map_err(Outcome::Answer)?;
        let node = there.seat.holder.node.to_string();
        let leader = AskedLeader { node, epoch: there.seat.epoch.0, already: false };
        if there.seat.step_down {
            return Err(Outcome::Answer(StepDownAnswer::Asked(AskedLeader { already: !unsure, ..leader })));
        }
        meant = Some(leader);
        let at = format!("{:.3}", jiff::Timestamp::now());
        let document = there.document.marked(there.seat.nonce, &by, at);
        Ok(Some(SeatBody { document, seat: there.seat.clone() }))
    };
    let asked = documents.at(keys.seat(), SeatCodec).update(TRIES, ask).await;
    match (asked, meant) {
        (Ok(_), Some(leader)) => Ok(StepDownAnswer::Asked(leader)),
        // A change that was made had somebody to ask.
        (Ok(_), None) => Err(raced()),
        (Err(Outcome::Answer(answer)), _) => Ok(answer),
        (Err(Outcome::Failed(error)), _) => Err(not_asked(&error, &keys.seat())),
    }
}

/// Why the mark was not written.
enum Outcome {
    Answer(StepDownAnswer),
    Failed(Error),
}

impl From<Error> for Outcome {
    fn from(error: Error) -> Outcome {
        Outcome::Failed(error)
    }
}

fn raced() -> Error {
    let sentence = format_args!("the seat changed during each of {ATTEMPTS_MAX} attempts; try again");
    Error::new(ErrorKind::Raced, sentence)
}

/// Why the leader was not asked, in the words of somebody who wanted to.
fn not_asked(error: &Error, seat: &str) -> Error {
    let (kind, detail) = (error.kind(), error.detail());
    if kind == ErrorKind::Raced {
        return raced();
    }
    if error.is_unreadable() {
        return Error::unreadable(seat, detail);
    }
    let may_have_been_written = error.may_have_been_written();
    let said = match (may_have_been_written, error.is_denied()) {
        (true, _) => "it is not known whether the leader was asked",
        (false, true) => "the store refuses",
        (false, false) => "the store does not answer",
    };
    Error::new(kind, format_args!("{said}: {detail}")).perhaps_written(may_have_been_written)
}

/// The seat, if the intended leader holds it; otherwise the answer.
fn held<'a>(
    found: Option<&'a SeatBody>,
    meant: Option<&AskedLeader>,
) -> Result<&'a SeatBody, StepDownAnswer> {
    let same = |found: &SeatBody| meant.is_none_or(|meant| meant.epoch == found.seat.epoch.0);
    match (found, meant) {
        (Some(found), _) if found.seat.state == SeatState::Held && same(found) => Ok(found),
        (_, Some(meant)) => Err(StepDownAnswer::Ended { node: meant.node.clone(), epoch: meant.epoch }),
        (found, None) => Err(StepDownAnswer::NoLeader { epoch: found.map_or(0, |found| found.seat.epoch.0) }),
    }
}

/// The state of a hand-over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HandOver {
    /// Somebody leads in a later epoch; the same node as before, if no other took the seat.
    Led {
        /// The new leader.
        node: String,
        /// The new epoch.
        epoch: u64,
    },
    /// The leader gave up, and nobody leads yet.
    Vacant,
    /// The leader still holds the seat.
    Held,
}

/// Waits, at most for the given time, until somebody leads in a later epoch than this one, and returns the state.
pub async fn hand_over(
    lanes: &Lanes,
    election: impl Into<Election>,
    epoch: u64,
    within: Duration,
) -> Result<HandOver, Error> {
    let keys = election.into().keys();
    let deadline = tokio::time::Instant::now() + within;
    loop {
        let stands = match read_seat(lanes, &keys, None).await? {
            Some(found) if found.seat.state == SeatState::Held && found.seat.epoch.0 > epoch => {
                let (node, epoch) = (found.seat.holder.node.to_string(), found.seat.epoch.0);
                return Ok(HandOver::Led { node, epoch });
            }
            Some(found) if found.seat.state == SeatState::Held => HandOver::Held,
            Some(_) | None => HandOver::Vacant,
        };
        if tokio::time::Instant::now() + LOOK_EVERY > deadline {
            return Ok(stands);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
