//! The embedded store: one SQLite file shared by several processes on one machine.
//!
//! Not promised: anything across machines. A file on a network file system is refused, because the locks that SQLite relies
//! on do not work there.

mod file;

use crate::memory::{TIME_ORIGIN_MS, refuse_too_large};
use crate::{
    BODY_MAX_BYTES, Condition, Entry, List, Object, OpenError, Read, Remove, Store, StoreTime, Trouble,
    TroubleKind, Version, Write,
};
use async_trait::async_trait;
use bytes::Bytes;
use file::{Identity, boot_id, boot_ms};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, TransactionBehavior, params};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use tokio::time::{Instant, timeout, timeout_at};

/// A store in a SQLite file. It has one connection; its requests run one after the other on a blocking thread.
///
/// Store times are milliseconds of CLOCK_BOOTTIME, which runs while a machine is suspended and cannot be set. Anything
/// written before the last boot has the time 0.
pub struct SqliteStore {
    path: PathBuf,
    /// The file that was opened. If it were deleted or replaced under us, two processes could arbitrate on two files, so
    /// every request checks it.
    identity: Identity,
    boot: Arc<str>,
    request_timeout: Duration,
    connection: Arc<Mutex<Connection>>,
    lane: Lane,
}

/// Which of a process's two connections goes first. Writers of a file get its lock in no particular order: one that writes
/// object after object could starve another, and a renewal must not wait for more than one of them.
#[derive(Default)]
enum Lane {
    #[default]
    Only,
    /// Counts its requests in flight.
    First(watch::Sender<usize>),
    /// Starts nothing while the first lane has a request in flight.
    Second(watch::Receiver<usize>),
}

/// A request of the first lane that is in flight.
struct Urgent<'a>(&'a watch::Sender<usize>);

impl<'a> Urgent<'a> {
    fn begin(count: &'a watch::Sender<usize>) -> Urgent<'a> {
        count.send_modify(|count| *count += 1);
        Urgent(count)
    }
}

impl Drop for Urgent<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl SqliteStore {
    /// Opens the file twice. The second store waits while the first has a request in flight.
    pub(crate) async fn open_two(
        path: &Path,
        request_timeout: Duration,
    ) -> Result<(SqliteStore, SqliteStore), OpenError> {
        let (sender, receiver) = watch::channel(0);
        let first = SqliteStore::open(path, request_timeout).await?;
        let second = SqliteStore::connect(path, request_timeout).await?;
        let first = SqliteStore { lane: Lane::First(sender), ..first };
        Ok((first, SqliteStore { lane: Lane::Second(receiver), ..second }))
    }

    /// Opens the file, or creates it for this user alone in an existing directory. A file that other users can open is used
    /// with a warning. A file that belongs to something else is refused untouched. A database held by others counts as busy:
    /// after five seconds when opening, after half of `request_timeout` for a request.
    pub async fn open(path: impl AsRef<Path>, request_timeout: Duration) -> Result<SqliteStore, OpenError> {
        let store = SqliteStore::connect(path.as_ref(), request_timeout).await?;
        if let Some(warning) = file::exposed(path.as_ref()) {
            tracing::warn!("{warning}");
        }
        Ok(store)
    }

    async fn connect(path: &Path, request_timeout: Duration) -> Result<SqliteStore, OpenError> {
        let path = path.to_path_buf();
        let (opened, given) = (path.clone(), path.clone());
        let job = tokio::task::spawn_blocking(move || file::open(&given, request_timeout / 2));
        let (connection, identity) = job.await.map_err(|error| OpenError::File {
            path: path.clone(),
            reason: format!("opening it failed: {error}"),
        })??;
        let boot = boot_id().map_err(|reason| OpenError::File { path, reason })?;
        let connection = Arc::new(Mutex::new(connection));
        Ok(SqliteStore { path: opened, identity, boot, request_timeout, connection, lane: Lane::default() })
    }

