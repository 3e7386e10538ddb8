//! Secrets that people give: in a file that nobody else can read, or in a variable. Never as a flag: others could read it in the list of
//! processes.

use crate::exit::Failure;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// No file with a secret is longer.
const FILE_MAX_BYTES: u64 = 64 * 1024;

/// Which secret, by the names people give it with.
pub(crate) struct Name {
    pub(crate) flag: &'static str,
    pub(crate) variable: &'static str,
}

/// The address that is told what goes wrong with jobs.
pub(crate) const WEBHOOK: Name = Name { flag: "--webhook-file", variable: "TENURE_WEBHOOK" };

/// A secret, and what to call the place it came from.
pub(crate) struct Found {
    pub(crate) text: String,
    pub(crate) from: String,
}

impl Name {
    /// What somebody gave: in a file, or in the environment.
    pub(crate) fn given(&self, file: Option<&Path>) -> Result<Option<Found>, Failure> {
        if let Some(path) = file {
            return self.in_file(path).map(Some);
        }
        match std::env::var(self.variable) {
            Ok(text) => Ok(Some(Found { text: text.trim().to_owned(), from: self.variable.to_owned() })),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => {
                Err(Failure::usage(format!("{} must be UTF-8 text", self.variable)))
            }
        }
    }

    pub(crate) fn in_file(&self, path: &Path) -> Result<Found, Failure> {
        Found::in_file(format!("{} {}", self.flag, path.display()), path)
    }
}

impl Found {
    pub(crate) fn in_file(from: String, path: &Path) -> Result<Found, Failure> {
        match read(path) {
            Ok(text) => Ok(Found { text, from }),
            Err(why) => Err(Failure::usage(format!("{from}: {why}"))),
        }
    }
}

/// The text of a file that nobody else can read.
fn read(path: &Path) -> Result<String, String> {
    let failed = |error: io::Error| format!("cannot be read: {error}");
    let file = File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if let Some(why) = exposed(found.mode(), found.uid(), rustix::process::geteuid().as_raw()) {
        return Err(why);
    }
    let mut text = String::new();
    file.take(FILE_MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_MAX_BYTES {
        return Err(format!("it is too long: at most {FILE_MAX_BYTES} bytes"));
    }
    Ok(text.trim().to_owned())
}

/// Why a file is no place for a secret, if it is none.
fn exposed(mode: u32, owner: u32, me: u32) -> Option<String> {
    let bits = mode & 0o7777;
    // A group that the administrator chose may read it: so systemd and Kubernetes hand secrets to a service.
    let allowed = if owner == 0 { 0o740 } else { 0o700 };
    if mode & 0o777 & !allowed != 0 {
        return Some(format!(
            "its mode is {bits:04o}, so other users can read the secret: run chmod 600 on it"
        ));
    }
    let foreign = owner != me && owner != 0;
    foreign.then(|| format!("it belongs to the user with uid {owner}, who can read the secret"))
}

/// Commands run as the same user as this process, which has credentials in its memory and environment: nobody but root may look into
/// it, and it leaves no core.
#[cfg(target_os = "linux")]
pub(crate) fn hide_memory() {
    let hidden = rustix::process::DumpableBehavior::NotDumpable;
    if let Err(error) = rustix::process::set_dumpable_behavior(hidden) {
        tracing::warn!("other processes of this user may be able to read this one's memory: {error}");
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn hide_memory() {}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_others_may_use_is_no_place_for_a_secret() {
        for fine in [0o100_600, 0o100_400, 0o100_700] {
            assert_eq!(exposed(fine, 7, 7), None, "{fine:o}");
        }
        for bad in [0o100_644, 0o100_640, 0o100_604, 0o100_620, 0o100_601, 0o100_777] {
            let why = exposed(bad, 7, 7).unwrap();
            assert!(why.contains(&format!("{:04o}", bad & 0o777)) && why.contains("chmod 600"), "{why}");
        }
        for fine in [0o100_600, 0o100_640, 0o100_440] {
            assert_eq!(exposed(fine, 0, 7), None, "the administrator's: {fine:o}");
        }
        for bad in [0o100_660, 0o100_644, 0o100_444, 0o100_650] {
            assert!(exposed(bad, 0, 7).is_some(), "the administrator's: {bad:o}");
        }
        assert!(exposed(0o100_600, 8, 7).unwrap().contains('8'));
        assert!(exposed(0o100_600, 8, 0).is_some(), "the administrator takes no secret of somebody else's");
    }
}
