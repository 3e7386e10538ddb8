//! The test programs of the workspace, run in two lanes.
//!
//! `cargo test` runs one after another. Programs that start real processes mostly wait, the others compute: side by side they
//! take less time, and each lane still has a core.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process;
use crate::workspace::Workspace;

/// The packages whose tests wait for processes, or for servers that answer slowly on purpose.
const WAIT: [&str; 2] = ["crates/cli", "crates/store"];

/// One program, as cargo built it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Program {
    /// The directory of its package.
    folder: PathBuf,
    name: String,
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

    fn waits(&self) -> bool {
        WAIT.iter().any(|folder| self.folder.ends_with(folder))
    }

    /// The command line cargo would use.
    fn command(&self, args: &[String]) -> Command {
        let mut command = Command::new(&self.executable);
        command.args(args).current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// Runs them with these arguments, the waiting ones beside the others. `prepare` adds to each command; `see` gets every line of a
/// program that has ended. Returns whether all passed.
pub(crate) fn run(
    programs: &[Program],
    args: &[String],
    limit: Duration,
    prepare: impl Fn(&mut Command) -> Result<()> + Sync,
    see: impl FnMut(&str) + Send,
) -> Result<bool> {
    let see = Mutex::new(see);
    let lane = |waits: bool| -> Result<bool> {
        let mut passed = true;
        for program in programs.iter().filter(|program| program.waits() == waits) {
            let mut command = program.command(args);
            prepare(&mut command)?;
            if !waits {
                // The other core is for the programs that wait.
                command.env("RUST_TEST_THREADS", "1");
            }
            let folder = program.folder.file_name().unwrap_or_default().display();
            let said = process::capture(&mut command, limit);
            let said = said.with_context(|| format!("{folder}, {}", program.name))?;
            passed &= said.success;
            let mut see = see.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            println!("\n     Ran {folder}, {}", program.name);
            for line in said.stdout.lines().chain(said.stderr.lines()) {
                println!("{line}");
                (*see)(line);
            }
        }
        Ok(passed)
    };
    thread::scope(|scope| {
        let beside = scope.spawn(|| lane(false));
        let waited = lane(true);
        let computed = beside.join().map_err(|_| anyhow::anyhow!("a lane panicked"))?;
        Ok(waited? & computed?)
    })
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
    fn a_failure_in_either_lane_fails_the_run_and_all_are_seen() {
        let program = |folder: &str, executable: &str| Program {
            folder: Path::new("/").join(folder),
            name: executable.to_owned(),
            executable: Path::new("/bin").join(executable),
        };
        for (waits, computes, passed) in
            [("echo", "echo", true), ("false", "echo", false), ("echo", "false", false)]
        {
            // Any folders that exist.
            let mut both = [program("", computes), program("", waits)];
            let folder = tempfile::tempdir().expect("a directory");
            both[1].folder = folder.path().join(WAIT[0]);
            std::fs::create_dir_all(&both[1].folder).expect("made");
            let mut seen = Vec::new();
            let args = ["test result: ok. 1 passed".to_owned()];
            let ran =
                run(&both, &args, Duration::from_secs(60), |_| Ok(()), |line| seen.push(line.to_owned()));
            assert_eq!(ran.expect("run"), passed, "{waits}, {computes}");
            assert_eq!(seen.len(), [waits, computes].iter().filter(|name| **name == "echo").count());
        }
    }
}
