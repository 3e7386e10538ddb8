//! The seat as a document that others than its holder change: they ask the holder to step down, or clear away one that is gone.
//!
//! Its epoch, its holder's incarnation and its nonce are the envelope. Whoever changes it keeps the first two, so a change is
//! meant for one leader and never reaches its successor.

use super::Codec;
use crate::election::codec::SeatDocument;
use crate::wire::Unreadable;
use tenure_core::Seat;
use tenure_core::document::Stamp;

#[derive(Clone)]
pub(crate) struct SeatCodec;

#[derive(Clone)]
pub(crate) struct SeatBody {
    pub(crate) document: SeatDocument,
    pub(crate) seat: Seat,
}

impl Codec for SeatCodec {
    type Body = SeatBody;
    type Kept = ();
    const WHAT: &'static str = "a seat";

    fn read(&self, bytes: &[u8]) -> Result<(Stamp, SeatBody, ()), Unreadable> {
        let (document, seat) = SeatDocument::parse(bytes)?;
        let stamp = Stamp { epoch: seat.epoch, owner: seat.holder.incarnation, nonce: seat.nonce };
        Ok((stamp, SeatBody { document, seat }, ()))
    }

    fn write(&self, stamp: Stamp, body: &SeatBody, (): &()) -> Vec<u8> {
        body.document.clone().with_nonce(stamp.nonce).to_bytes()
    }
}
