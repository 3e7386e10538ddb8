//! Every test of this crate that needs no feature, in one program: many would take longer to link than to run.

mod checks;
mod linearizable;
mod proxy;
mod schedule;
