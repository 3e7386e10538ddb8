//! The database file: the checks before it is touched, and how it is created.

use crate::OpenError;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use rustix::fs::{Access, FileType, Mode};
use rustix::io::Errno;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// "TENU": marks the file as ours in SQLite's header.
const APPLICATION_ID: u32 = 0x5445_4E55;

/// The schema version this code reads and writes.
const SCHEMA_VERSION: u32 = 1;

/// How long opening waits for others that create or open the file at the same time. No lease is running yet, so this is
/// longer than any request may take.
const OPEN_PATIENCE: Duration = Duration::from_secs(5);

/// How long to wait before trying again to switch to write-ahead logging.
const SWITCH_PAUSE: Duration = Duration::from_millis(5);

/// File systems whose locks and shared memory do not work between machines. FUSE is among them because sshfs, rclone and
/// bucket mounts all look like it; a shared mount is the very mistake this check exists for.
const NETWORK_FILE_SYSTEMS: [(u64, &str); 14] = [
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "kAFS"),
    (0x7375_7245, "Coda"),
    (0x564C, "NCP"),
    (0x00C3_6400, "Ceph"),
    (0x0BD0_0BD0, "Lustre"),
    (0x0102_1997, "9P"),
    (0x4750_4653, "GPFS"),
    (0x1910_1999, "OrangeFS"),
    (0x6573_5546, "FUSE"),
];

/// The file that a path led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    fn of(path: &Path) -> std::io::Result<Identity> {
        let metadata = fs::metadata(path)?;
        Ok(Identity { device: metadata.dev(), inode: metadata.ino() })
    }

    /// Whether the path still leads to this file.
    pub(super) fn still_at(self, path: &Path) -> Result<(), String> {
        match Identity::of(path) {
            Ok(now) if now == self => Ok(()),
            Ok(_) => {
                Err("the database file was replaced while it was open; restart to use the new one".to_owned())
            }
            Err(error) => Err(format!("the database file is gone: {error}")),
        }
    }
}

/// Opens or creates the database. `busy_timeout` applies to the requests that follow.
pub(super) fn open(path: &Path, busy_timeout: Duration) -> Result<(Connection, Identity), OpenError> {
    check_directory(path)?;
    check_owners(path)?;
    let fresh = check_file(path)?;
    if fresh {
        make_private(path)?;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        // Links were followed before: one that appears in between is somebody else's.
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let wrong = |error: rusqlite::Error| explain(path, &error);
    let mut connection = Connection::open_with_flags(real(path), flags).map_err(wrong)?;
    connection.busy_timeout(OPEN_PATIENCE).map_err(wrong)?;
    if fresh {
        create(&mut connection).map_err(wrong)?;
    }
    // Checked again inside the database: another process may have created or changed the file since the header was read.
    check_marks(path, marks(&connection).map_err(wrong)?)?;
    let mode = write_ahead(&connection).map_err(wrong)?;
    if !mode.eq_ignore_ascii_case("wal") {
        let reason = format!(
            "write-ahead logging is not possible here (journal mode {mode}); use a local file system"
        );
        return Err(refused(path, reason));
    }
    // FULL, not NORMAL: after a power loss, NORMAL may roll back the last commits, and with them an epoch.
    connection.pragma_update(None, "synchronous", "FULL").map_err(wrong)?;
    // By now they are all there; somebody may have laid one there in the meantime.
    check_owners(path)?;
    let identity =
        Identity::of(path).map_err(|error| refused(path, format!("cannot be looked at: {error}")))?;
    connection.busy_timeout(busy_timeout).map_err(wrong)?;
    Ok((connection, identity))
}

/// Creates the file for its owner alone, unless it exists; SQLite gives its companions the same mode.
///
/// The file is created without opening it, for the reason that [`check_file`] gives.
fn make_private(path: &Path) -> Result<(), OpenError> {
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::mknodat(rustix::fs::CWD, path, FileType::RegularFile, mode, 0) {
        // Another process was faster.
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => {
            Err(refused(path, format!("cannot be created ({error}); its directory must be writable")))
        }
    }
}

/// Where a path leads.
fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
}

/// The database, and what SQLite keeps beside it; a journal only while the file is new.
fn files(path: &Path) -> [PathBuf; 4] {
    ["", "-wal", "-shm", "-journal"].map(|end| {
        let mut name = real(path).into_os_string();
        name.push(end);
        PathBuf::from(name)
    })
}

/// What somebody can do who can write the database.
const HARM: &str = "take the seat and submit jobs, commands included";

/// Refuses what another user owns, except root: the database, its companions, and a link that leads to it.
fn check_owners(path: &Path) -> Result<(), OpenError> {
    for file in [path.to_path_buf()].iter().chain(&files(path)) {
        let owner = fs::symlink_metadata(file).ok().and_then(|found| foreign(found.uid()));
        if let Some(owner) = owner {
            let reason = format!(
                "{} belongs to the user with uid {owner}, who can {HARM}: run this as that user, or use a file of your own",
                file.display()
            );
            return Err(refused(path, reason));
        }
    }
    Ok(())
}

