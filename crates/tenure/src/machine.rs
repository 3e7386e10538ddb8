//! The one shape of all state machines: for whoever feeds one, with a [`shell`](crate::shell) or by hand.
//!
//! A [`Machine`] takes the time and one input and says what to do: requests to send, things to tell, and when to wake it. It does no
//! IO, so it can be tested, simulated and replayed. [`shell`](crate::shell) has an example, and lists what a machine may rely on.

pub use tenure_core::Time;
pub use tenure_core::machine::{Answer, Effect, In, Input, Machine, NoRequest, Now, Out, Request, RequestId};
