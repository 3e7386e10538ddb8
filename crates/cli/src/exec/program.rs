//! Whether there is such a program, before anybody takes part in an election for it: a node that leads and cannot run its
//! command would only pass leadership around.

use crate::exit::Failure;
use rustix::fs::{Access, access};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Where programs are looked for if nobody says.
const USUAL_PATH: &str = "/bin:/usr/bin";

/// Looks the program up as starting it will. Exit code 127 if there is none, 126 if it cannot be run, as with shells.
pub(super) fn find(command: &[OsString]) -> Result<(), Failure> {
    let Some(program) = command.first() else { return Err(Failure::usage("there is no command to run")) };
    let path = std::env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into());
    find_in(program, &path)
}

fn find_in(program: &OsStr, path: &OsStr) -> Result<(), Failure> {
    let by_path = program.as_encoded_bytes().contains(&b'/');
    let candidates: Vec<PathBuf> = if by_path {
        vec![program.into()]
    } else {
        std::env::split_paths(path).map(|folder| folder.join(program)).collect()
    };
    if candidates.iter().any(|candidate| runs(candidate)) {
        return Ok(());
    }
    match candidates.iter().find(|candidate| candidate.exists()) {
        Some(found) => {
            let what = if found.is_dir() { "is a directory" } else { "is not executable" };
            Err(Failure::program(126, format!("cannot run {program:?}: {} {what}", found.display())))
        }
        None if by_path => Err(Failure::program(127, format!("there is no program {program:?}"))),
        None => Err(Failure::program(127, format!("there is no program {program:?} in PATH"))),
    }
}

fn runs(candidate: &Path) -> bool {
    candidate.is_file() && access(candidate, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_like_a_shell_finds_it() {
        let code = |program: &str, path: &str| {
            find_in(program.as_ref(), path.as_ref())
                .err()
                .map(|failure| (failure.code(), failure.to_string()))
        };
        assert_eq!(code("sh", "/nowhere:/usr/bin:/bin"), None);
        assert_eq!(code("/bin/sh", ""), None);
        let (missing, words) = code("no-such-command", "/usr/bin:/bin").expect("refused");
        assert!(missing == 127 && words.contains("no-such-command") && words.contains("PATH"), "{words}");
        assert_eq!(code("sh", "/nowhere").map(|(code, _)| code), Some(127));
        assert_eq!(code("./no-such-command", "/bin").map(|(code, _)| code), Some(127));
        let (folder, words) = code("/tmp", "").expect("refused");
        assert!(folder == 126 && words.contains("directory"), "{words}");
        assert_eq!(code("/proc/self/status", "").map(|(code, _)| code), Some(126));
        assert_eq!(code("", "/bin").map(|(code, _)| code), Some(126));
    }
}