/// A user who is neither this one nor root.
fn foreign(owner: u32) -> Option<u32> {
    (owner != 0 && owner != rustix::process::geteuid().as_raw()).then_some(owner)
}

/// What exposes the database to other users, if anything: a sentence with the remedy.
pub(super) fn exposed(path: &Path) -> Option<String> {
    for file in files(path) {
        let mode = fs::metadata(&file).map_or(0, |found| found.mode() & 0o7777);
        let harm = match mode & 0o077 {
            0 => continue,
            loose if loose & 0o022 != 0 => format!("write it, and so {HARM}"),
            // Who may only read it can take SQLite's locks all the same.
            _ => "read payloads, outputs and webhooks in it, and keep every node from leading".to_owned(),
        };
        let file = file.display();
        return Some(format!("{file} has mode {mode:04o}: other users can {harm}; run chmod 600 {file}"));
    }
    let real = real(path);
    let folder = real.parent()?;
    let found = fs::metadata(folder).ok()?;
    let (folder, mode) = (folder.display(), found.mode() & 0o7777);
    let harm = format!("replace the database {}, and so {HARM}", real.display());
    if let Some(owner) = foreign(found.uid()) {
        return Some(format!("{folder} belongs to the user with uid {owner}, who can {harm}"));
    }
    // In a sticky directory like /tmp, nobody can replace somebody else's file.
    let is_open = mode & 0o022 != 0 && mode & 0o1000 == 0;
    is_open.then(|| format!("{folder} has mode {mode:04o}: other users can {harm}; run chmod go-w {folder}"))
}

/// Switches to write-ahead logging and returns the mode in force. SQLite does not wait for others here, whatever its busy
/// timeout, so this function does the waiting.
fn write_ahead(connection: &Connection) -> rusqlite::Result<String> {
    let give_up = Instant::now() + OPEN_PATIENCE;
    loop {
        match connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)) {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && Instant::now() < give_up =>
            {
                std::thread::sleep(SWITCH_PAUSE);
            }
            answer => return answer,
        }
    }
}

/// Creates tables, sequence and marks in one transaction, while the journal mode is still the default: that way the main
/// file is ours from its first byte, and nobody ever sees it half made.
fn create(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Exclusive)?;
    let tables: i64 = transaction.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    if tables > 0 {
        // Another process was faster.
        return Ok(());
    }
    transaction.execute_batch(
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
         INSERT INTO meta (name, value) VALUES ('sequence', 0);
         CREATE TABLE object (
             key TEXT PRIMARY KEY, body BLOB NOT NULL, version INTEGER NOT NULL,
             modified_ms INTEGER NOT NULL, boot TEXT NOT NULL);",
    )?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.commit()
}

fn pragma(connection: &Connection, name: &str) -> Result<u32, rusqlite::Error> {
    // SQLite returns both as signed numbers; a foreign mark may be negative.
    connection
        .pragma_query_value(None, name, |row| row.get::<_, i32>(0))
        .map(|mark| u32::from_ne_bytes(mark.to_ne_bytes()))
}

/// Whose file it is, and of which version.
struct Marks {
    application_id: u32,
    version: u32,
}

fn marks(connection: &Connection) -> rusqlite::Result<Marks> {
    let application_id = pragma(connection, "application_id")?;
    Ok(Marks { application_id, version: pragma(connection, "user_version")? })
}

fn check_directory(path: &Path) -> Result<(), OpenError> {
    if path.is_dir() {
        return Err(refused(path, "is a directory; name a file in it"));
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match fs::metadata(parent) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => return Err(refused(path, format!("{} is not a directory", parent.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(refused(
                path,
                format!("the directory {} does not exist; create it first", parent.display()),
            ));
        }
        Err(error) => return Err(refused(path, format!("{}: {error}", parent.display()))),
    }
    // The file itself may be a link or a mount of its own.
    let place = if path.exists() { path } else { parent };
    let system =
        rustix::fs::statfs(place).map_err(|error| refused(path, format!("statfs failed: {error}")))?;
    let magic = u64::from_ne_bytes((system.f_type as i64).to_ne_bytes()) & 0xFFFF_FFFF;
    match NETWORK_FILE_SYSTEMS.iter().find(|(known, _)| *known == magic) {
        None => Ok(()),
        Some((_, name)) => Err(refused(
            path,
            format!(
                "lies on a {name} file system, where locks do not hold between machines; \
                 use a local disk, or a bucket to coordinate several machines"
            ),
        )),
    }
}

/// Checks an existing file without changing anything, so that a foreign file keeps every byte. Returns whether the tables
/// still have to be created.
///
/// We never open the file ourselves: POSIX drops all locks of a process on a file when the process closes any descriptor of
/// it, so a check with `File::open` would strip another connection of this process of its locks. SQLite's own file layer
/// handles this.
fn check_file(path: &Path) -> Result<bool, OpenError> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return match fs::read_link(path) {
                Ok(target) => Err(refused(
                    path,
                    format!(
                        "is a symbolic link to {}, where there is no file: whoever made the link chose that place; \
                         remove it, or name the file itself",
                        target.display()
                    ),
                )),
                Err(_) => Ok(true),
            };
        }
        Err(error) => return Err(refused(path, format!("cannot be read by this user: {error}"))),
    };
    if !metadata.is_file() {
        return Err(refused(path, "is not a regular file"));
    }
    if metadata.permissions().readonly() {
        // Root could write it anyway; but whoever removed the write permission meant it.
        return Err(refused(path, "is read-only; restore the write permission (chmod u+w)"));
    }
    if let Err(error) = rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK) {
        return Err(refused(path, format!("cannot be read and written by this user: {error}")));
    }
    if metadata.len() == 0 {
        return Ok(true);
    }
    // Immutable: no lock, no journal, no shared memory, just a look at the main file.
    let escaped = escaped(path)?;
    let marks = match read_marks(&escaped, "immutable=1") {
        // Without a lock, a file that another process is creating right now looks damaged. With one it is whole, or it is
        // really damaged. A reader does not change the main file either.
        Err(error) if is_damaged(&error) => read_marks(&escaped, "mode=ro"),
        marks => marks,
    };
    check_marks(path, marks.map_err(|error| explain(path, &error))?)?;
    Ok(false)
}

