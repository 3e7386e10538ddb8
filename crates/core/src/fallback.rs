//! By which of two seats a plugin may act: the namespace's, or one of its own once the store refuses that.

mod seat_choice;
mod seat_observer;

pub use seat_choice::{SeatChoice, SeatChoiceEffect, SeatChoiceInput, WhichSeat};
pub use seat_observer::{SeatObserver, SeatRead, SeatUse};