    async fn turn(&self) -> OwnedMutexGuard<Connection> {
        let connection = Arc::clone(&self.connection).lock_owned().await;
        if let Lane::Second(first) = &self.lane {
            // An error means that the first lane is gone, so there is nothing to wait for.
            let _ = first.clone().wait_for(|under_way| *under_way == 0).await;
        }
        connection
    }

    /// Runs one piece of work on the connection, bounded by the request timeout.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection, &Go) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let deadline = Instant::now() + self.request_timeout;
        let _urgent = match &self.lane {
            Lane::First(count) => Some(Urgent::begin(count)),
            Lane::Only | Lane::Second(_) => None,
        };
        // Half the time is for the queue and half for the database, so that a request that gets its turn can still finish.
        let Ok(mut connection) = timeout(self.request_timeout / 2, self.turn()).await else {
            return Err(Failure::before(TroubleKind::Busy, "other requests hold the connection"));
        };
        let (path, identity, go) = (self.path.clone(), self.identity, Go::default());
        let ours = go.clone();
        let job = tokio::task::spawn_blocking(move || {
            identity.still_at(&path).map_err(|reason| Failure::before(TroubleKind::Missing, reason))?;
            work(&mut connection, &go)
        });
        match timeout_at(deadline, job).await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => Err(Failure::during(TroubleKind::Server, error)),
            // Work that has not begun by now never will. It did not happen, so nothing is in doubt.
            Err(_) if ours.take() => {
                Err(Failure::before(TroubleKind::Busy, "the database was not free in time"))
            }
            Err(_) => Err(Failure::during(TroubleKind::Timeout, "the database did not answer in time")),
        }
    }
}

/// Decides a race: the work, once it has the database to itself, against the end of its time.
#[derive(Clone, Default)]
struct Go(Arc<AtomicBool>);

impl Go {
    /// Takes the go-ahead. True for the first caller only.
    fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// For work that changes something: call it right after taking the lock, before writing.
    fn begin(&self) -> Result<(), Failure> {
        match self.take() {
            true => Ok(()),
            false => Err(Failure::before(TroubleKind::Busy, "given up before it could begin")),
        }
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.path).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn get(&self, key: &str, unless: Option<&Version>) -> Read {
        let (key, boot) = (key.to_owned(), Arc::clone(&self.boot));
        let unless = unless.cloned();
        let result = self.run(move |connection, _| select(connection, &key, unless.as_ref(), &boot)).await;
        result.unwrap_or_else(|failure| match failure.lasts() {
            true => Read::Denied(failure.trouble),
            false => Read::Unavailable(failure.trouble),
        })
    }

    async fn put(&self, key: &str, body: Bytes, condition: Condition) -> Write {
        if let Some(trouble) = refuse_too_large(key, body.len()) {
            return Write::Denied(trouble);
        }
        let (key, boot) = (key.to_owned(), Arc::clone(&self.boot));
        let result =
            self.run(move |connection, go| write(connection, go, (&key, &body), &condition, &boot)).await;
        match result {
            Ok(Some(version)) => Write::Won(Version::new(version.to_string())),
            Ok(None) => Write::Lost,
            Err(failure) if failure.maybe_done => Write::Unknown(failure.trouble),
            Err(failure) if failure.lasts() => Write::Denied(failure.trouble),
            Err(failure) => Write::Unavailable(failure.trouble),
        }
    }

    async fn remove(&self, key: &str) -> Remove {
        let key = key.to_owned();
        let result = self.run(move |connection, go| delete(connection, go, &key)).await;
        match result {
            Ok(()) => Remove::Done,
            Err(failure) if failure.maybe_done => Remove::Unknown(failure.trouble),
            Err(failure) if failure.lasts() => Remove::Denied(failure.trouble),
            Err(failure) => Remove::Unavailable(failure.trouble),
        }
    }

    async fn list(&self, prefix: &str, limit: usize) -> List {
        let (prefix, boot) = (prefix.to_owned(), Arc::clone(&self.boot));
        let result = self.run(move |connection, _| select_below(connection, &prefix, limit, &boot)).await;
        match result {
            Ok((entries, more)) => List::Entries { entries, more },
            Err(failure) if failure.lasts() => List::Denied(failure.trouble),
            Err(failure) => List::Unavailable(failure.trouble),
        }
    }

