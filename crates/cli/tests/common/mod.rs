//! What the end-to-end tests share: real processes of the real binary, what they say, and what they must never do.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "shared by test binaries; each uses a part"
)]

pub mod browser;
pub mod engine;
pub mod net;

pub use tenure_chaos::clock::boot_ms;
pub use tenure_chaos::leadership::{self, Said};

use tenure_chaos::exec::nodes::stop_all;
use tenure_chaos::stall_watch::{self, StallWatch};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Nothing a test waits for takes longer. Generous: machines are noisy, and a test that waits for a condition costs
/// only what the condition takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A fast election without startup jitter.
pub const FAST: &[&str] = &["--preset", "fast", "--startup-jitter-max", "0"];

/// As fast, but with a lease that a busy machine does not outlast: for tests in which a leader leaves only when told.
pub const STEADY: &[&str] = &[
    "--preset",
    "fast",
    "--startup-jitter-max",
    "0",
    "--lease-hold-factor",
    "50",
    "--lease-expiry-factor",
    "75",
];

/// The same for tests in which a leader is missed: after 7.5 s, and by nobody while the machine stands still for 5 s.
pub const PATIENT: &[&str] = &[
    "--preset",
    "fast",
    "--startup-jitter-max",
    "0",
    "--lease-hold-factor",
    "10",
    "--lease-expiry-factor",
    "15",
];

/// For who leads first by name: however late one of them comes to be scheduled, the others wait for it.
pub const FIRST_BY_NAME: &[&str] = &["--startup-jitter-max", "0", "--election-settle", "3000ms"];

/// The default settings, but without the startup jitter.
pub const PLAIN: &[&str] = &["--startup-jitter-max", "0"];

static STALL_WATCH: LazyLock<StallWatch> = LazyLock::new(StallWatch::start);

/// How long something in a cluster's life took, but for the time the machine itself stood still.
pub fn took_ms(from_ms: u64, until_ms: u64) -> u64 {
    let stalled_ms = stall_watch::stalled_ms(&STALL_WATCH.so_far(), from_ms, until_ms);
    until_ms.saturating_sub(from_ms).saturating_sub(stalled_ms)
}

/// The shipped program. Tests lie in `deps` beside it.
pub fn program() -> PathBuf {
    let me = std::env::current_exe().unwrap();
    let program = me.parent().and_then(Path::parent).unwrap().join("tenure");
    assert!(program.is_file(), "{} is not there; make it with `cargo build`", program.display());
    program
}

/// A directory of a test's own; also the home of every process it starts.
pub struct Sandbox(tempfile::TempDir);

impl Sandbox {
    /// In memory where the system has room there: a disk that is busy with something else makes leases expire.
    pub fn new() -> Sandbox {
        let memory = Path::new("/dev/shm");
        let prefix = "tenure-e2e-";
        Sandbox(
            tempfile::TempDir::with_prefix_in(prefix, memory)
                .or_else(|_| tempfile::TempDir::with_prefix(prefix))
                .unwrap(),
        )
    }

    pub fn home(&self) -> &Path {
        self.0.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn sqlite(&self, name: &str) -> String {
        format!("sqlite:{}", self.path(name).display())
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// A file for this user alone.
    pub fn secret(&self, name: &str, text: &str) -> String {
        let path = self.write(name, text);
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        path
    }

    /// The token for changes over HTTP, which the first node with HTTP has made.
    pub fn http_token(&self) -> String {
        std::fs::read_to_string(self.path(".local/share/tenure/http-token")).unwrap().trim().to_owned()
    }

    /// Every file below, with its bytes: whether anything was written is a comparison of two of these.
    pub fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        fn walk(folder: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    found.insert(path.clone(), Vec::new());
                    walk(&path, found);
                } else {
                    found.insert(path.clone(), std::fs::read(&path).unwrap());
                }
            }
        }
        let mut found = BTreeMap::new();
        walk(self.home(), &mut found);
        found
    }

    /// The binary with an environment of nothing but a path and a home.
    pub fn command(&self) -> Command {
        let mut command = Command::new(program());
        command.env_clear().current_dir(self.home()).stdin(Stdio::null());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.home()).env("TMPDIR", self.home());
        // Many nodes on one machine would all want one port; the tests of HTTP choose theirs.
        command.env("TENURE_NO_HTTP", "true");
        command
    }

    /// Runs the binary to its end.
    pub fn tenure<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Ran {
        let mut command = self.command();
        command.args(arguments);
        finish(command, PATIENCE)
    }

    /// The same on this store. What follows `--` stays last.
    pub fn tenure_on(&self, store: &str, arguments: &[&str]) -> Ran {
        let at = arguments.iter().position(|word| *word == "--").unwrap_or(arguments.len());
        let (flags, command) = arguments.split_at(at);
        self.tenure([flags, &["--store", store], command].concat())
    }
}

