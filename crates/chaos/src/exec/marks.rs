//! What the commands under `tenure exec` leave behind: a line every few milliseconds, for as long as they live.

use crate::clock::boot_ms;
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// How often a line is written: nothing is known more exactly than this.
pub const EVERY_MS: u64 = 5;

/// One line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// When, on the boot-time clock.
    pub at_ms: u64,
    /// By which process.
    pub pid: i32,
    /// In which epoch it was started.
    pub epoch: u64,
}

impl Mark {
    fn parse(line: &str) -> Option<Mark> {
        let mut words = line.split(' ');
        let mark = Mark {
            at_ms: words.next()?.parse().ok()?,
            pid: words.next()?.parse().ok()?,
            epoch: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(mark)
    }
}

/// Writes lines until the process is killed, or the file cannot be written.
pub fn write(path: &Path, epoch: u64) -> Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    let pid = std::process::id();
    loop {
        // One write: lines of several processes do not mix.
        file.write_all(format!("{} {pid} {epoch}\n", boot_ms()).as_bytes())?;
        std::thread::sleep(Duration::from_millis(EVERY_MS));
    }
}

/// All lines so far. The last may be half written.
pub fn read(path: &Path) -> Result<Vec<Mark>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mark = |line: &str| Mark::parse(line).with_context(|| format!("a mark cannot be read: {line:?}"));
    whole.lines().map(mark).collect()
}

/// When the processes of one epoch were alive, as far as they wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Life {
    /// Its first line.
    pub first_ms: u64,
    /// Its last.
    pub last_ms: u64,
}

/// The lives of all epochs.
pub fn lives(marks: &[Mark]) -> BTreeMap<u64, Life> {
    let mut lives: BTreeMap<u64, Life> = BTreeMap::new();
    for mark in marks {
        let life = lives.entry(mark.epoch).or_insert(Life { first_ms: mark.at_ms, last_ms: mark.at_ms });
        life.first_ms = life.first_ms.min(mark.at_ms);
        life.last_ms = life.last_ms.max(mark.at_ms);
    }
    lives
}

/// From the last sign of life of each epoch to the first of the next, by the epoch that ended. An error if two were ever
/// alive at one instant.
pub fn margins(marks: &[Mark]) -> Result<BTreeMap<u64, u64>> {
    let lives: Vec<(u64, Life)> = lives(marks).into_iter().collect();
    let mut margins = BTreeMap::new();
    for pair in lives.windows(2) {
        let [(old, before), (new, after)] = pair else { continue };
        match after.first_ms.checked_sub(before.last_ms) {
            Some(margin_ms) if margin_ms > 0 => drop(margins.insert(*old, margin_ms)),
            Some(_) | None => bail!(
                "a command of epoch {old} was alive at {} ms, one of epoch {new} since {} ms",
                before.last_ms,
                after.first_ms
            ),
        }
    }
    Ok(margins)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(lines: &[(u64, i32, u64)]) -> Vec<Mark> {
        lines.iter().map(|&(at_ms, pid, epoch)| Mark { at_ms, pid, epoch }).collect()
    }

    #[test]
    fn the_margin_is_between_the_last_of_one_and_the_first_of_the_next() {
        let told = marks(&[(100, 7, 1), (105, 8, 1), (110, 7, 1), (300, 9, 2), (305, 9, 2), (900, 10, 5)]);
        assert_eq!(margins(&told).expect("in order"), BTreeMap::from([(1, 190), (2, 595)]));
    }

    #[test]
    fn two_at_one_instant_are_told_whoever_writes_first() {
        // A grandchild of the old one goes on for 5 ms.
        let told = marks(&[(100, 7, 1), (300, 9, 2), (305, 8, 1), (310, 9, 2)]);
        let told = margins(&told).expect_err("two at once").to_string();
        assert!(told.contains("epoch 1") && told.contains("305 ms") && told.contains("epoch 2"), "{told}");
        assert!(margins(&marks(&[(100, 7, 1), (100, 9, 2)])).is_err(), "the same millisecond is too close");
    }

    #[test]
    fn a_line_that_is_half_written_is_left_out_and_a_broken_one_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("marks");
        assert_eq!(read(&path).expect("no file, no marks"), []);
        std::fs::write(&path, "100 7 1\n105 7 1\n11").expect("written");
        assert_eq!(read(&path).expect("two"), marks(&[(100, 7, 1), (105, 7, 1)]));
        std::fs::write(&path, "100 7\n").expect("written");
        assert!(read(&path).is_err());
    }
}
