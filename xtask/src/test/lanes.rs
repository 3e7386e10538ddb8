//! The tests, run in two lanes.
//!
//! `cargo test` runs one program after another. Programs that start real processes mostly wait, the others compute: side by side
//! they take less time. Those that wait also measure, so that what computes beside them gets the time they leave.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use crate::workspace::Workspace;
use crate::{interrupt, process};

/// The packages whose tests wait for processes, or for servers that answer slowly on purpose.
const WAIT: [&str; 2] = ["crates/cli", "crates/store"];

/// One program, as cargo built it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Program {
    /// The directory of its package.
    folder: PathBuf,
    pub(crate) name: String,
    executable: PathBuf,
}

impl Program {
    /// Builds all test programs.
    pub(crate) fn build(workspace: &Workspace, limit: Duration) -> Result<Vec<Program>> {
        let mut command = workspace.cargo();
        command.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
        let built = process::capture(&mut command, limit)?.ok("cargo test --no-run")?;
        let programs: Vec<Program> = built.lines().filter_map(Program::of).collect();
        anyhow::ensure!(!programs.is_empty(), "cargo names no test program");
        Ok(programs)
    }

    /// The test program that a line of cargo's output is about, if any.
    fn of(line: &str) -> Option<Program> {
        let said: Value = serde_json::from_str(line).ok()?;
        let is_test = said["reason"] == "compiler-artifact" && said["profile"]["test"] == true;
        let executable = said["executable"].as_str().filter(|_| is_test)?;
        let folder = Path::new(said["manifest_path"].as_str()?).parent()?.to_path_buf();
        let name = said["target"]["name"].as_str()?.to_owned();
        Some(Program { folder, name, executable: executable.into() })
    }

    pub(crate) fn waits(&self) -> bool {
        WAIT.iter().any(|folder| self.folder.ends_with(folder))
    }

    /// The command line cargo would use.
    pub(crate) fn command(&self, args: &[String]) -> Command {
        let mut command = Command::new(&self.executable);
        command.args(args).current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }

    pub(crate) fn title(&self) -> String {
        format!("{}, {}", self.folder.file_name().unwrap_or_default().display(), self.name)
    }
}

/// A command that runs tests.
pub(crate) struct Task {
    /// The step of the whole run that it is a part of.
    pub(crate) step: String,
    pub(crate) title: String,
    pub(crate) command: Command,
}

/// How it went.
pub(crate) struct Ran {
    pub(crate) step: String,
    pub(crate) passed: bool,
    pub(crate) output: String,
    pub(crate) took: Duration,
}

/// Runs both lanes to their ends, and prints what a task said once it has ended.
pub(crate) fn run(waiting: Vec<Task>, computing: Vec<Task>, limit: Duration) -> Vec<Ran> {
    let ran = Mutex::new(Vec::new());
    let lane = |tasks: Vec<Task>| {
        for mut task in tasks {
            if interrupt::pending() {
                return;
            }
            let began = Instant::now();
            let (passed, output) = match process::capture(&mut task.command, limit) {
                Ok(said) => (said.success, said.stdout + &said.stderr),
                Err(error) => (false, format!("{error:#}\n")),
            };
            let took = began.elapsed();
            let mut ran = ran.lock().unwrap_or_else(PoisonError::into_inner);
            println!("\n     Ran {} in {:.1} s\n{output}", task.title, took.as_secs_f64());
            ran.push(Ran { step: task.step, passed, output, took });
        }
    };
    let computing = computing
        .into_iter()
        .map(|task| Task { command: process::yielding(&task.command), ..task })
        .collect();
    thread::scope(|scope| {
        scope.spawn(|| lane(computing));
        lane(waiting);
    });
    ran.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/cli/Cargo.toml",
        "target":{"kind":["test"],"name":"lock"},"profile":{"test":true},"executable":"/w/target/debug/deps/lock-1"}"#;

    #[test]
    fn only_test_programs_are_programs() {
        let program = Program::of(LINE).expect("a test program");
        assert!(program.name == "lock" && program.waits(), "{program:?}");
        assert!(!Program::of(&LINE.replace("crates/cli", "crates/core")).expect("another").waits());
        assert_eq!(Program::of(&LINE.replace("true", "false")), None, "built, but no test");
        assert_eq!(Program::of(&LINE.replace("compiler-artifact", "build-script-executed")), None);
        assert_eq!(Program::of("   Compiling x"), None);
    }

    #[test]
    fn both_lanes_run_to_their_ends_and_a_failure_is_seen_in_either() {
        let task = |title: &str, script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).env("WORD", "said").current_dir("/");
            Task { step: title.to_owned(), title: title.to_owned(), command }
        };
        let waiting = vec![task("a", "false"), task("b", "echo $WORD; pwd; nice")];
        let computing = vec![task("c", "echo $WORD; pwd; nice"), task("d", "exit 3"), task("e", "true")];
        let mut ran = run(waiting, computing, Duration::from_secs(60));
        ran.sort_by(|a, b| a.step.cmp(&b.step));
        let passed: String = ran.iter().filter(|ran| ran.passed).map(|ran| ran.step.as_str()).collect();
        assert_eq!((ran.len(), passed.as_str()), (5, "bce"));
        let here = Command::new("nice").output().expect("nice");
        let here: i32 = String::from_utf8_lossy(&here.stdout).trim().parse().expect("a number");
        assert_eq!(ran[1].output, format!("said\n/\n{here}\n"));
        assert_eq!(ran[2].output, format!("said\n/\n{}\n", (here + 10).min(19)));
    }
}
