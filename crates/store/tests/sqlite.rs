//! The embedded store: files it must refuse, several processes, clocks and crashes.

use crate::common::{assert_passed, found, won};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tenure_store::{
    BODY_MAX_BYTES, Condition, List, OpenError, Read, Remove, SqliteStore, Store, StoreTime, TroubleKind,
    Version, Write,
};

const TIMEOUT: Duration = Duration::from_secs(20);

async fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, TIMEOUT).await.unwrap()
}

async fn refused(path: &Path, rule: &str) {
    let error = SqliteStore::open(path, TIMEOUT).await.expect_err(rule);
    assert!(matches!(error, OpenError::File { .. }) && error.is_usage(), "{error:?}");
    assert!(error.to_string().contains(rule), "{error}");
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
}

#[tokio::test]
async fn files_that_cannot_be_used_are_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    refused(directory.path(), "is a directory").await;
    refused(&at("no/such/t.db"), "does not exist; create it first").await;
    std::fs::write(at("file"), "x").unwrap();
    refused(&at("file/t.db"), "is not a directory").await;
    refused(Path::new("/dev/null"), "is not a regular file").await;

    std::fs::write(at("text.db"), "something of mine, longer than a header would be".repeat(9)).unwrap();
    let before = std::fs::read(at("text.db")).unwrap();
    refused(&at("text.db"), "is not an SQLite database").await;
    assert_eq!(std::fs::read(at("text.db")).unwrap(), before);

    drop(open(&at("read-only.db")).await);
    let mut permissions = std::fs::metadata(at("read-only.db")).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(at("read-only.db"), permissions).unwrap();
    let error = SqliteStore::open(at("read-only.db"), TIMEOUT).await.unwrap_err().to_string();
    assert!(error.contains("read-only") || error.contains("cannot be read and written"), "{error}");
    assert!(!at("no").exists(), "nothing is created on the way");
}

/// Whoever owns the file, or what SQLite keeps beside it, decides who leads and what runs.
#[tokio::test]
async fn what_belongs_to_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("NOT RUN: only root can give a file away");
    }
    let give = |path: &Path, owner| std::os::unix::fs::chown(path, Some(owner), Some(owner)).unwrap();
    for (end, exists) in [("", true), ("-wal", true), ("-shm", true), ("-journal", true), ("-wal", false)] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.db");
        let planted = directory.path().join(format!("t.db{end}"));
        if exists {
            drop(open(&path).await);
        }
        if !planted.exists() {
            std::fs::write(&planted, "").unwrap();
        }
        give(&planted, 12_345);
        let before = std::fs::metadata(&planted).unwrap().len();
        let error = SqliteStore::open(&path, TIMEOUT).await.expect_err(end).to_string();
        for words in [&format!("t.db{end}"), "uid 12345", "take the seat", "commands"] {
            assert!(error.contains(words), "{words:?} is not in: {error}");
        }
        assert_eq!(std::fs::metadata(&planted).unwrap().len(), before, "it was not touched");
        // By way of a link, too.
        let link = directory.path().join("link.db");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(SqliteStore::open(&link, TIMEOUT).await.is_err(), "{end}");
    }
}

#[tokio::test]
async fn a_link_to_nothing_is_refused_and_one_to_a_database_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (link, target) = (directory.path().join("t.db"), directory.path().join("elsewhere.db"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    refused(&link, "is a symbolic link to").await;
    refused(&link, "elsewhere.db").await;
    assert!(!target.exists(), "nothing is made where the link leads");
    drop(open(&target).await);
    won(&open(&link).await, "k", "1", Condition::Absent).await;
    assert_eq!(&found(&open(&target).await, "k").await.body[..], b"1");
}

const MODES_HELPER: &str = "TENURE_STORE_MODES_HELPER";

/// Not a test by itself: makes a database as a process with the umask of the test below.
#[tokio::test]
async fn modes_helper() {
    let Ok(path) = std::env::var(MODES_HELPER) else { return };
    let path = Path::new(&path);
    let store = open(path).await;
    won(&store, "k", "1", Condition::Absent).await;
    for end in ["", "-wal", "-shm"] {
        let file = format!("{}{end}", path.display());
        let mode = std::fs::metadata(&file).unwrap().mode() & 0o7777;
        assert_eq!(mode, 0o600, "{file}: {mode:o}");
    }
}

#[test]
fn a_new_database_is_for_its_owner_alone_under_any_umask() {
    let directory = tempfile::tempdir().unwrap();
    for umask in ["000", "022", "077"] {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("umask {umask}; exec \"$0\" --exact sqlite::modes_helper --nocapture")]);
        command.arg(std::env::current_exe().unwrap());
        command.env(MODES_HELPER, directory.path().join(format!("{umask}.db")));
        let output = command.output().unwrap();
        assert_passed(&output);
    }
}

