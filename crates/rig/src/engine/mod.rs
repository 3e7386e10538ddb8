//! Real S3 engines on loopback, for tests and for developers.
//!
//! A site is one started engine: its directory, its processes, its endpoints. Its state is on disk from the first moment, so that
//! the next run finds and ends whatever a killed run left behind.

mod ceph;
pub mod developer;
mod ministack;
mod rclone;
mod seaweedfs;
mod site;

use std::path::Path;

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

pub use site::{Lifetime, Site, clean_leftovers};

/// An engine we can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// A real store, with two gateways
    Seaweedfs,
    /// AWS-like status codes, single event loop
    Ministack,
    /// Ignores conditions: the negative control
    Rclone,
    /// Ceph's gateway, from Debian packages
    Ceph,
}

impl Engine {
    /// What `cargo xtask test` runs by default.
    pub const DEFAULT: [Self; 3] = [Self::Seaweedfs, Self::Ministack, Self::Rclone];

    pub fn name(self) -> &'static str {
        match self {
            Self::Seaweedfs => "seaweedfs",
            Self::Ministack => "ministack",
            Self::Rclone => "rclone",
            Self::Ceph => "ceph",
        }
    }

    /// The first port of a developer's engine; its other ports follow.
    fn base_port(self) -> u16 {
        match self {
            Self::Seaweedfs => 18333,
            Self::Ministack => 18366,
            Self::Rclone => 18376,
            Self::Ceph => 18386,
        }
    }

    /// Whether its data survives a restart of what [`Site::pause`] ends.
    pub fn can_restart(self) -> bool {
        matches!(self, Self::Seaweedfs | Self::Ceph)
    }

    /// How many of its processes, in the order they were started, a restart leaves running: Ceph's monitor and its storage, which
    /// is in memory.
    fn survivors(self) -> usize {
        match self {
            Self::Ceph => 2,
            Self::Seaweedfs | Self::Ministack | Self::Rclone => 0,
        }
    }

    /// Starts it for as long as this process lives.
    pub fn start_bound(self) -> Result<Site> {
        let dir = site::runs()?.join(format!("{}-{}", std::process::id(), self.name()));
        self.start(&dir, Lifetime::Bound)
    }

    /// Installs the engine if needed and starts it in `dir`.
    pub fn start(self, dir: &Path, lifetime: Lifetime) -> Result<Site> {
        let mut site = Site::create(self, dir, lifetime)?;
        let started = match self {
            Self::Seaweedfs => seaweedfs::start(&mut site),
            Self::Ministack => ministack::start(&mut site),
            Self::Rclone => rclone::start(&mut site),
            Self::Ceph => ceph::start(&mut site),
        };
        match started {
            Ok(()) => Ok(site),
            Err(error) => {
                let tails = site.log_tails();
                site.stop();
                Err(anyhow!("{} did not start: {error:#}\n{tails}", self.name()))
            }
        }
    }
}

/// What a client needs to know about a started engine. Field names are those of the tests' environment variable.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Access {
    pub name: Engine,
    pub endpoints: Vec<String>,
    pub bucket: String,
    pub access_key: String,
    pub secret_key: String,
    /// An identity that may only read and list, if the engine has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reader_access_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reader_secret_key: Option<String>,
    /// An identity that may read everything and write only below `guest/plg_coordinator/`, if the engine has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_access_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_secret_key: Option<String>,
    /// `false`: the engine ignores conditions and must be refused.
    pub safe: bool,
    /// How many clients race for one key; SeaweedFS makes losers wait in steps of a second.
    pub race: u32,
}

impl Access {
    fn new(engine: Engine) -> Self {
        Self {
            name: engine,
            endpoints: Vec::new(),
            bucket: "tenure-test".to_owned(),
            access_key: "testkey".to_owned(),
            secret_key: "testsecret".to_owned(),
            reader_access_key: None,
            reader_secret_key: None,
            guest_access_key: None,
            guest_secret_key: None,
            safe: engine != Engine::Rclone,
            race: if engine == Engine::Seaweedfs { 8 } else { 32 },
        }
    }

    fn with_reader(&mut self) {
        self.reader_access_key = Some("readkey".to_owned());
        self.reader_secret_key = Some("readsecret".to_owned());
    }

    fn with_guest(&mut self) {
        self.guest_access_key = Some("guestkey".to_owned());
        self.guest_secret_key = Some("guestsecret".to_owned());
    }
}

/// The region that S3 clients assume for all of these engines.
pub const REGION: &str = "us-east-1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_is_what_the_tests_parse() {
        let mut access = Access::new(Engine::Seaweedfs);
        access.endpoints.push("http://127.0.0.1:1".to_owned());
        let value = serde_json::to_value(&access).expect("serialises");
        assert_eq!(value["name"], "seaweedfs");
        assert_eq!(value["race"], 8);
        assert_eq!(value["safe"], true);
        assert!(value.get("reader_access_key").is_none());
        access.with_reader();
        let value = serde_json::to_value(&access).expect("serialises");
        assert_eq!(value["reader_access_key"], "readkey");
    }

    #[test]
    fn only_the_negative_control_is_unsafe() {
        let unsafe_ones: Vec<_> =
            Engine::value_variants().iter().filter(|engine| !Access::new(**engine).safe).collect();
        assert_eq!(unsafe_ones, [&Engine::Rclone]);
    }
}
