//! The steps of a test run: what ran beside what, how long it took, and what did not run.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use tenure_rig::{interrupt, proc, process::Captured};

/// What ran, how long it took, and what did not run. Shared by steps that run beside each other.
pub(crate) struct Report {
    began: Instant,
    lines: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    passed: Vec<String>,
    failed: Vec<String>,
    skipped: Vec<String>,
}

impl Report {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), lines: Mutex::default() }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn skip(&self, what: &str) {
        self.lines().skipped.push(what.to_owned());
    }

    /// For what a test needs and a developer's machine may lack: it is left out, loudly.
    pub(crate) fn available<T>(&self, what: &str, found: Result<T>) -> Option<T> {
        found
            .map_err(|error| {
                println!("!!! {what}: NOT TESTED: {error:#}");
                self.skip(&format!("{} ({error:#})", what.to_uppercase()).replace('\n', " "));
            })
            .ok()
    }

    /// Runs one step, whose output goes to the terminal. A failure is remembered, so that the other steps still run.
    pub(crate) fn step(&self, name: &str, action: impl FnOnce() -> Result<bool>) -> bool {
        self.counted(name, || action().map(|passed| (passed, String::new())))
    }

    /// The same for a step that says what it counted.
    pub(crate) fn counted(&self, name: &str, action: impl FnOnce() -> Result<(bool, String)>) -> bool {
        if interrupt::pending() {
            self.skip(&format!("{name} (interrupted)"));
            return false;
        }
        println!("==> {name}");
        let began = Instant::now();
        let (passed, count) = action().unwrap_or_else(|error| (false, format!("{error:#}")));
        self.ended(name, began.elapsed(), passed, &count);
        passed
    }

    /// The same for a program that runs beside other steps: what it says is shown once it has ended, and the tests it counted
    /// are in what it says.
    fn captured(&self, name: &str, action: impl FnOnce() -> Result<Captured>) {
        self.counted(name, || {
            let said = action()?;
            let count = counted(&said.stdout) + counted(&said.stderr);
            // One call, so that no other step's words come in between.
            print!("\n--- {name}\n{}{}---\n", said.stdout, said.stderr);
            Ok((said.success, if count > 0 { format!("{count} passed") } else { String::new() }))
        });
    }

    fn ended(&self, name: &str, took: Duration, passed: bool, count: &str) {
        let outcome = if passed { "ok" } else { "FAILED" };
        println!("==> {name}: {outcome} in {:.1} s {count}", took.as_secs_f64());
        let entry = if count.is_empty() { name.to_owned() } else { format!("{name}: {count}") };
        let mut lines = self.lines();
        if passed { lines.passed.push(entry) } else { lines.failed.push(entry) }
    }

    pub(crate) fn finish(self) -> bool {
        println!("\n{}", self.line());
        self.lines().failed.is_empty()
    }

    fn line(&self) -> String {
        let lines = self.lines();
        let outcome = if lines.failed.is_empty() { "PASSED" } else { "FAILED" };
        let cpu = proc::Stat::of("self").map_or(0, |me| me.of_children_s);
        let mut line = format!("{outcome} in {:.0} s, {cpu} s of CPU", self.began.elapsed().as_secs_f64());
        for (title, entries) in
            [("FAILED", &lines.failed), ("ran", &lines.passed), ("SKIPPED", &lines.skipped)]
        {
            if !entries.is_empty() {
                line.push_str(&format!(" | {title}: {}", entries.join(", ")));
            }
        }
        line
    }
}

/// How many tests passed, as Python's unittest, Node's runner, Rust's tests of the documentation and `deploy/` say it. That one
/// failed is in their exit codes.
pub(crate) fn counted(said: &str) -> u32 {
    let of_line = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        ["Ran", number, "test" | "tests", "in", _]
        | ["#" | "ℹ", "pass", number]
        | [number, "of", _, "noticed"]
        | ["test", "result:", _, number, "passed;", ..] => number.parse().unwrap_or(0),
        _ => 0,
    };
    said.lines().map(of_line).sum()
}

/// Programs that run beside the builds and the tests, a few at a time, in this order.
pub(crate) struct Beside<'r> {
    report: &'r Report,
    queue: Mutex<Vec<Task<'r>>>,
    gate: Gate,
    /// How many of those that need no build of the tests have not ended.
    early: Mutex<usize>,
    ended: Condvar,
}

