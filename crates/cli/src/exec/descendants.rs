//! Everything a process has started, however far it has run away: read from `/proc`.
//!
//! A process that leaves its group, its session or its parent stays below us all the same, because we are a child
//! subreaper: whoever loses its parent becomes our child. Not found: what another process was asked to start (a service
//! manager, a container daemon).

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpgid, kill_process, kill_process_group, pidfd_open,
    pidfd_send_signal, wait,
};
use std::collections::BTreeSet;
use std::fs;

/// One process, as far as we need to know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) pid: i32,
    parent: i32,
    group: i32,
    /// It has ended and waits to be reaped; nothing of it runs.
    ended: bool,
    /// When it was started: tells it from another that got its number.
    born: u64,
}

impl Entry {
    /// From `/proc/<pid>/stat`.
    fn parse(stat: &str) -> Option<Entry> {
        let pid = stat.split_once(' ')?.0.parse().ok()?;
        // The name may contain anything, brackets too; the fields proper begin after the last one.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<i64>().ok();
        let state = *fields.first()?;
        Some(Entry {
            pid,
            parent: i32::try_from(number(1)?).ok()?,
            group: i32::try_from(number(2)?).ok()?,
            // The first thread may have ended before the others.
            ended: matches!(state, "Z" | "X") && number(17)? <= 1,
            born: fields.get(19)?.parse().ok()?,
        })
    }

    fn of(pid: i32) -> Option<Entry> {
        Entry::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn signal(&self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        // The number may be another's by now: what is signalled is what was looked at afterwards.
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(held) if Entry::of(self.pid).is_some_and(|now| now.born == self.born) => {
                let _ = pidfd_send_signal(held, signal);
            }
            Ok(_) | Err(Errno::SRCH) => {}
            // A kernel without it.
            Err(_) => drop(kill_process(pid, signal)),
        }
    }
}

/// All processes there are.
fn table() -> Vec<Entry> {
    let Ok(folder) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(Entry::of).collect()
}

/// Those that stem from one, itself left out.
fn below(all: &[Entry], root: i32) -> Vec<Entry> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::from([root]);
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for entry in all.iter().filter(|entry| entry.parent == parent) {
            if seen.insert(entry.pid) {
                next.push(entry.pid);
                found.push(entry.clone());
            }
        }
    }
    found
}

/// What was seen to run below this process: what is to be signalled. That it is empty proves nothing, see [`has_children`].
pub(crate) fn running() -> Vec<Entry> {
    below(&table(), me()).into_iter().filter(|entry| !entry.ended).collect()
}

fn me() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Asks all of them, once each. One that is stopped hears it too.
pub(crate) fn ask(all: &[Entry], signal: Signal) {
    for entry in all {
        entry.signal(signal);
        entry.signal(Signal::CONT);
    }
}

/// Kills all of them, and their groups: a process that forks faster than we look cannot leave its group meanwhile.
pub(crate) fn kill(all: &[Entry]) {
    let own = getpgid(None).map_or(0, |group| group.as_raw_nonzero().get());
    let groups: BTreeSet<i32> = all.iter().map(|entry| entry.group).filter(|&g| g > 1 && g != own).collect();
    for group in groups.into_iter().filter_map(Pid::from_raw) {
        // An error means that nobody is left in it, or that somebody in it may not be signalled by us.
        let _ = kill_process_group(group, Signal::KILL);
    }
    all.iter().for_each(|entry| entry.signal(Signal::KILL));
}

/// Whether a process has children. Those that have ended are reaped and told of.
///
/// The table is read one process after the other: one that forks while it is read, and ends, is seen neither itself nor in
/// its child. `wait` is exact for a child subreaper: the kernel gives it the children of whoever ends before that one can be
/// reaped. So whoever hears here that there are none has nothing below it.
pub(crate) fn has_children(mut ended: impl FnMut(Pid, WaitStatus)) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => ended(pid, status),
            Ok(None) => return true,
            Err(error) => return error != Errno::CHILD,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(pid: i32, name: &str, state: &str, parent: i32, threads: u32) -> String {
        format!(
            "{pid} ({name}) {state} {parent} {pid} {pid} 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 {threads} 0 777 0 0\n"
        )
    }

    #[test]
    fn a_line_is_read_whatever_the_name_of_the_process() {
        for name in ["sh", "a b", "x) Z 1 (y", ""] {
            let entry = Entry::parse(&stat(42, name, "S", 7, 1)).expect("well-formed");
            assert_eq!(entry, Entry { pid: 42, parent: 7, group: 42, ended: false, born: 777 }, "{name:?}");
        }
        for broken in ["", "42", "42 (sh", "42 (sh) S", "x (sh) S 1 1 1"] {
            assert_eq!(Entry::parse(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_still_runs() {
        assert!(Entry::parse(&stat(42, "sh", "Z", 7, 1)).expect("well-formed").ended);
        assert!(!Entry::parse(&stat(42, "sh", "Z", 7, 3)).expect("well-formed").ended);
    }

    #[test]
    fn everything_below_is_found_and_nothing_beside() {
        let line =
            |pid: i32, parent: i32| Entry::parse(&stat(pid, "p", "S", parent, 1)).expect("well-formed");
        // 5 and 6 name each other as parents, as may be seen while the table changes under the reader.
        let all = [
            line(1, 0),
            line(10, 1),
            line(20, 10),
            line(30, 20),
            line(31, 20),
            line(99, 1),
            line(5, 6),
            line(6, 5),
        ];
        let pids = |root: i32| {
            let mut pids: Vec<i32> = below(&all, root).iter().map(|entry| entry.pid).collect();
            pids.sort_unstable();
            pids
        };
        assert_eq!(pids(10), [20, 30, 31]);
        assert_eq!(pids(31), [0; 0]);
        assert_eq!(pids(5), [6]);
    }

    #[test]
    fn this_very_process_is_in_the_table() {
        let me = me();
        let mine = table().into_iter().find(|entry| entry.pid == me).expect("it runs");
        assert!(!mine.ended && mine.born > 0);
    }
}