#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub fn assert_code(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }

    /// Every word of it stands in the error.
    pub fn assert_says(self, words: &[&str]) -> Ran {
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is not in:\n{}", self.stderr);
        }
        self
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in:\n{}", self.stdout))
    }
}

/// Runs a command to its end, and kills it if that does not come.
pub fn finish(mut command: Command, limit: Duration) -> Ran {
    let mut child =
        Killed(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let stdout = gather(child.0.stdout.take().unwrap());
    let stderr = gather(child.0.stderr.take().unwrap());
    let status = wait_for_exit(&mut child.0, limit);
    if status.is_none() {
        let _ = child.0.kill();
    }
    let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
    let status = status.unwrap_or_else(|| panic!("no end within {limit:?}\n{stdout}\n{stderr}"));
    Ran { code: status.code(), stdout, stderr }
}

fn gather(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn wait_for_exit(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if Instant::now() > deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process that does not outlive its test, however the test ends. SIGKILL also ends a stopped one.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Life {
    node: String,
    process: Killed,
    log: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

/// Nodes of one namespace on one store, each a process of its own.
pub struct Cluster<'a> {
    sandbox: &'a Sandbox,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    lives: Vec<Life>,
    said: Receiver<Said>,
    mouth: Sender<Said>,
    history: Vec<Said>,
}

impl<'a> Cluster<'a> {
    pub fn new(sandbox: &'a Sandbox, store: &str, arguments: &[&str]) -> Cluster<'a> {
        LazyLock::force(&STALL_WATCH);
        let (mouth, said) = channel();
        let mut all = vec!["--store".to_owned(), store.to_owned()];
        all.extend(arguments.iter().map(|&argument| argument.to_owned()));
        let (environment, lives, history) = Default::default();
        Cluster { sandbox, arguments: all, environment, lives, said, mouth, history }
    }

    pub fn env(mut self, name: &str, value: &str) -> Cluster<'a> {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn envs(self, variables: Vec<(String, String)>) -> Cluster<'a> {
        variables.iter().fold(self, |cluster, (name, value)| cluster.env(name, value))
    }

    /// Starts a node; the number tells this process from others of the same name.
    pub fn start(&mut self, node: &str) -> usize {
        self.start_with(node, &[])
    }

    pub fn start_with(&mut self, node: &str, environment: &[(&str, &str)]) -> usize {
        self.launch(node, &["run", "--events", "--node", node], environment)
    }

    pub fn start_args(&mut self, node: &str, more: &[&str]) -> usize {
        self.launch(node, &[&["run", "--events", "--node", node], more].concat(), &[])
    }

    /// Starts a worker without a node.
    pub fn start_worker(&mut self, arguments: &[&str]) -> usize {
        self.launch("worker", &[&["worker", "run", "--events"], arguments].concat(), &[])
    }

    pub fn start_agent(&mut self, arguments: &[&str]) -> usize {
        self.launch("agent", &[&["agent", "--events"], arguments].concat(), &[])
    }

    fn launch(&mut self, node: &str, arguments: &[&str], environment: &[(&str, &str)]) -> usize {
        let mut command = self.sandbox.command();
        command.args(arguments).args(&self.arguments);
        command.envs(self.environment.iter().cloned()).envs(environment.iter().copied());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (life, name, mouth) = (self.lives.len(), node.to_owned(), self.mouth.clone());
        let events = std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let event = serde_json::from_str(&line)
                    .unwrap_or_else(|error| panic!("{name} printed {line:?}, which is not JSON: {error}"));
                let _ = mouth.send(Said { life, node: name.clone(), event, heard_ms: None });
            }
        });
        let log = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&log);
        let words = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut kept = kept.lock().unwrap();
                kept.push_str(&line);
                kept.push('\n');
            }
        });
        let readers = vec![events, words];
        self.lives.push(Life { node: node.to_owned(), process: Killed(child), log, readers });
        life
    }

    pub fn start_all(&mut self, nodes: &[&str]) -> Vec<usize> {
        nodes.iter().map(|node| self.start(node)).collect()
    }

    /// Sends a signal and says when, on the boot-time clock: before it was sent.
    pub fn signal(&self, life: usize, signal: Signal) -> u64 {
        let now_ms = boot_ms();
        kill_process(Pid::from_child(&self.lives[life].process.0), signal).unwrap();
        now_ms
    }

    /// Stops a process, and says when as [`Cluster::signal`] does. Never in the middle of a write to a file: it would
    /// keep the file locked for everybody until it goes on, and nobody could succeed it before.
    pub fn pause(&self, life: usize) -> u64 {
        let Some(file) = self.arguments[1].strip_prefix("sqlite:") else {
            return self.signal(life, Signal::STOP);
        };
        let database = rusqlite::Connection::open(file).unwrap();
        database.busy_timeout(PATIENCE).unwrap();
        // While we have the lock, the process does not have it.
        database.execute_batch("BEGIN IMMEDIATE").unwrap();
        let paused_ms = boot_ms();
        // And it has stopped by the time we give the lock back: the signal alone is only a request.
        stop_all(&[Pid::from_child(&self.lives[life].process.0).as_raw_nonzero().get()]).unwrap();
        database.execute_batch("ROLLBACK").unwrap();
        paused_ms
    }

    /// Where a node serves HTTP, once it says so.
    pub fn http_address(&mut self, life: usize) -> String {
        const WORDS: &str = "http: listening on http://";
        self.wait_log(life, WORDS);
        let log = self.log(life);
        log.split(WORDS).nth(1).unwrap().split_whitespace().next().unwrap().to_owned()
    }

    /// Kills a process, and waits until it is gone and everything it said is heard.
    pub fn kill(&mut self, life: usize) -> u64 {
        let now_ms = self.signal(life, Signal::KILL);
        self.exit(life);
        now_ms
    }

    /// Waits for a process to end by itself.
    pub fn exit(&mut self, life: usize) -> ExitStatus {
        let status = wait_for_exit(&mut self.lives[life].process.0, PATIENCE);
        let Some(status) = status else { self.fail(&format!("the end of {}", self.lives[life].node)) };
        for reader in std::mem::take(&mut self.lives[life].readers) {
            reader.join().unwrap();
        }
        status
    }

    pub fn is_running(&mut self, life: usize) -> bool {
        self.lives[life].process.0.try_wait().unwrap().is_none()
    }

    /// What a process wrote to stderr so far.
    pub fn log(&self, life: usize) -> String {
        self.lives[life].log.lock().unwrap().clone()
    }

    /// Waits until a process wrote this to stderr.
    pub fn wait_log(&mut self, life: usize, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.log(life).contains(text) {
            if Instant::now() > deadline {
                self.fail(&format!("{text:?} in the log of {}", self.lives[life].node));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The end of what has been said so far; pass it to `wait` to leave that out.
    pub fn mark(&mut self) -> usize {
        self.history.extend(self.said.try_iter());
        self.history.len()
    }

    /// Waits for an event, the first one behind the mark that is wanted.
    pub fn wait(&mut self, mark: usize, what: &str, wanted: impl Fn(&Said) -> bool) -> Said {
        let deadline = Instant::now() + PATIENCE;
        let mut next = mark;
        loop {
            if let Some(found) = self.history[next..].iter().find(|said| wanted(said)) {
                return found.clone();
            }
            next = self.history.len();
            match self.said.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(said) => self.history.push(said),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => self.fail(what),
            }
        }
    }

    /// Waits for somebody to lead.
    pub fn leader(&mut self, mark: usize) -> Said {
        self.wait(mark, "a leader", |said| said.name() == "became_leader")
    }

    /// Waits for an event of one process.
    pub fn event(&mut self, mark: usize, life: usize, name: &str) -> Said {
        self.wait(mark, &format!("{name} of process {life}"), |said| said.life == life && said.name() == name)
    }

    pub fn history(&mut self) -> &[Said] {
        self.mark();
        &self.history
    }

    /// Ends all processes and checks what all of them ever said: no two led at once, one holder for every epoch, no
    /// panic, no event left out.
    pub fn finish(mut self) -> Vec<Said> {
        for life in 0..self.lives.len() {
            let _ = self.lives[life].process.0.kill();
            self.exit(life);
        }
        self.mark();
        for life in 0..self.lives.len() {
            let log = self.log(life);
            assert!(!log.contains("panicked"), "{}:\n{log}", self.lives[life].node);
            assert!(!log.contains("events were left out"), "{}:\n{log}", self.lives[life].node);
        }
        if let Err(broken) = leadership::check(&self.history) {
            self.show();
            panic!("{broken}");
        }
        self.history
    }

    fn fail(&mut self, what: &str) -> ! {
        self.show();
        panic!("waited {PATIENCE:?} for {what} in vain");
    }

    fn show(&mut self) {
        self.mark();
        for said in &self.history {
            println!("{} {}", said.life, said.event);
        }
        for life in &self.lives {
            println!("--- log of {}:\n{}", life.node, life.log.lock().unwrap());
        }
    }
}
