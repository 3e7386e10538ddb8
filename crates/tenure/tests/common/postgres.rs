//! A PostgreSQL of its own for a test, on a free port of loopback.
#![allow(dead_code, unreachable_pub, missing_docs)]

use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// It refuses to run as root.
const NOBODY: u32 = 65_534;

pub struct Postgres {
    server: Child,
    port: u16,
    _folder: TempDir,
}

impl Postgres {
    pub fn start() -> Postgres {
        let folder = tempfile::tempdir().expect("a folder");
        let home = folder.path().to_owned();
        if geteuid().is_root() {
            chown(&home, Some(NOBODY), Some(NOBODY)).expect("root may");
        }
        let data = home.join("data");
        let server = |name: &str| {
            let mut command = Command::new(program(name));
            if geteuid().is_root() {
                command.uid(NOBODY).gid(NOBODY);
            }
            command.arg("-D").arg(&data).current_dir(&home).stdin(Stdio::null());
            command
        };
        let made = server("initdb")
            .args(["-A", "trust", "-U", "tenure", "--no-sync", "-E", "UTF8", "--locale=C"])
            .output();
        let made = made.expect("initdb runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let launch = || {
            let free = TcpListener::bind("127.0.0.1:0").expect("a port");
            let port = free.local_addr().expect("an address").port();
            let log = std::fs::File::create(home.join("log")).expect("a log");
            let mut command = server("postgres");
            command.args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
            command.args(["-c", "unix_socket_directories=", "-c", "fsync=off"]);
            command.stdout(log.try_clone().expect("a log")).stderr(log);
            drop(free);
            (command.spawn().expect("postgres runs"), port)
        };
        let (child, port) = launch();
        let mut started = Postgres { server: child, port, _folder: folder };
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let asked = started.psql().args(["-c", "show data_directory"]).output().expect("psql runs");
            // Another server may have got the port in between; then this one has ended.
            if String::from_utf8_lossy(&asked.stdout).trim() == data.display().to_string() {
                return started;
            }
            if started.server.try_wait().expect("a child").is_some() {
                (started.server, started.port) = launch();
            }
            let log = std::fs::read_to_string(home.join("log")).unwrap_or_default();
            assert!(Instant::now() < until, "it does not answer: {log}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn url(&self) -> String {
        format!("postgres://tenure@127.0.0.1:{}/postgres", self.port)
    }

    /// The variables by which `psql` finds it.
    pub fn variables(&self) -> [(&'static str, String); 4] {
        let (host, user, database) = ("127.0.0.1".to_owned(), "tenure".to_owned(), "postgres".to_owned());
        [("PGHOST", host), ("PGPORT", self.port.to_string()), ("PGUSER", user), ("PGDATABASE", database)]
    }

    /// Prints bare values.
    pub fn psql(&self) -> Command {
        let mut command = Command::new("psql");
        command.arg("-XqAt").envs(self.variables());
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Not SIGKILL: it would leave shared memory behind.
        let _ = kill_process(Pid::from_child(&self.server), Signal::QUIT);
        let _ = self.server.wait();
    }
}

/// Debian has the programs of the server in a folder for each version.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions.map(|version| version.path().join("bin").join(name)).collect();
    found.retain(|path| path.is_file());
    found.sort();
    found.pop().unwrap_or_else(|| name.into())
}