type Action<'r> = Box<dyn FnOnce() -> Result<Captured> + Send + 'r>;

struct Task<'r> {
    name: String,
    after_build: bool,
    action: Action<'r>,
}

impl<'r> Beside<'r> {
    pub(crate) fn new(report: &'r Report) -> Self {
        let (queue, gate) = (Mutex::default(), Gate::default());
        Self { report, queue, gate, early: Mutex::default(), ended: Condvar::new() }
    }

    /// Something that needs no more than the shipped program.
    pub(crate) fn add(&self, name: &str, action: impl FnOnce() -> Result<Captured> + Send + 'r) {
        self.push(name, false, Box::new(action));
    }

    /// Something that needs what the tests are built with, too.
    pub(crate) fn add_after_build(&self, name: &str, action: impl FnOnce() -> Result<Captured> + Send + 'r) {
        self.push(name, true, Box::new(action));
    }

    fn push(&self, name: &str, after_build: bool, action: Action<'r>) {
        *self.early.lock().unwrap_or_else(PoisonError::into_inner) += usize::from(!after_build);
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push(Task { name: name.to_owned(), after_build, action });
    }

    /// Waits until all that need no build of the tests have ended: they measure, as do the tests that wait.
    pub(crate) fn early_ended(&self) {
        let early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.ended.wait_while(early, |early| *early > 0));
    }

    /// The tests are built, or cannot be.
    pub(crate) fn built(&self, well: bool) {
        self.gate.open(well);
    }

    /// Takes one after another until none is left; for a thread of its own. What is started here dies with that thread.
    pub(crate) fn work(&self) {
        loop {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            if queue.is_empty() {
                return;
            }
            let task = queue.remove(0);
            drop(queue);
            if task.after_build && !self.gate.pass() {
                self.report.skip(&format!("{} (the build failed)", task.name));
            } else {
                self.report.captured(&task.name, task.action);
            }
            *self.early.lock().unwrap_or_else(PoisonError::into_inner) -= usize::from(!task.after_build);
            self.ended.notify_all();
        }
    }
}

/// Opens once.
#[derive(Default)]
struct Gate {
    outcome: Mutex<Option<bool>>,
    opened: Condvar,
}

impl Gate {
    fn open(&self, well: bool) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(well);
        self.opened.notify_all();
    }

    fn pass(&self) -> bool {
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = self.opened.wait_while(outcome, |outcome| outcome.is_none());
        outcome.unwrap_or_else(PoisonError::into_inner).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(success: bool, stdout: &str) -> Result<Captured> {
        Ok(Captured { success, stdout: stdout.to_owned(), stderr: String::new() })
    }

    #[test]
    fn tests_of_all_runners_are_counted() {
        let words = "Ran 4 tests in 12.3s\nℹ pass 5\n# pass 6\n7 of 7 noticed\n\
            test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 4 filtered out; finished in 0.01s\ntest a::b ... ok\n";
        assert_eq!(counted(words), 34);
    }

    #[test]
    fn a_failed_step_fails_the_run_and_is_named() {
        let report = Report::new();
        assert!(report.step("good", || Ok(true)));
        assert!(!report.step("bad", || anyhow::bail!("no")));
        report.skip("ceph");
        assert_eq!(report.available::<()>("browser", Err(anyhow::anyhow!("not there"))), None);
        let line = report.line();
        assert!(line.starts_with("FAILED") && line.contains("FAILED: bad: no | ran: good"), "{line}");
        assert!(line.contains("SKIPPED: ceph, BROWSER (not there)"), "{line}");
        assert!(!report.finish());
    }

    #[test]
    fn what_needs_the_tests_waits_for_their_build_and_is_skipped_if_that_fails() {
        for well in [true, false] {
            let report = Report::new();
            let beside = Beside::new(&report);
            beside.add("early", || said(true, "ℹ pass 5"));
            beside.add_after_build("late", || said(false, ""));
            std::thread::scope(|scope| {
                scope.spawn(|| beside.work());
                beside.built(well);
            });
            let lines = report.lines();
            assert_eq!(lines.passed, ["early: 5 passed"]);
            assert_eq!(lines.failed.len(), usize::from(well));
            assert_eq!(lines.skipped.len(), usize::from(!well));
        }
    }
}
