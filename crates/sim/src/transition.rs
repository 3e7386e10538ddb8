//! The transitions of `proof/seat.py` that nodes make, and how often they were made.

use serde_json::{Value, json};

macro_rules! transitions {
    ($($id:ident = $name:literal,)*) => {
        /// A transition of the model, under its name there.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Transition { $(#[doc = $name] $id,)* }

        impl Transition {
            /// All transitions that nodes make.
            pub const ALL: &[Transition] = &[$(Transition::$id,)*];

            /// The name in `proof/seat.py`.
            pub fn name(self) -> &'static str {
                match self { $(Transition::$id => $name,)* }
            }
        }
    };
}

transitions! {
    StandbyRead = "standby_read",
    ClaimFree = "claim_free",
    ClaimSilent = "claim_silent",
    ClaimCold = "claim_cold",
    VacateOwnRecord = "vacate_own_record",
    RetireOwnRecord = "retire_own_record",
    Lead = "lead",
    Renew = "renew",
    Renewed = "renewed",
    LeaderRead = "leader_read",
    Ask = "ask",
    Stopped = "stopped",
    Recover = "recover",
    Vacate = "vacate",
    Lose = "lose",
    Unreadable = "unreadable",
    Forget = "forget",
    Rest = "rest",
}

/// How often each transition was made, and in how many steps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Followed {
    /// Steps that were checked, including those that change nothing in the model.
    pub steps: u64,
    /// How often each transition was made.
    pub transitions: [u64; Transition::ALL.len()],
}

impl Default for Followed {
    fn default() -> Followed {
        Followed { steps: 0, transitions: [0; Transition::ALL.len()] }
    }
}

impl Followed {
    /// Adds another count.
    pub fn add(&mut self, other: &Followed) {
        self.steps += other.steps;
        self.transitions.iter_mut().zip(other.transitions).for_each(|(all, more)| *all += more);
    }

    /// The transitions that were never made.
    pub fn missing(&self) -> Vec<&'static str> {
        let never = |transition: &&Transition| self.transitions[**transition as usize] == 0;
        Transition::ALL.iter().filter(never).map(|transition| transition.name()).collect()
    }

    /// The counts as JSON.
    pub fn to_json(&self) -> Value {
        let count = |transition: &Transition| {
            (transition.name().to_owned(), Value::from(self.transitions[*transition as usize]))
        };
        let transitions: serde_json::Map<String, Value> = Transition::ALL.iter().map(count).collect();
        json!({"steps": self.steps, "transitions": transitions})
    }
}
