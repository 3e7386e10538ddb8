//! Settings that are one of a few words, and what was given explicitly: by a file, the environment, a flag or a builder.

use super::{FIELDS, Settings};
use std::collections::BTreeSet;
use std::fmt;
use tenure_core::FenceRule;

/// A setting that is one of a few words.
macro_rules! choices {
    ($($(#[$about:meta])+ $name:ident { $($(#[$doc:meta])+ $variant:ident = $word:literal,)+ })+) => {$(
        $(#[$about])+
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name { $($(#[$doc])+ $variant,)+ }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$variant,)+];
            /// The words of the setting.
            pub(super) const WORDS: &[&str] = &[$($word,)+];

            /// The word of the setting.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word,)+ }
            }

            pub(super) fn from_word(word: &str) -> Option<$name> {
                $name::ALL.iter().find(|choice| choice.as_str() == word).copied()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )+};
}

choices! {
    /// Whether a plugin shares the namespace's election.
    CoordinationMode {
        /// An election of its own.
        PerPlugin = "per-plugin",
        /// The namespace's, together with every other plugin in this mode.
        Global = "global",
    }
    /// Defaults that belong together.
    Preset {
        /// A crashed leader is replaced within 9.5 s.
        Default = "default",
        /// Fewer requests, slower failover.
        Thrifty = "thrifty",
        /// Failover in under 2 s, more requests.
        Fast = "fast",
    }
}

/// The names of settings that were given, not filled in. No part of what settings *are*: two that mean the same are equal
/// wherever their values came from.
#[derive(Clone, Default, Debug)]
pub(super) struct Given(pub(super) BTreeSet<&'static str>);

impl PartialEq for Given {
    fn eq(&self, _: &Given) -> bool {
        true
    }
}

impl Eq for Given {}

/// What a service does not run by: who is asked about differences has these for itself.
const NOT_OF_THE_SERVICE: [&str; 6] = ["namespace", "store", "dataDir", "coordinationMode", FENCING, GRACE];

const FENCING: &str = "epochFencingEnabled";
const GRACE: &str = "epochGracePeriod";

impl Settings {
    /// How a plugin with these settings judges epochs beside a service with those: as it says itself, else as the service does. So
    /// plugins can adopt fencing one by one.
    pub(crate) fn fence_rule_beside(&self, service: &Settings) -> FenceRule {
        let (own, shared) = (self.fence_rule(), service.fence_rule());
        FenceRule {
            enabled: if self.given.0.contains(FENCING) { own.enabled } else { shared.enabled },
            grace_ms: if self.given.0.contains(GRACE) { own.grace_ms } else { shared.grace_ms },
        }
    }

    /// What these settings ask of a shared service in so many words and `in_force` does not have: one sentence for each. A
    /// default that differs is nobody's wish; a preset is compared by its name, not by the values it fills in.
    pub(crate) fn differences(&self, in_force: &Settings) -> Vec<String> {
        let ours = FIELDS
            .iter()
            .filter(|field| self.given.0.contains(field.name) && !NOT_OF_THE_SERVICE.contains(&field.name));
        ours.filter_map(|field| {
            let (asked, stays) = ((field.slot.get)(self), (field.slot.get)(in_force));
            (asked != stays).then(|| format!("{} stays {stays} (not {asked})", field.name))
        })
        .collect()
    }
}
