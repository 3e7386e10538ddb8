//! A real PostgreSQL refuses a former leader. `cargo xtask test` installs it and runs these.

use crate::fenced_example;
use crate::postgres_server::Postgres;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use tenure::fence::sql;

/// For what takes milliseconds on a machine that is not busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection that is used as by hand: a statement, then what it says.
struct Session {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

const END: &str = "-- end";

impl Session {
    fn open(postgres: &Postgres, name: &str) -> Session {
        let (output, input) = std::io::pipe().unwrap();
        let mut command: Command = postgres.psql();
        command.env("PGAPPNAME", name).stdin(Stdio::piped());
        command.stdout(input.try_clone().unwrap()).stderr(input);
        let mut child = command.spawn().unwrap();
        drop(command); // It holds the other end open.
        let (mouth, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = mouth.send(line);
            }
        });
        let input = child.stdin.take().unwrap();
        let mut session = Session { child, input, lines };
        assert_eq!(session.run(&format!("prepare fence (text, bigint) as\n{}", sql::FENCE)), "");
        session
    }

    fn begin(&mut self, statement: &str) {
        writeln!(self.input, "{statement};\n\\echo {END}").unwrap();
    }

    /// What the statements said that were begun.
    fn said(&mut self) -> String {
        let (mut text, until) = (String::new(), Instant::now() + PATIENCE);
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) if line == END => return text,
                Ok(line) => text.extend([&line, "\n"]),
                // It ends when the server ends it.
                Err(RecvTimeoutError::Disconnected) => return text,
                Err(RecvTimeoutError::Timeout) => panic!("it goes on and on; so far it said {text}"),
            }
        }
    }

    fn run(&mut self, statement: &str) -> String {
        self.begin(statement);
        self.said()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until this session waits for another's lock.
fn until_it_waits(watch: &mut Session, name: &str) {
    let until = Instant::now() + PATIENCE;
    let query = format!(
        "select count(*) from pg_stat_activity where application_name = '{name}' and wait_event_type = 'Lock'"
    );
    while watch.run(&query).trim() != "1" {
        assert!(Instant::now() < until, "{name} never waits");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What became of a transaction.
#[derive(Clone, Copy, PartialEq, Debug)]
enum End {
    Committed,
    /// By the fence.
    Refused,
    /// Its isolation forbids it to go on; it may be repeated.
    Again,
}

fn end(said: &str) -> End {
    match said {
        "" => End::Committed,
        said if said.contains("epoch_of_a_former_leader") => End::Refused,
        said if said.contains("could not serialize access") => End::Again,
        other => panic!("{other}"),
    }
}

/// A leader's transaction from the statement on: it was begun, and may have to wait in the statement.
fn goes_on(session: &mut Session, epoch: u64) -> End {
    let mut said = session.said();
    // As by a program that looks at no error: the database itself must not commit what comes after it.
    said.push_str(&session.run(&format!("insert into writes (epoch) values ({epoch})")));
    said.push_str(&session.run("commit"));
    end(&said)
}

fn whole(session: &mut Session, isolation: &str, epoch: u64) -> End {
    session.run(&format!("begin isolation level {isolation}"));
    session.begin(&format!("execute fence('reports', {epoch})"));
    goes_on(session, epoch)
}

/// Sessions, to be used once both tables are there.
fn set_up<const N: usize>(postgres: &Postgres, names: [&str; N]) -> [Session; N] {
    for statement in [sql::CREATE, "create table writes (at serial, epoch bigint)"] {
        assert!(postgres.psql().args(["-c", statement]).status().unwrap().success());
    }
    names.map(|name| Session::open(postgres, name))
}

const WRITES: &str = "select coalesce(string_agg(epoch::text, ' ' order by at), '') from writes";
const KNOWN: &str = "select epoch from tenure_fence where resource = 'reports'";

#[test]
#[ignore = "needs postgresql"]
fn fr2_postgres_fails_the_transaction_of_a_former_leader() {
    let postgres = Postgres::start();
    let [mut session] = set_up(&postgres, ["leader"]);
    for (epoch, ends) in [
        (1, End::Committed),
        (1, End::Committed),
        (3, End::Committed),
        (2, End::Refused),
        (3, End::Committed),
        (0, End::Refused),
        (4, End::Committed),
    ] {
        assert_eq!(whole(&mut session, "read committed", epoch), ends, "{epoch}");
    }
    assert_eq!((session.run(WRITES).trim(), session.run(KNOWN).trim()), ("1 1 3 3 4", "4"));
    session.run("begin");
    session.run("insert into writes (epoch) values (2)");
    let said = session.run("execute fence('reports', 2)");
    assert!(said.contains("(reports, -4)"), "it says which epoch is known: {said}");
    session.run("commit");
    assert_eq!(session.run(WRITES).trim(), "1 1 3 3 4", "what came before it is undone, too");
    assert_eq!(session.run("execute fence('mail', 1)"), "", "another resource");
}

/// Two leaders' transactions at once. Whoever comes second must wait for the first, and then judge by what it left.
#[test]
#[ignore = "needs postgresql"]
fn fr2_on_postgres_two_leaders_at_once_write_in_the_order_of_epochs() {
    let postgres = Postgres::start();
    let [mut old, mut new, mut watch] = set_up(&postgres, ["old", "new", "watch"]);
    for isolation in ["read committed", "repeatable read", "serializable"] {
        for (known, old_first, commits) in [
            (None, true, true),
            (None, true, false),
            (None, false, true),
            (None, false, false),
            (Some(1), true, true),
            (Some(1), true, false),
            (Some(1), false, true),
            (Some(1), false, false),
        ] {
            let case =
                format!("{isolation}, known {known:?}, the old first: {old_first}, it commits: {commits}");
            watch.run("truncate tenure_fence, writes");
            if let Some(epoch) = known {
                watch.run(&format!("execute fence('reports', {epoch})"));
            }
            // Both began, and saw the world, before either was fenced.
            for session in [&mut old, &mut new] {
                session.run(&format!("begin isolation level {isolation}"));
                session.run("select count(*) from tenure_fence");
            }
            let (first, second) = if old_first { (&mut old, &mut new) } else { (&mut new, &mut old) };
            let (epoch, of_second, name) = if old_first { (2, 3, "new") } else { (3, 2, "old") };
            assert_eq!(first.run(&format!("execute fence('reports', {epoch})")), "", "{case}");
            first.run(&format!("insert into writes (epoch) values ({epoch})"));
            second.begin(&format!("execute fence('reports', {of_second})"));
            until_it_waits(&mut watch, name);
            assert_eq!(first.run(if commits { "commit" } else { "rollback" }), "", "{case}");
            let mut ends = goes_on(second, of_second);
            if commits && isolation != "read committed" {
                assert_eq!(ends, End::Again, "{case}");
            }
            while ends == End::Again {
                ends = whole(second, isolation, of_second);
            }
            let (expected, writes, known) = match (old_first, commits) {
                (true, true) => (End::Committed, "2 3", "3"),
                (true, false) => (End::Committed, "3", "3"),
                (false, true) => (End::Refused, "3", "3"),
                (false, false) => (End::Committed, "2", "2"),
            };
            let stands = (watch.run(WRITES), watch.run(KNOWN));
            assert_eq!((ends, stands.0.trim(), stands.1.trim()), (expected, writes, known), "{case}");
        }
    }
}

#[test]
#[ignore = "needs postgresql"]
fn fr2_on_postgres_a_leader_frozen_in_its_transaction_does_not_hold_up_the_next() {
    let postgres = Postgres::start();
    let [mut old, mut new, mut watch] = set_up(&postgres, ["old", "new", "watch"]);
    old.run("begin");
    assert_eq!(old.run("execute fence('reports', 2)"), "");
    old.run("insert into writes (epoch) values (2)");
    old.run("set local idle_in_transaction_session_timeout = '300ms'");
    old.signal(Signal::STOP);
    assert_eq!(whole(&mut new, "read committed", 3), End::Committed);
    old.signal(Signal::CONT);
    let said = old.run("commit");
    assert!(said.contains("idle-in-transaction timeout"), "{said}");
    assert_eq!(watch.run(WRITES).trim(), "3");
}

#[tokio::test]
#[ignore = "needs postgresql"]
async fn fr2_the_example_is_refused_by_postgres() {
    let postgres = Postgres::start();
    // As an earlier run left it, on another store.
    for statement in [sql::CREATE, "insert into tenure_fence values ('report-example', 7)"] {
        assert!(postgres.psql().args(["-c", statement]).status().unwrap().success());
    }
    fenced_example::play(Some(postgres.url()), |line| println!("{line}")).await.unwrap();
}