    fn now(&self) -> Option<StoreTime> {
        Some(store_time(boot_ms(), &self.boot, &self.boot))
    }

    /// Requests run one after the other; a few in the queue keep the connection busy.
    fn at_once(&self) -> usize {
        4
    }

    fn describe(&self) -> String {
        format!("sqlite:{} (processes of this machine)", self.path.display())
    }
}

struct Failure {
    trouble: Trouble,
    /// The work may have taken effect anyway.
    maybe_done: bool,
}

impl Failure {
    fn before(kind: TroubleKind, detail: impl std::fmt::Display) -> Failure {
        Failure { trouble: Trouble::new(kind, detail), maybe_done: false }
    }

    fn during(kind: TroubleKind, detail: impl std::fmt::Display) -> Failure {
        Failure { trouble: Trouble::new(kind, detail), maybe_done: true }
    }

    /// A commit that failed: only "busy" and "full" are certain to have left nothing behind.
    fn commit(error: rusqlite::Error) -> Failure {
        let sure = matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DiskFull));
        Failure { maybe_done: !sure, ..Failure::from(error) }
    }

    /// Whether it lasts until somebody changes something.
    fn lasts(&self) -> bool {
        matches!(
            self.trouble.kind,
            TroubleKind::Permission | TroubleKind::Missing | TroubleKind::Malformed | TroubleKind::TooLarge
        )
    }
}

impl From<rusqlite::Error> for Failure {
    /// For everything before the commit, when nothing has taken effect.
    fn from(error: rusqlite::Error) -> Failure {
        let code = error.sqlite_error_code();
        let kind = if matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)) {
            TroubleKind::Busy
        } else if matches!(code, Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied)) {
            TroubleKind::Permission
        } else if matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)) {
            TroubleKind::Malformed
        } else {
            TroubleKind::Server
        };
        Failure::before(kind, error)
    }
}

/// Times from another boot are on another clock; all they mean is "earlier".
fn store_time(modified_ms: i64, boot_then: &str, boot_now: &str) -> StoreTime {
    match boot_then == boot_now {
        true => StoreTime(TIME_ORIGIN_MS + u64::try_from(modified_ms).unwrap_or(0)),
        false => StoreTime(0),
    }
}

fn select(
    connection: &mut Connection,
    key: &str,
    unless: Option<&Version>,
    boot: &str,
) -> Result<Read, Failure> {
    let transaction = connection.transaction()?;
    let sql = "SELECT version, length(body), modified_ms, boot FROM object WHERE key = ?1";
    let head = |row: &Row<'_>| -> rusqlite::Result<(i64, i64, i64, String)> {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    };
    let found = transaction.prepare_cached(sql)?.query_row([key], head).optional()?;
    let Some((version, bytes, modified_ms, boot_then)) = found else {
        return Ok(Read::Absent);
    };
    let version = Version::new(version.to_string());
    if unless == Some(&version) {
        return Ok(Read::Unchanged);
    }
    if usize::try_from(bytes).map_or(true, |bytes| bytes > BODY_MAX_BYTES) {
        let detail = format!("{key} has {bytes} bytes; an object may have at most {BODY_MAX_BYTES}");
        return Err(Failure::before(TroubleKind::TooLarge, detail));
    }
    let body: Vec<u8> = transaction
        .prepare_cached("SELECT body FROM object WHERE key = ?1")?
        .query_row([key], |row| row.get(0))?;
    let modified = store_time(modified_ms, &boot_then, boot);
    Ok(Read::Found(Object { body: Bytes::from(body), version, modified }))
}

