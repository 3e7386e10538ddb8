//! The tests of the documentation, and its links, from one call of cargo's.
//!
//! `cargo doc` would compile every dependency once more, only to check links. `cargo test --doc` calls rustdoc for each library with
//! all that it needs; this program stands in for that rustdoc, and calls the real one twice: as asked, and for the pages.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

/// Names the real rustdoc, and says that this program is called in its place.
const REAL: &str = "TENURE_REAL_RUSTDOC";

/// Lets a `cargo test --doc` check links, too.
pub(super) fn stand_in(cargo: &mut Command) -> std::io::Result<()> {
    let real = std::env::var_os("RUSTDOC").unwrap_or_else(|| "rustdoc".into());
    cargo.env(REAL, real).env("RUSTDOC", std::env::current_exe()?);
    Ok(())
}

/// For `main`: `None` if this is not such a call.
pub(crate) fn become_rustdoc_if_asked() -> Option<ExitCode> {
    let real = std::env::var_os(REAL)?;
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let run = |command: &mut Command| command.status().is_ok_and(|status| status.success());
    let mut well = run(Command::new(&real).args(&arguments));
    if let Some(pages) = pages(&arguments) {
        // Only to read the links, and to write no page, takes a third of the time; a stable rustdoc does it if told so.
        well &= run(Command::new(&real).args(&pages).env("RUSTC_BOOTSTRAP", "1"));
    }
    Some(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The arguments that make pages of what others test; `None` if they do not test.
fn pages(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let mut pages = Vec::new();
    let (mut tests, mut at) = (false, 0);
    while let Some(argument) = arguments.get(at) {
        let word = argument.to_string_lossy();
        match word.split('=').next().unwrap_or_default() {
            "--test" => tests = true,
            "--test-run-directory" | "--test-args" | "--test-runtool" if !word.contains('=') => at += 1,
            "--test-run-directory" | "--test-args" | "--test-runtool" | "--no-run" | "--nocapture" => {}
            _ => pages.push(argument.clone()),
        }
        at += 1;
    }
    pages.extend(["--deny=warnings", "-Zunstable-options", "--check"].map(OsString::from));
    tests.then_some(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_about_testing_is_left_out() {
        let words = |line: &str| line.split_whitespace().map(OsString::from).collect::<Vec<_>>();
        let made =
            pages(&words("--edition=2024 --test src/lib.rs --test-run-directory /w --extern a=b --no-run"));
        let made = made.expect("it tests");
        assert_eq!(made[..4], words("--edition=2024 src/lib.rs --extern a=b"));
        assert_eq!(made[4], "--deny=warnings");
        assert_eq!(pages(&words("-vV")), None);
    }
}
