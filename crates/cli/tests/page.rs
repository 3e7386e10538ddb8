//! The examples of a page, so that what a test runs is what a reader types.

use crate::common::{Killed, PATIENCE, Sandbox, program};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A fenced block of a page.
pub(crate) struct Block {
    pub(crate) language: String,
    pub(crate) text: String,
    /// What is in backticks in the line above it: the file to save it as.
    pub(crate) file: Option<String>,
}

/// The blocks of a text, in order.
pub(crate) fn blocks(text: &str) -> Vec<Block> {
    let (mut all, mut above, mut open) = (Vec::new(), "", None::<Block>);
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (Some(_), Some(_)) => all.extend(open.take()),
            (Some(block), None) => block.text.extend([line, "\n"]),
            (None, Some(language)) => {
                let file = above.split('`').nth(1).map(str::to_owned);
                open = Some(Block { language: language.to_owned(), text: String::new(), file });
            }
            (None, None) if !line.is_empty() => above = line,
            (None, None) => {}
        }
    }
    all
}

/// The sections of a page: heading and text, without what comes before the first.
pub(crate) fn sections(page: &str) -> Vec<(&str, &str)> {
    page.split("\n## ").skip(1).filter_map(|section| section.split_once('\n')).collect()
}

/// What is typed, and what the page shows below it.
#[derive(Debug)]
struct Step {
    typed: String,
    shown: Vec<String>,
}

/// `$ ` begins a command, `> ` goes on with it, and the rest is what it prints.
fn steps(block: &str) -> Vec<Step> {
    let mut all: Vec<Step> = Vec::new();
    for line in block.lines() {
        if let Some(typed) = line.strip_prefix("$ ") {
            all.push(Step { typed: typed.to_owned(), shown: Vec::new() });
            continue;
        }
        let step = all.last_mut().expect("a block begins with a command");
        match line.strip_prefix("> ") {
            Some(more) if step.shown.is_empty() => step.typed.extend(["\n", more]),
            _ => step.shown.push(alike(line)),
        }
    }
    all
}

