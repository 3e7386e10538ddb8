//! A database that refuses a former leader: SQLite. PostgreSQL has a program of its own.

use rusqlite::{Connection, Error, TransactionBehavior};
use std::path::Path;
use tenure::fence::sql;

fn open(file: &Path) -> Connection {
    let database = Connection::open(file).expect("a database");
    // Whoever finds the file in use is told at once.
    database.busy_timeout(std::time::Duration::ZERO).expect("set");
    database
}

fn set_up(file: &Path, journal: &str) {
    let database = open(file);
    database.pragma_update(None, "journal_mode", journal).expect("set");
    for _ in 0..2 {
        database.execute(sql::CREATE, ()).expect("created, once");
    }
    database.execute("create table writes (epoch bigint)", ()).expect("created");
}

fn fence(database: &Connection, epoch: i64) -> Result<usize, Error> {
    database.execute(sql::FENCE, ("reports", epoch))
}

fn write(database: &Connection, epoch: i64) {
    database.execute("insert into writes values ($1)", [epoch]).expect("written");
}

/// A leader's whole transaction.
fn commit(database: &mut Connection, epoch: i64) -> Result<(), Error> {
    let transaction = database.transaction()?;
    write(&transaction, epoch);
    fence(&transaction, epoch)?;
    write(&transaction, epoch);
    transaction.commit()
}

fn writes(database: &Connection) -> Vec<i64> {
    let mut query = database.prepare("select distinct epoch from writes order by rowid").expect("a query");
    query.query_map((), |row| row.get(0)).expect("rows").map(|row| row.expect("a row")).collect()
}

fn is_busy(result: &Result<usize, Error>) -> bool {
    matches!(result, Err(Error::SqliteFailure(error, _)) if error.code == rusqlite::ErrorCode::DatabaseBusy)
}

#[test]
fn fr2_sqlite_fails_the_transaction_of_a_former_leader() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("app.db");
    set_up(&file, "delete");
    let mut database = open(&file);
    for epoch in [1, 1, 3] {
        commit(&mut database, epoch).expect("nobody newer was there");
    }
    for stale in [2, 1, 0, -1] {
        let refused = commit(&mut database, stale).expect_err("refused");
        assert!(sql::is_refused(&refused), "{refused}");
        assert_eq!(writes(&database), [1, 3], "neither what came before it nor what came after it");
    }
    commit(&mut database, 3).expect("the leader goes on");
    database.execute(sql::FENCE, ("mail", 1)).expect("another resource");
}

#[test]
fn fr2_on_sqlite_two_leaders_at_once_write_in_the_order_of_epochs() {
    for journal in ["delete", "wal"] {
        for (old_first, commits) in [(true, true), (true, false), (false, true), (false, false)] {
            let case = format!("{journal}, the old first: {old_first}, it commits: {commits}");
            let folder = tempfile::tempdir().expect("a folder");
            let file = folder.path().join("app.db");
            set_up(&file, journal);
            let (mut old, mut new) = (open(&file), open(&file));
            let (first, second) = if old_first { (&mut old, &mut new) } else { (&mut new, &mut old) };
            let (epoch, of_second) = if old_first { (2, 3) } else { (3, 2) };
            let started = first.transaction_with_behavior(TransactionBehavior::Deferred).expect("begun");
            fence(&started, epoch).expect("nobody newer was there");
            write(&started, epoch);
            let late = second.transaction_with_behavior(TransactionBehavior::Deferred).expect("begun");
            assert_eq!(writes(&late), [0; 0], "{case}: it sees nothing of the other");
            assert!(is_busy(&fence(&late, of_second)), "{case}: it may not pass the other");
            drop(late);
            if commits { started.commit() } else { started.rollback() }.expect("ended");
            let ended = commit(second, of_second);
            let expected: (bool, &[i64]) = match (old_first, commits) {
                (true, true) => (true, &[2, 3]),
                (false, true) => (false, &[3]),
                (_, false) => (true, &[of_second]),
            };
            assert_eq!((ended.is_ok(), &writes(second)[..]), expected, "{case}: {ended:?}");
            assert!(ended.is_ok() || ended.is_err_and(|error| sql::is_refused(&error)), "{case}");
        }
    }
}

/// It began before the new leader, looked at the world, and reaches the fence after the new leader's commit.
#[test]
fn fr2_on_sqlite_a_transaction_that_began_before_the_new_leader_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("app.db");
    set_up(&file, "wal");
    let (mut old, mut new) = (open(&file), open(&file));
    let early = old.transaction().expect("begun");
    assert_eq!(writes(&early), [0; 0]);
    commit(&mut new, 3).expect("written");
    fence(&early, 2).expect_err("what it has seen is out of date");
    drop(early);
    assert!(sql::is_refused(&commit(&mut old, 2).expect_err("refused")));
    assert_eq!(writes(&old), [3]);
}

#[test]
fn fr2_a_refusal_is_known_however_deep_a_client_hides_it() {
    #[derive(Debug, thiserror::Error)]
    #[error("db error")]
    struct Outer(#[source] Inner);
    #[derive(Debug, thiserror::Error)]
    #[error("new row for relation \"tenure_fence\" violates check constraint \"{0}\"")]
    struct Inner(&'static str);
    assert!(sql::is_refused(&Outer(Inner("epoch_of_a_former_leader"))));
    assert!(!sql::is_refused(&Outer(Inner("another_check"))));
}
