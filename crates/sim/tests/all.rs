//! The tests of this crate in one program.
#![allow(clippy::print_stdout, reason = "figures for whoever reads the test log")]

mod evidence;
mod parts;
mod schedules;
#[cfg(feature = "teeth")]
mod teeth;