/// A line without what differs from run to run: numbers, units of time, and how wide the columns are.
fn alike(line: &str) -> String {
    let mut text = String::new();
    for c in line.chars() {
        match c {
            '0'..='9' if text.ends_with('0') => {}
            '0'..='9' => text.push('0'),
            _ => text.push(c),
        }
    }
    let words = text.split_whitespace().map(|word| match word {
        "0.0" => "0",
        "ms" | "min" | "h" => "s",
        _ => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Whether all that is shown was printed, in this order; other lines may stand between them.
fn shows(printed: &[String], shown: &[String]) -> bool {
    let mut printed = printed.iter();
    shown.iter().all(|line| printed.any(|other| other == line))
}

/// Commands that may be repeated: they are typed again until they print what the page shows.
const LOOKS: [&str; 9] = [
    "curl -s ",
    "tenure job ls",
    "tenure job show",
    "tenure leader",
    "tenure lock ls",
    "tenure queue ls",
    "tenure schedule show",
    "tenure status",
    "tenure workers",
];

/// Printed when a command has ended, with its exit code.
const END: &str = "-- end of the command:";

/// A shell in an empty folder. Whatever was started in it ends with it.
pub(crate) struct Terminal {
    bash: Killed,
    input: ChildStdin,
    lines: Receiver<String>,
    /// Whether something in the background prints here, too.
    shared: bool,
    /// All that was typed and printed.
    screen: String,
}

impl Terminal {
    /// With these variables, besides what every process of a sandbox gets.
    pub(crate) fn open(sandbox: &Sandbox, variables: &[(&str, &str)]) -> Terminal {
        let (programs, folder) = (sandbox.path("programs"), sandbox.path("empty"));
        std::fs::create_dir(&programs).unwrap();
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(program(), programs.join("tenure")).unwrap();
        let mut bash = Command::new("bash");
        bash.args(["--noprofile", "--norc"]).env_clear().current_dir(folder).process_group(0);
        let like_others = sandbox.command();
        bash.envs(like_others.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
        bash.env("PATH", path).envs(variables.iter().copied());
        let (mouth, lines) = channel();
        let (output, input) = std::io::pipe().unwrap();
        let errors = input.try_clone().unwrap();
        let mut child = Killed(bash.stdin(Stdio::piped()).stdout(input).stderr(errors).spawn().unwrap());
        drop(bash); // It holds the other end open.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = mouth.send(line);
            }
        });
        let input = child.0.stdin.take().unwrap();
        Terminal { bash: child, input, lines, shared: false, screen: String::new() }
    }

    /// Saves the files of a text and types its commands, and compares what they print with what the text shows.
    pub(crate) fn play(&mut self, sandbox: &Sandbox, text: &str) {
        for block in blocks(text) {
            if block.language == "console" {
                steps(&block.text).iter().for_each(|step| self.step(step));
            } else {
                let file = block.file.unwrap_or_else(|| panic!("no name of a file above:\n{}", block.text));
                sandbox.write(&format!("empty/{file}"), &block.text);
            }
        }
    }

    fn step(&mut self, step: &Step) {
        let is_look = LOOKS.iter().any(|look| step.typed.starts_with(look));
        // A failure is part of an example only if the page shows what it says.
        let fails = step.shown.iter().any(|line| line.starts_with("tenure: "));
        self.shared |= step.typed.ends_with('&') && !step.shown.is_empty();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (code, mut printed) = self.run(step, deadline);
            let ended_well = (code == "0") != fails;
            // What runs in the background may need a moment.
            while ended_well && !is_look && !shows(&printed, &step.shown) {
                printed.extend(self.next(step, deadline).map(|line| alike(&line)));
            }
            let no_more = !step.shown.is_empty() || printed.is_empty() || self.shared;
            if ended_well && no_more && shows(&printed, &step.shown) {
                return;
            }
            if !is_look || Instant::now() > deadline {
                self.fail(step, &format!("it ended with {code}"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Types a command and waits for its end: its exit code, and what was printed meanwhile.
    fn run(&mut self, step: &Step, deadline: Instant) -> (String, Vec<String>) {
        self.screen.push_str(&format!("$ {}\n", step.typed));
        // Its own input is empty: what follows in ours is not for it.
        let end = format!("typed_code=$?; echo; echo '{END}' $typed_code");
        writeln!(self.input, "{{ {}\n}} < /dev/null; {end}", step.typed).unwrap();
        let mut printed = Vec::new();
        loop {
            let Some(line) = self.next(step, deadline) else { continue };
            match line.strip_prefix(END) {
                Some(code) => return (code.trim().to_owned(), printed),
                None => printed.push(alike(&line)),
            }
        }
    }

    /// The next line that a program printed, if it is not empty. The shell's own remarks are none.
    fn next(&mut self, step: &Step, deadline: Instant) -> Option<String> {
        let line = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        let Ok(line) = line else { self.fail(step, "the rest did not come") };
        self.screen.extend([&line, "\n"]);
        let is_remark = line.starts_with("bash: line ") && line.contains("Killed");
        (!line.trim().is_empty() && !is_remark).then_some(line)
    }

    fn fail(&self, step: &Step, why: &str) -> ! {
        panic!("{why}; shown is {:#?}\nat the end of\n{}", step.shown, self.screen);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.bash.0);
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.bash.0.wait();
        // The folder they write to is about to be removed.
        let deadline = Instant::now() + Duration::from_secs(2);
        while test_kill_process_group(group).is_ok() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn pages_are_taken_apart() {
    let page = "# A\n\nno\n\n## B\n\nSave as `f.py`:\n\n```python\nx\n```\n\n```console\n$ a 1 &\n$ for\n>   b\n> done\n c  23 min\n```\n\n## C\n\n";
    let sections = sections(page);
    assert_eq!(sections.iter().map(|(heading, _)| *heading).collect::<Vec<_>>(), ["B", "C"]);
    let blocks = blocks(sections[0].1);
    assert_eq!((blocks[0].file.as_deref(), blocks[0].text.as_str()), (Some("f.py"), "x\n"));
    let steps = steps(&blocks[1].text);
    assert_eq!((steps[0].typed.as_str(), steps[1].typed.as_str()), ("a 1 &", "for\n  b\ndone"));
    assert_eq!(steps[1].shown, ["c 0 s"]);
    let line = |text: &str| vec![alike(text)];
    assert!(shows(&line(" a-12  1.5 s"), &line("a-3 24 s")));
    assert!(!shows(&line("a"), &line("b")) && shows(&line("a"), &[]));
}