#[tokio::test]
async fn the_mode_of_a_database_that_exists_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    drop(open(&path).await);
    let loose = std::os::unix::fs::PermissionsExt::from_mode(0o640);
    std::fs::set_permissions(&path, loose).unwrap();
    won(&open(&path).await, "k", "1", Condition::Absent).await;
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
}

#[tokio::test]
async fn a_database_of_another_application_is_left_untouched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("theirs.db");
    for application_id in [0, 77, -5] {
        let _ = std::fs::remove_file(&path);
        let theirs = Connection::open(&path).unwrap();
        theirs.pragma_update(None, "application_id", application_id).unwrap();
        theirs.execute_batch("CREATE TABLE object (mine TEXT)").unwrap();
        drop(theirs);
        let before = std::fs::read(&path).unwrap();
        refused(&path, "belongs to another application").await;
        assert_eq!(std::fs::read(&path).unwrap(), before);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "no journal beside it");
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    drop(open(&path).await);
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 2).unwrap();
    refused(&path, "upgrade this program").await;
}

#[tokio::test]
async fn an_empty_file_becomes_a_store_and_keeps_what_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    std::fs::write(&path, "").unwrap();
    let version = won(&open(&path).await, "k", "body", Condition::Absent).await;
    let object = found(&open(&path).await, "k").await;
    assert_eq!((object.version, &object.body[..]), (version, &b"body"[..]));
    let mode: String =
        Connection::open(&path).unwrap().query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
}

#[tokio::test]
async fn versions_never_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..5 {
        let store = open(&path).await;
        assert!(seen.insert(won(&store, "k", "x", Condition::Absent).await), "round {round}");
        assert_eq!(store.put("k", "y".into(), Condition::Absent).await, Write::Lost);
        assert_eq!(
            store.put("k", "y".into(), Condition::Matches(Version::new("nonsense"))).await,
            Write::Lost
        );
        assert_eq!(store.remove("k").await, Remove::Done);
    }
}

#[tokio::test]
async fn store_times_are_boot_times_and_another_boot_is_long_ago() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let store = open(&path).await;
    won(&store, "a/1", "x", Condition::Any).await;
    won(&store, "a/2", "x", Condition::Any).await;
    let (first, second) = (found(&store, "a/1").await.modified, found(&store, "a/2").await.modified);
    assert!(first <= second && first > StoreTime(1 << 40));
    Connection::open(&path).unwrap().execute("UPDATE object SET boot = 'x' WHERE key = 'a/1'", []).unwrap();
    assert_eq!(found(&store, "a/1").await.modified, StoreTime(0));
    let List::Entries { entries, more: false } = store.list("a/", 10).await else { panic!("no list") };
    let times: Vec<_> = entries.iter().map(|entry| entry.modified).collect();
    assert_eq!(times, [StoreTime(0), second]);
}

#[tokio::test]
async fn a_locked_database_is_busy_and_never_a_hang() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let store = SqliteStore::open(&path, Duration::from_millis(200)).await.unwrap();
    let version = won(&store, "k", "x", Condition::Absent).await;
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    match store.put("k", "y".into(), Condition::Matches(version.clone())).await {
        Write::Unavailable(trouble) => assert_eq!(trouble.kind, TroubleKind::Busy, "{trouble}"),
        answer => panic!("{answer:?}"),
    }
    assert!(matches!(store.remove("k").await, Remove::Unavailable(_)));
    assert_eq!(store.get("k", Some(&version)).await, Read::Unchanged, "reading goes on");
    other.execute_batch("ROLLBACK").unwrap();
    won(&store, "k", "y", Condition::Matches(version)).await;
}

/// What has not begun when its time is over does not happen later either: it is not in doubt. The one thread for such
/// work is taken here, as on a machine that is overloaded.
#[test]
fn what_is_given_up_before_it_began_never_happens() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let version = won(&open(&path).await, "k", "x", Condition::Absent).await;
        let store = SqliteStore::open(&path, Duration::from_millis(50)).await.unwrap();
        let (release, taken) = std::sync::mpsc::channel::<()>();
        let thread = tokio::task::spawn_blocking(move || taken.recv().unwrap_or(()));
        let given_up = store.put("k", "late".into(), Condition::Matches(version.clone())).await;
        assert!(matches!(given_up, Write::Unavailable(_)), "{given_up:?}");
        drop(release);
        thread.await.unwrap();
        // The one given up comes before this one, on the same thread.
        assert_eq!(open(&path).await.get("k", Some(&version)).await, Read::Unchanged);
    });
}

