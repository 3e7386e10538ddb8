//! The tokens of HTTP: where they are kept, how the first one is made, and `tenure token`.

use crate::args::TokenArgs;
use crate::exit::Failure;
use crate::out::say;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tenure::settings::Resolved;

/// In the data directory.
const FILE: &str = "http-token";

/// No file with a token is longer.
const FILE_MAX_BYTES: u64 = 64 * 1024;

/// Which token, by the names people give it with. Never a flag: others could read it in the list of processes.
pub(crate) struct Name {
    flag: &'static str,
    variable: &'static str,
}

/// The token that changes need.
pub(crate) const CHANGE: Name = Name { flag: "--http-token-file", variable: "TENURE_HTTP_TOKEN" };

/// The token that may only read.
pub(crate) const READ: Name = Name { flag: "--http-read-token-file", variable: "TENURE_HTTP_READ_TOKEN" };

/// A token, and what to call the place it came from.
pub(crate) struct Found {
    pub(crate) text: String,
    pub(crate) from: String,
}

impl Name {
    /// The token somebody gave: in a file, or in the environment.
    pub(crate) fn given(&self, file: Option<&Path>) -> Result<Option<Found>, Failure> {
        if let Some(path) = file {
            let from = format!("{} {}", self.flag, path.display());
            let text = read(path).map_err(|why| Failure::usage(format!("{from}: {why}")))?;
            return Ok(Some(Found { text, from }));
        }
        match std::env::var(self.variable) {
            Ok(text) => Ok(Some(Found { text: text.trim().to_owned(), from: self.variable.to_owned() })),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => {
                Err(Failure::usage(format!("{} must be UTF-8 text", self.variable)))
            }
        }
    }
}

/// Where this user's token is kept if nobody says otherwise.
pub(crate) fn path(data_dir: &Path) -> PathBuf {
    data_dir.join(FILE)
}

/// The token that is kept there, if there is one.
pub(crate) fn kept(path: &Path) -> Result<Option<Found>, Failure> {
    match std::fs::symlink_metadata(path) {
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => Ok(None),
        _ => {
            let from = path.display().to_string();
            let text = read(path).map_err(|why| Failure::usage(format!("{from}: {why}")))?;
            Ok(Some(Found { text, from }))
        }
    }
}

/// The token that is kept in the data directory, made if there is none. The inner error says why there is none.
pub(crate) fn kept_or_made(resolved: &Resolved) -> Result<Result<Found, String>, Failure> {
    let path = path(&resolved.settings.data_dir);
    // Somebody else's home: a node needs no token of its own to run.
    if let Err(error) = File::open(&path)
        && error.kind() == ErrorKind::PermissionDenied
    {
        return Ok(Err(format!("{} cannot be read: {error}", path.display())));
    }
    if let Some(found) = kept(&path)? {
        return Ok(Ok(found));
    }
    if let Err(error) = crate::data_dir::make(resolved).and_then(|()| make(&path)) {
        return Ok(Err(format!("{} cannot be created: {error}", path.display())));
    }
    Ok(kept(&path)?.ok_or_else(|| format!("{} is gone", path.display())))
}

/// Makes a token that nobody knows. It is whole, and for this user alone, from the moment it has its name; if another process was
/// first, its token stays.
fn make(path: &Path) -> io::Result<()> {
    let draft = path.with_file_name(format!(".{FILE}-{:016x}", rand::random::<u64>()));
    let secret: [u8; 32] = rand::random();
    let text: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let written = writeln!(file, "{text}").and_then(|()| file.sync_all());
    let named = written.and_then(|()| std::fs::hard_link(&draft, path));
    std::fs::remove_file(&draft)?;
    match named {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        named => named,
    }
}

/// The text of a file that nobody else can read.
fn read(path: &Path) -> Result<String, String> {
    let failed = |error: io::Error| format!("cannot be read: {error}");
    let file = File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if let Some(why) = exposed(found.mode(), found.uid(), rustix::process::geteuid().as_raw()) {
        return Err(why);
    }
    let mut text = String::new();
    file.take(FILE_MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_MAX_BYTES {
        return Err(format!("it is too long for a token: at most {FILE_MAX_BYTES} bytes"));
    }
    Ok(text.trim().to_owned())
}

/// Why a file is no place for a secret, if it is none.
fn exposed(mode: u32, owner: u32, me: u32) -> Option<String> {
    let bits = mode & 0o7777;
    // A group that the administrator chose may read it: so systemd and Kubernetes hand secrets to a service.
    let allowed = if owner == 0 { 0o740 } else { 0o700 };
    if mode & 0o777 & !allowed != 0 {
        return Some(format!(
            "its mode is {bits:04o}, so other users can read the token: run chmod 600 on it"
        ));
    }
    let foreign = owner != me && owner != 0;
    foreign.then(|| format!("it belongs to the user with uid {owner}, who can read the token"))
}

pub(crate) fn token(args: &TokenArgs) -> Result<ExitCode, Failure> {
    if let Some(found) = CHANGE.given(args.http_token_file.as_deref())? {
        match (args.path, &args.http_token_file) {
            (false, _) => say!("{}", found.text),
            (true, Some(path)) => say!("{}", path.display()),
            (true, None) => {
                return Err(Failure::other(format!("the token is in {}, not in a file", found.from)));
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let path = path(&args.settings.load()?.settings.data_dir);
    if args.path {
        say!("{}", path.display());
        return Ok(ExitCode::SUCCESS);
    }
    match kept(&path)? {
        Some(found) => say!("{}", found.text),
        None => {
            return Err(Failure::other(format!(
                "there is no token at {} yet: `tenure run` with the same data directory makes it at its first start",
                path.display()
            )));
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_others_may_use_is_no_place_for_a_secret() {
        for fine in [0o100_600, 0o100_400, 0o100_700] {
            assert_eq!(exposed(fine, 7, 7), None, "{fine:o}");
        }
        for bad in [0o100_644, 0o100_640, 0o100_604, 0o100_620, 0o100_601, 0o100_777] {
            let why = exposed(bad, 7, 7).unwrap();
            assert!(why.contains(&format!("{:04o}", bad & 0o777)) && why.contains("chmod 600"), "{why}");
        }
        for fine in [0o100_600, 0o100_640, 0o100_440] {
            assert_eq!(exposed(fine, 0, 7), None, "the administrator's: {fine:o}");
        }
        for bad in [0o100_660, 0o100_644, 0o100_444, 0o100_650] {
            assert!(exposed(bad, 0, 7).is_some(), "the administrator's: {bad:o}");
        }
        assert!(exposed(0o100_600, 8, 7).unwrap().contains('8'));
        assert!(exposed(0o100_600, 8, 0).is_some(), "the administrator takes no secret of somebody else's");
    }

    #[test]
    fn it_is_made_once_however_many_make_it_and_nobody_else_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(folder.path());
        assert!(kept(&path).unwrap().is_none());
        let makers: Vec<_> = (0..8)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || {
                    make(&path).unwrap();
                    kept(&path).unwrap().unwrap().text
                })
            })
            .collect();
        let mut seen: Vec<String> = makers.into_iter().map(|maker| maker.join().unwrap()).collect();
        seen.dedup();
        assert_eq!(seen.len(), 1, "all of them have the same");
        assert_eq!(seen[0].len(), 64, "256 bits");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
    }
}
