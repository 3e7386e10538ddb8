//! By which of two seats a plugin may act: the namespace's, or one of its own once the store refuses that. And what is seen of
//! a seat by somebody who takes no part in its election.

mod seat_choice;
mod seat_observer;

pub use seat_choice::{
    SeatChoice, SeatChoiceCommand, SeatChoiceConfig, SeatChoiceOutput, SeatChoiceRequest, WhichSeat,
};
pub use seat_observer::{
    SeatObserver, SeatObserverAnswer, SeatObserverCommand, SeatObserverConfig, SeatObserverOutput,
    SeatObserverRequest, SeatUse,
};