/// Nodes that start together make the file together; with the shortest of leases none of them may stumble over that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_that_open_a_new_file_at_once_all_get_it() {
    for _ in 0..20 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.db");
        let mut opening = tokio::task::JoinSet::new();
        for _ in 0..16 {
            let path = path.clone();
            opening.spawn(async move { SqliteStore::open(&path, Duration::from_millis(10)).await.map(drop) });
        }
        for opened in opening.join_all().await {
            opened.unwrap();
        }
    }
}

/// A file that another process is creating is half written for a moment, and looks damaged to whoever takes no lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_being_written_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let (whole, path) = (directory.path().join("whole.db"), directory.path().join("t.db"));
    drop(open(&whole).await);
    let mut bytes = std::fs::read(&whole).unwrap();
    // The first transaction is written before write-ahead logging is on.
    bytes[18..20].copy_from_slice(&[1, 1]);
    std::fs::write(&whole, &bytes).unwrap();
    std::fs::write(&path, &bytes).unwrap();
    let writer = rusqlite::Connection::open(&path).unwrap();
    writer.execute_batch("BEGIN EXCLUSIVE").unwrap();
    // By other processes: closing the file in this one would drop SQLite's lock.
    let run = |program: &str, words: &[&std::ffi::OsStr]| {
        assert!(std::process::Command::new(program).args(words).status().unwrap().success());
    };
    run("truncate", &["-s".as_ref(), "4096".as_ref(), path.as_os_str()]);
    let given = path.clone();
    let opening =
        tokio::spawn(async move { SqliteStore::open(&given, Duration::from_millis(10)).await.map(drop) });
    // Long enough for a look at the half of it. On a slower machine the first look finds it whole, which is as well.
    tokio::time::sleep(Duration::from_millis(200)).await;
    run("cp", &[whole.as_os_str(), path.as_os_str()]);
    writer.execute_batch("ROLLBACK").unwrap();
    opening.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_file_that_is_replaced_or_gone_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let (path, aside) = (directory.path().join("t.db"), directory.path().join("aside.db"));
    let store = open(&path).await;
    won(&store, "k", "x", Condition::Absent).await;
    std::fs::rename(&path, &aside).unwrap();
    for replaced in [false, true] {
        if replaced {
            std::fs::write(&path, "").unwrap();
        }
        let Write::Denied(trouble) = store.put("k", "y".into(), Condition::Any).await else {
            panic!("written")
        };
        assert_eq!(trouble.kind, TroubleKind::Missing, "{trouble}");
        assert!(matches!(store.get("k", None).await, Read::Denied(_)));
        assert!(matches!(store.list("", 1).await, List::Denied(_)));
    }
}

/// POSIX drops a process's locks on a file when it closes any descriptor of it. Without its lock the first connection
/// would look gone to other processes, and the last of them would take the write-ahead log away from under it.
#[tokio::test]
async fn opening_a_file_again_keeps_the_locks_of_the_first_connection() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let store = open(&path).await;
    won(&store, "k", "x", Condition::Absent).await;
    let inode = format!(":{} ", std::fs::metadata(&path).unwrap().ino());
    let locks =
        || std::fs::read_to_string("/proc/locks").unwrap().lines().filter(|l| l.contains(&inode)).count();
    let before = locks();
    assert!(before > 0, "an open connection holds a lock");
    drop(open(&path).await);
    assert_eq!(locks(), before);
}

#[tokio::test]
async fn bodies_are_bounded_both_ways() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let store = open(&path).await;
    let Write::Denied(trouble) = store.put("k", vec![0; BODY_MAX_BYTES + 1].into(), Condition::Any).await
    else {
        panic!("written")
    };
    assert_eq!(trouble.kind, TroubleKind::TooLarge);
    won(&store, "k", "x", Condition::Any).await;
    let other = Connection::open(&path).unwrap();
    other.execute("UPDATE object SET body = zeroblob(?1)", [BODY_MAX_BYTES as i64 + 1]).unwrap();
    let Read::Denied(trouble) = store.get("k", None).await else { panic!("read") };
    assert_eq!(trouble.kind, TroubleKind::TooLarge);
}

