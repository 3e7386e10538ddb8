//! By which of two seats a plugin may act: the namespace's, or one of its own once the store refuses that.

mod arbiter;
mod lookout;

pub use arbiter::{Arbiter, ArbiterEffect, ArbiterInput, Arbitration};
pub use lookout::{Glimpse, Lookout, Sight};
