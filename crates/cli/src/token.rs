//! The tokens of HTTP: where they are kept, how the first one is made, and `tenure token`.

use crate::args::TokenArgs;
use crate::exit::Failure;
use crate::out::say;
use crate::secret::{Found, Name};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tenure::settings::Resolved;

/// In the data directory.
const FILE: &str = "http-token";

/// The token that changes need.
pub(crate) const CHANGE: Name = Name { flag: "--http-token-file", variable: "TENURE_HTTP_TOKEN" };

/// The token that may only read.
pub(crate) const READ: Name = Name { flag: "--http-read-token-file", variable: "TENURE_HTTP_READ_TOKEN" };

/// Where this user's token is kept if nobody says otherwise.
pub(crate) fn path(data_dir: &Path) -> PathBuf {
    data_dir.join(FILE)
}

/// The token that is kept there, if there is one.
pub(crate) fn kept(path: &Path) -> Result<Option<Found>, Failure> {
    match std::fs::symlink_metadata(path) {
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => Ok(None),
        _ => Found::in_file(path.display().to_string(), path).map(Some),
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
    use std::os::unix::fs::MetadataExt;

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
