//! What Linux says of a process in `/proc`.

/// One line of `/proc/<pid>/stat`, as far as anything here asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    pub state: char,
    pub parent: i32,
    /// Clock ticks from the machine's start to the process's.
    pub began: u64,
    /// Seconds of CPU that its children used which have ended.
    pub of_children_s: u64,
}

/// Clock ticks in a second: Linux shows every user this many.
const TICKS: u64 = 100;

impl Stat {
    /// Of a process, or of a thread: `<pid>/task/<tid>`. `None` if there is none.
    pub fn of(who: impl std::fmt::Display) -> Option<Stat> {
        Stat::parse(&std::fs::read_to_string(format!("/proc/{who}/stat")).ok()?)
    }

    fn parse(line: &str) -> Option<Stat> {
        // The command in parentheses may contain anything; the other fields begin after the last parenthesis.
        let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
        let state = fields.first()?.chars().next()?;
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let of_children_s = (number(13)? + number(14)?) / TICKS;
        Some(Stat { state, parent: fields.get(1)?.parse().ok()?, began: number(19)?, of_children_s })
    }

    /// Whether it has ended and only waits for its parent to notice.
    pub fn is_over(self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// The parent of a running process.
pub fn parent(pid: i32) -> Option<i32> {
    Stat::of(pid).filter(|stat| !stat.is_over()).map(|stat| stat.parent)
}

/// The numbers of all processes.
pub fn all() -> Vec<i32> {
    let folder = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    folder.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_confuses_nobody() {
        let line = "7 (a) b (c) S 3 7 7 0 -1 4194560 1 0 0 0 0 0 150 350 20 0 1 0 4711 1 1";
        let stat = Stat { state: 'S', parent: 3, began: 4711, of_children_s: 5 };
        assert_eq!(Stat::parse(line), Some(stat));
        assert_eq!(Stat::parse("7 (a) S"), None);
        let me = Stat::of(std::process::id()).expect("this process lives");
        assert!(!me.is_over() && parent(me.parent).is_some());
    }
}
