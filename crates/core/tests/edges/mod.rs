//! Where one decision turns into another: the very millisecond of a limit, and inputs that come out of turn.

mod driver;
mod leading;
mod standby;
