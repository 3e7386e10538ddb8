//! The folder for what is installed once per machine: programs, Python's and npm's packages, engines.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Written last: what has it is complete.
const COMPLETE: &str = "complete";

/// `$XDG_CACHE_HOME/tenure-dev`, or the same below `~/.cache`. `TENURE_DEV_CACHE` names another folder.
pub fn folder() -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let usual = || Some(variable("XDG_CACHE_HOME")?.join("tenure-dev"));
    let home = || Some(variable("HOME")?.join(".cache/tenure-dev"));
    let found = variable("TENURE_DEV_CACHE").or_else(usual).or_else(home);
    found.context("none of TENURE_DEV_CACHE, XDG_CACHE_HOME and HOME is set")
}

/// The folder `name-<digest of wanted>`, filled by `make` unless that was done before. Other versions in `wanted` give another
/// folder. A lock keeps two runs from filling one folder; a fill that was interrupted starts over.
pub fn entry(name: &str, wanted: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    entry_in(&folder()?, name, wanted, make)
}

fn entry_in(
    folder: &Path,
    name: &str,
    wanted: &str,
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let entry = folder.join(format!("{name}-{:016x}", digest(wanted)));
    let is_complete = || fs::read_to_string(entry.join(COMPLETE)).is_ok_and(|made| made == wanted);
    if is_complete() {
        return Ok(entry);
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let lock = File::create(folder.join(format!("{name}.lock"))).context("the cache cannot be locked")?;
    lock.lock().context("the cache cannot be locked")?;
    if !is_complete() {
        let _ = fs::remove_dir_all(&entry);
        fs::create_dir_all(&entry).with_context(|| format!("cannot create {}", entry.display()))?;
        println!("installing {} into {}", wanted.lines().collect::<Vec<_>>().join(", "), entry.display());
        make(&entry)?;
        fs::write(entry.join(COMPLETE), wanted)?;
    }
    Ok(entry)
}

/// Runs a check unless it passed within the last day for the same subject.
pub fn once_a_day(name: &str, about: &str, check: impl FnOnce() -> Result<()>) -> Result<()> {
    let stamp = folder()?.join(format!("{name}-{:016x}.passed", digest(about)));
    let age =
        fs::metadata(&stamp).and_then(|stamp| stamp.modified()).ok().and_then(|then| then.elapsed().ok());
    if age.is_some_and(|age| age < DAY) {
        return Ok(());
    }
    check()?;
    fs::create_dir_all(folder()?)?;
    fs::write(&stamp, "").with_context(|| format!("cannot write {}", stamp.display()))
}

/// FNV-1a: it tells our own lists apart, and nobody attacks it.
fn digest(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_made_once_and_an_interrupted_one_again() {
        let folder = tempfile::tempdir().expect("a directory");
        let make = |wanted: &str, outcome: Result<()>| {
            let mut made = false;
            let entry = entry_in(folder.path(), "tools", wanted, |place| {
                made = true;
                fs::write(place.join("x"), wanted)?;
                outcome
            });
            (entry, made)
        };
        let (refused, made) = make("a 1", Err(anyhow::anyhow!("no network")));
        assert!(refused.is_err() && made);
        let (first, made) = make("a 1", Ok(()));
        assert!(made, "what failed is tried again");
        let first = first.expect("made");
        assert!(!make("a 1", Ok(())).1, "once is enough");
        let (second, made) = make("a 2", Ok(()));
        assert!(made && second.expect("made") != first, "another version is another entry");
    }
}