/// The compare-and-swap. It takes the lock before it checks the condition. The new version comes from one sequence for the
/// whole file, in the same transaction: it never repeats, not even for a key that was removed and created again.
fn write(
    connection: &mut Connection,
    go: &Go,
    (key, body): (&str, &[u8]),
    condition: &Condition,
    boot: &str,
) -> Result<Option<i64>, Failure> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    go.begin()?;
    let now_ms = boot_ms();
    let version: i64 = transaction
        .prepare_cached("UPDATE meta SET value = value + 1 WHERE name = 'sequence' RETURNING value")?
        .query_row([], |row| row.get(0))?;
    let changed = match condition {
        Condition::Absent => transaction
            .prepare_cached(
                "INSERT INTO object (key, body, version, modified_ms, boot) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (key) DO NOTHING",
            )?
            .execute(params![key, body, version, now_ms, boot])?,
        Condition::Matches(expected) => {
            // A version that this store did not make matches nothing.
            let expected: i64 = expected.as_str().parse().unwrap_or(-1);
            transaction
                .prepare_cached(
                    "UPDATE object SET body = ?2, version = ?3, modified_ms = ?4, boot = ?5
                     WHERE key = ?1 AND version = ?6",
                )?
                .execute(params![key, body, version, now_ms, boot, expected])?
        }
        Condition::Any => transaction
            .prepare_cached(
                "INSERT INTO object (key, body, version, modified_ms, boot) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (key) DO UPDATE SET body = excluded.body, version = excluded.version,
                     modified_ms = excluded.modified_ms, boot = excluded.boot",
            )?
            .execute(params![key, body, version, now_ms, boot])?,
    };
    if changed == 0 {
        transaction.rollback()?;
        return Ok(None);
    }
    transaction.commit().map_err(Failure::commit)?;
    Ok(Some(version))
}

fn delete(connection: &mut Connection, go: &Go, key: &str) -> Result<(), Failure> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    go.begin()?;
    transaction.prepare_cached("DELETE FROM object WHERE key = ?1")?.execute([key])?;
    transaction.commit().map_err(Failure::commit)
}

fn select_below(
    connection: &mut Connection,
    prefix: &str,
    limit: usize,
    boot: &str,
) -> Result<(Vec<Entry>, bool), Failure> {
    // One more than the limit tells whether there are more. Keys compare as bytes, and no key has the last code point right
    // after the prefix, so everything below the prefix is one range of the index.
    let sql = "SELECT key, length(body), modified_ms, boot, version FROM object
               WHERE key >= ?1 AND key < ?1 || char(0x10FFFF) ORDER BY key LIMIT ?2";
    let ask = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(params![prefix, ask], |row| {
        let boot_then: String = row.get(3)?;
        Ok(Entry {
            key: row.get(0)?,
            modified: store_time(row.get(2)?, &boot_then, boot),
            bytes: u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0),
            version: Some(Version::new(row.get::<_, i64>(4)?.to_string())),
        })
    })?;
    let mut entries = rows.collect::<Result<Vec<_>, _>>()?;
    let more = entries.len() > limit;
    entries.truncate(limit);
    Ok((entries, more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_second_lane_begins_nothing_while_the_first_is_under_way() {
        let directory = tempfile::tempdir().expect("a folder");
        let patience = Duration::from_secs(20);
        let (first, second) =
            SqliteStore::open_two(&directory.path().join("t.db"), patience).await.expect("it opens");
        let Lane::First(count) = &first.lane else { panic!("the first lane") };
        let urgent = Urgent::begin(count);
        let mut put = std::pin::pin!(second.put("bulk", Bytes::from_static(b"1"), Condition::Absent));
        assert!(timeout(Duration::from_millis(100), &mut put).await.is_err(), "it waits");
        let renewal = first.put("seat", Bytes::from_static(b"1"), Condition::Absent).await;
        assert!(matches!(renewal, Write::Won(_)), "{renewal:?}");
        drop(urgent);
        let bulk = put.await;
        assert!(matches!(bulk, Write::Won(_)), "{bulk:?}");
        assert_eq!(*count.borrow(), 0, "whatever ends is counted down");
        drop(first);
        assert!(matches!(second.get("bulk", None).await, Read::Found(_)));
    }
}
