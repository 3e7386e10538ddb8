//! What the commands under `tenure exec` leave behind: a line every few milliseconds, as long as they live.

use super::{RUN, SIGNS_OF_LIFE};
use crate::clock::boot_ms;
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tenure_rig::proc::Stat;

/// How often a line is written. The end of a command is known no more precisely than this; its beginning is known to 10 ms, and
/// rather too early.
pub const EVERY_MS: u64 = 5;

/// One line: a sign of life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignOfLife {
    /// On the boot-time clock.
    pub at_ms: u64,
    pub pid: i32,
    /// The epoch in which that process was started.
    pub epoch: u64,
    /// The run of the command: the id of its first process, or 0 if unknown.
    pub run: i32,
}

impl SignOfLife {
    fn parse(line: &str) -> Option<SignOfLife> {
        let mut words = line.split(' ');
        let sign = SignOfLife {
            at_ms: words.next()?.parse().ok()?,
            pid: words.next()?.parse().ok()?,
            epoch: words.next()?.parse().ok()?,
            run: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(sign)
    }

    pub fn copy(&self) -> Copy {
        Copy { epoch: self.epoch, run: self.run }
    }
}

/// One run of the command, with everything it started.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Copy {
    pub epoch: u64,
    /// The id of its first process.
    pub run: i32,
}

/// The watched command: writes lines until it is killed. The environment says where to, and for which copy. A daemon leaves its
/// session first.
pub fn live(daemon: bool) -> Result<()> {
    if daemon {
        rustix::process::setsid()?;
    }
    let path = std::env::var_os(SIGNS_OF_LIFE).context("no file to write to")?;
    let epoch: u64 = std::env::var("TENURE_EPOCH").context("no epoch")?.parse().context("the epoch")?;
    let run: i32 = std::env::var(RUN).unwrap_or_else(|_| "0".to_owned()).parse().context("the run")?;
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    let pid = std::process::id();
    // One write per line, so that lines of several processes do not mix.
    let mut sign = |at_ms: u64| file.write_all(format!("{at_ms} {pid} {epoch} {run}\n").as_bytes());
    // The copy is as old as its first process, which was a shell, and something else before that.
    let oldest = Stat::of(run).or_else(|| Stat::of("self")).context("when it began")?;
    sign(born_ms(oldest))?;
    loop {
        sign(boot_ms())?;
        std::thread::sleep(Duration::from_millis(EVERY_MS));
    }
}

/// When a process began: Linux counts in hundredths of a second, rounded down.
fn born_ms(stat: Stat) -> u64 {
    stat.began * 10
}

/// All lines so far. The last may be incomplete.
pub fn read(path: &Path) -> Result<Vec<SignOfLife>> {
    let mut reader = Reader::new(path.to_owned());
    reader.read_on()?;
    Ok(reader.signs)
}

/// Reads a growing file, each line once.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    at: u64,
    half: Vec<u8>,
    pub signs: Vec<SignOfLife>,
    pub lives: BTreeMap<Copy, Life>,
}

impl Reader {
    pub fn new(path: PathBuf) -> Reader {
        Reader { path, at: 0, half: Vec::new(), signs: Vec::new(), lives: BTreeMap::new() }
    }

    /// Reads what was added since. Leaves an incomplete line for the next time.
    pub fn read_on(&mut self) -> Result<()> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error).with_context(|| self.path.display().to_string()),
        };
        file.seek(SeekFrom::Start(self.at))?;
        self.at += file.read_to_end(&mut self.half)? as u64;
        let whole = self.half.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = self.half.drain(..whole).collect();
        for line in String::from_utf8_lossy(&lines).lines() {
            let sign = SignOfLife::parse(line)
                .with_context(|| format!("a sign of life cannot be read: {line:?}"))?;
            extend(&mut self.lives, &sign);
            self.signs.push(sign);
        }
        Ok(())
    }
}

/// When a copy of the command was alive, according to its lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Life {
    pub first_ms: u64,
    pub last_ms: u64,
}

fn extend(lives: &mut BTreeMap<Copy, Life>, sign: &SignOfLife) {
    let life = lives.entry(sign.copy()).or_insert(Life { first_ms: sign.at_ms, last_ms: sign.at_ms });
    life.first_ms = life.first_ms.min(sign.at_ms);
    life.last_ms = life.last_ms.max(sign.at_ms);
}

pub fn lives<'a>(signs: impl IntoIterator<Item = &'a SignOfLife>) -> BTreeMap<Copy, Life> {
    let mut lives = BTreeMap::new();
    signs.into_iter().for_each(|sign| extend(&mut lives, sign));
    lives
}