#[tokio::test]
async fn a_list_stays_below_its_prefix() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("t.db")).await;
    for key in ["a", "a/", "a/%", "a/b", "a/é", "a0", "b/a"] {
        won(&store, key, "x", Condition::Any).await;
    }
    let List::Entries { entries, more } = store.list("a/", 3).await else { panic!("no list") };
    let keys: Vec<_> = entries.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!((keys, more), (vec!["a/", "a/%", "a/b"], true));
    let List::Entries { entries, more } = store.list("", 100).await else { panic!("no list") };
    assert_eq!((entries.len(), more), (7, false));
}

// ---- several processes: the test binary starts itself, with this variable set ----

const HELPER: &str = "TENURE_STORE_TEST_HELPER";
const PROCESSES: usize = 4;
const INCREMENTS: usize = 40;
const RACES: usize = 40;

/// A process that does not outlive its test.
struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_helper(path: &Path, name: &str) -> Helper {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sqlite::process_helper", "--nocapture"])
        .env(HELPER, format!("{name}={}", path.display()))
        .stdout(Stdio::null())
        .spawn();
    Helper(child.unwrap())
}

/// Not a test by itself: what each process of the tests below does.
#[tokio::test]
async fn process_helper() {
    let Ok(task) = std::env::var(HELPER) else { return };
    let (name, path) = task.split_once('=').unwrap();
    // All at once also at the opening: the first of them makes the tables.
    let store = open(Path::new(path)).await;
    for race in 0..RACES {
        put_certainly(&store, &format!("race/{race}"), name, Condition::Absent).await;
    }
    // Those that are to be killed never end by themselves.
    let increments = if name.starts_with("endless") { usize::MAX } else { INCREMENTS };
    for n in 0..increments {
        increment(&store, &format!("{name}.{n}")).await;
    }
}

/// A put that is tried again while the database is busy.
async fn put_certainly(store: &SqliteStore, key: &str, body: &str, condition: Condition) -> bool {
    loop {
        match store.put(key, body.to_owned().into(), condition.clone()).await {
            Write::Won(_) => return true,
            Write::Lost => return false,
            Write::Unavailable(trouble) if trouble.kind == TroubleKind::Busy => {}
            other => panic!("{other:?}"),
        }
    }
}

async fn increment(store: &SqliteStore, name: &str) {
    put_certainly(store, "counter", "start", Condition::Absent).await;
    loop {
        let object = found(store, "counter").await;
        let body = format!("{}\n{name}", String::from_utf8_lossy(&object.body));
        if put_certainly(store, "counter", &body, Condition::Matches(object.version)).await {
            return;
        }
    }
}

async fn counted(store: &SqliteStore) -> BTreeMap<String, usize> {
    let text = String::from_utf8(found(store, "counter").await.body.to_vec()).unwrap();
    let mut counts = BTreeMap::new();
    for line in text.lines().skip(1) {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn several_processes_lose_no_update() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let helpers: Vec<Helper> = (0..PROCESSES).map(|n| start_helper(&path, &format!("p{n}"))).collect();
    for mut helper in helpers {
        assert!(helper.0.wait().unwrap().success());
    }
    let store = open(&path).await;
    let counts = counted(&store).await;
    assert_eq!(counts.len(), PROCESSES * INCREMENTS, "updates were lost");
    assert!(counts.values().all(|n| *n == 1), "updates were applied twice");
    let List::Entries { entries, .. } = store.list("race/", 1_000).await else { panic!("no list") };
    assert_eq!(entries.len(), RACES);
}

#[tokio::test]
async fn a_killed_process_leaves_a_whole_database_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.db");
    let store = open(&path).await;
    for round in 0..3 {
        let name = format!("endless{round}");
        let mut helper = start_helper(&path, &name);
        // Wait until it writes, then stop it in the middle.
        while !matches!(store.get("counter", None).await, Read::Found(object)
            if String::from_utf8_lossy(&object.body).contains(&name))
        {
            assert!(helper.0.try_wait().unwrap().is_none(), "the helper ended by itself");
        }
        helper.0.kill().unwrap();
        assert!(!helper.0.wait().unwrap().success());
        increment(&store, &format!("after{round}")).await;
    }
    assert!(counted(&store).await.values().all(|n| *n == 1));
    let check: String =
        Connection::open(&path).unwrap().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}