fn is_damaged(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// The marks of an existing file, opened in this way.
fn read_marks(path: &str, way: &str) -> rusqlite::Result<Marks> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(format!("file:{path}?{way}"), flags)?;
    connection.busy_timeout(OPEN_PATIENCE)?;
    marks(&connection)
}

/// The path, escaped for a SQLite URI.
fn escaped(path: &Path) -> Result<String, OpenError> {
    let text = path.to_str().ok_or_else(|| refused(path, "the path is not UTF-8"))?;
    Ok(text.replace('%', "%25").replace('?', "%3f").replace('#', "%23"))
}

fn check_marks(path: &Path, Marks { application_id, version }: Marks) -> Result<(), OpenError> {
    if application_id != APPLICATION_ID {
        let reason = format!(
            "belongs to another application (application_id {application_id:#x}, not {APPLICATION_ID:#x}); \
             it was left untouched"
        );
        return Err(refused(path, reason));
    }
    if version != SCHEMA_VERSION {
        let advice = if version > SCHEMA_VERSION { "upgrade this program" } else { "it is damaged" };
        let reason = format!(
            "has schema version {version}, and this program knows {SCHEMA_VERSION}: {advice}; left untouched"
        );
        return Err(refused(path, reason));
    }
    Ok(())
}

fn refused(path: &Path, reason: impl Into<String>) -> OpenError {
    OpenError::File { path: path.to_path_buf(), reason: reason.into() }
}

fn explain(path: &Path, error: &rusqlite::Error) -> OpenError {
    let code = error.sqlite_error_code();
    if matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)) {
        return OpenError::Busy { path: path.to_path_buf(), reason: error.to_string() };
    }
    if code == Some(ErrorCode::NotADatabase) {
        return refused(path, "is not an SQLite database; it was left untouched");
    }
    if matches!(code, Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen)) {
        let reason = format!("cannot be written ({error}); the file and its directory must be writable");
        return refused(path, reason);
    }
    refused(path, error.to_string())
}

pub(super) fn boot_id() -> Result<Arc<str>, String> {
    let file = "/proc/sys/kernel/random/boot_id";
    let text = fs::read_to_string(file).map_err(|error| format!("{file} cannot be read: {error}"))?;
    Ok(Arc::from(text.trim()))
}

/// Milliseconds since boot, including time suspended.
pub(super) fn boot_ms() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec.saturating_mul(1_000).saturating_add(now.tv_nsec / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_other_users_can_get_at_is_told_with_the_remedy() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let (database, log) = (folder.path().join("t.db"), folder.path().join("t.db-wal"));
        fs::write(&database, "")?;
        fs::write(&log, "")?;
        let set = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        let told = |file, log_mode, folder_mode| -> std::io::Result<Option<String>> {
            set(&database, file)?;
            set(&log, log_mode)?;
            set(folder.path(), folder_mode)?;
            Ok(exposed(&database))
        };
        for folder_mode in [0o700, 0o755, 0o1777] {
            assert_eq!(told(0o600, 0o600, folder_mode)?, None, "{folder_mode:o}");
        }
        let says = |told: Option<String>, parts: [&str; 2]| {
            told.is_some_and(|told| parts.iter().all(|part| told.contains(part)))
        };
        assert!(says(told(0o644, 0o600, 0o700)?, ["t.db has mode 0644", "can read payloads"]));
        assert!(says(
            told(0o660, 0o600, 0o700)?,
            ["mode 0660: other users can write it, and so take the seat", "chmod 600"]
        ));
        assert!(says(told(0o600, 0o604, 0o700)?, ["mode 0604", "t.db-wal"]));
        assert!(says(told(0o600, 0o602, 0o700)?, ["mode 0602", "commands included"]));
        assert!(says(told(0o600, 0o600, 0o777)?, ["mode 0777", "chmod go-w"]));
        assert!(says(told(0o600, 0o600, 0o777)?, ["replace the database", "take the seat"]));
        Ok(())
    }
}