/// The time from the last sign of life of each copy to the first of the next, keyed by the copy that ended. Also, in words, each
/// case of two copies alive at the same instant, or of a copy that began after one of a later epoch.
pub fn gaps(lives: &BTreeMap<Copy, Life>) -> (BTreeMap<Copy, u64>, Vec<String>) {
    let mut in_order: Vec<(&Copy, &Life)> = lives.iter().collect();
    in_order.sort_by_key(|(_, life)| life.first_ms);
    let (mut gaps, mut wrong) = (BTreeMap::new(), Vec::new());
    let mut latest: Option<(&Copy, &Life)> = None;
    let mut highest = 0;
    for (copy, life) in in_order {
        if let Some((before, old)) = latest {
            match life.first_ms.checked_sub(old.last_ms) {
                Some(gap_ms) if gap_ms > 0 => drop(gaps.insert(*before, gap_ms)),
                Some(_) | None => wrong.push(format!(
                    "two at one instant: a command of epoch {} was alive at {} ms, another, of epoch {}, since {} ms",
                    before.epoch, old.last_ms, copy.epoch, life.first_ms
                )),
            }
        }
        if copy.epoch < highest {
            wrong.push(format!(
                "begun too late: a command of epoch {} at {} ms, after one of epoch {highest}",
                copy.epoch, life.first_ms
            ));
        }
        highest = highest.max(copy.epoch);
        if latest.is_none_or(|(_, old)| life.last_ms >= old.last_ms) {
            latest = Some((copy, life));
        }
    }
    (gaps, wrong)
}

/// The gaps; an error if two copies were ever alive at the same instant.
pub fn margins(signs: &[SignOfLife]) -> Result<BTreeMap<Copy, u64>> {
    match gaps(&lives(signs)) {
        (gaps, wrong) if wrong.is_empty() => Ok(gaps),
        (_, wrong) => bail!("{}", wrong.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signs(lines: &[(u64, i32, u64)]) -> Vec<SignOfLife> {
        lines.iter().map(|&(at_ms, pid, epoch)| SignOfLife { at_ms, pid, epoch, run: 0 }).collect()
    }

    fn copy(epoch: u64) -> Copy {
        Copy { epoch, run: 0 }
    }

    #[test]
    fn the_margin_is_between_the_last_of_one_and_the_first_of_the_next() {
        let told = signs(&[(100, 7, 1), (105, 8, 1), (110, 7, 1), (300, 9, 2), (305, 9, 2), (900, 10, 5)]);
        assert_eq!(margins(&told).expect("in order"), BTreeMap::from([(copy(1), 190), (copy(2), 595)]));
    }

    #[test]
    fn two_at_one_instant_are_told_whoever_writes_first() {
        // A grandchild of the old one lives on for 5 ms.
        let told = signs(&[(100, 7, 1), (300, 9, 2), (305, 8, 1), (310, 9, 2)]);
        let told = margins(&told).expect_err("two at once").to_string();
        assert!(told.contains("epoch 1") && told.contains("305 ms") && told.contains("epoch 2"), "{told}");
        assert!(margins(&signs(&[(100, 7, 1), (100, 9, 2)])).is_err(), "the same millisecond is too close");
    }

    #[test]
    fn one_that_never_ends_meets_every_other_not_only_the_next() {
        let told = signs(&[(100, 7, 1), (300, 9, 2), (310, 9, 2), (500, 10, 3), (600, 7, 1)]);
        assert_eq!(gaps(&lives(&told)).1.len(), 2);
    }

    #[test]
    fn a_process_knows_when_it_began() {
        let born_ms = born_ms(Stat::of("self").expect("it runs"));
        assert!(born_ms <= boot_ms() && boot_ms() - born_ms < 600_000, "{born_ms}");
    }

    #[test]
    fn two_runs_of_one_epoch_are_two() {
        let of = |at_ms, run| SignOfLife { at_ms, pid: run, epoch: 1, run };
        assert!(margins(&[of(100, 7), of(205, 7), of(400, 8)]).is_ok());
        assert!(margins(&[of(100, 7), of(400, 8), of(405, 7)]).is_err());
    }

    #[test]
    fn an_epoch_that_is_over_does_not_come_back() {
        let of = |at_ms, epoch, run| SignOfLife { at_ms, pid: run, epoch, run };
        let told = margins(&[of(100, 1, 7), of(200, 2, 8), of(300, 1, 9)]).expect_err("1 after 2");
        assert!(told.to_string().contains("begun too late"), "{told}");
    }

    #[test]
    fn a_line_that_is_half_written_waits_for_its_end_and_a_broken_one_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("signs_of_life");
        assert_eq!(read(&path).expect("no file, no signs of life"), []);
        std::fs::write(&path, "100 7 1 0\n105 7 1 0\n11").expect("written");
        let mut reader = Reader::new(path.clone());
        reader.read_on().expect("two");
        assert_eq!(reader.signs, signs(&[(100, 7, 1), (105, 7, 1)]));
        std::fs::write(&path, "100 7 1 0\n105 7 1 0\n110 7 1 0\n").expect("written");
        reader.read_on().expect("one more");
        assert_eq!(reader.signs, read(&path).expect("all at once"));
        assert_eq!(reader.lives, lives(&reader.signs));
        std::fs::write(&path, "100 7\n").expect("written");
        assert!(read(&path).is_err());
    }
}
