//! Commands: which of them an agent runs, with which environment, and what becomes of them.

use super::{COMMAND_KIND, SAID_MAX_BYTES, end_of};
use crate::checks::JobRun;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tenure::job::{AllowedCommand, Handlers, JobContext, JobOutcome, OutputStream, OutputWriter};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

/// The variables passed on from the agent's environment: none that would hold a secret.
pub(crate) const PASSED: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];

/// How long a command that is called off has to end by itself.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// A command of a schedule, and the payload of its jobs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CommandWork {
    /// The full path of a program, and its arguments.
    pub command: Vec<String>,
    /// Where it runs. Default: where the agent runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Further variables of its environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

impl CommandWork {
    /// What an agent must allow, in one list: the variables and the directory, as `PWD`, then the program and its arguments.
    pub fn words(&self) -> Vec<String> {
        let directory = self.directory.iter().map(|directory| format!("PWD={directory}"));
        let variables = self.env.iter().map(|(name, value)| format!("{name}={value}"));
        directory.chain(variables).chain(self.command.iter().cloned()).collect()
    }

    fn is_allowed_by(&self, entry: &AllowedCommand) -> bool {
        entry.runs(&self.command)
            && self.directory.iter().all(|directory| entry.sets("PWD", directory))
            && self.env.iter().all(|(name, value)| name != "PWD" && entry.sets(name, value))
    }
}

/// The commands this agent's own settings allow, run without a shell and with empty input. From the agent's environment they see
/// `PATH`, `HOME`, `LANG`, `TZ` and the variables named here; `TENURE_JOB`, `TENURE_ATTEMPT` and `TENURE_EPOCH` are set. A
/// command and all its children that stay in its process group end with it.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    allowed: BTreeSet<AllowedCommand>,
    passed: Vec<String>,
}

impl Commands {
    /// Allows these commands and no others.
    pub fn new(allowed: impl IntoIterator<Item = AllowedCommand>) -> Commands {
        Commands { allowed: allowed.into_iter().collect(), passed: Vec::new() }
    }

    /// Passes these variables of the agent's environment on as well.
    pub fn env(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Commands {
        self.passed.extend(names.into_iter().map(Into::into));
        self
    }

    /// The commands it allows: tell them to the leader with [`RunnerOptions`](tenure::job::RunnerOptions).
    pub fn allowed(&self) -> &BTreeSet<AllowedCommand> {
        &self.allowed
    }

    /// Adds the handler for jobs that run a command.
    pub fn handle(self, handlers: Handlers) -> Handlers {
        let commands = Arc::new(self);
        handlers.on(COMMAND_KIND, move |context: JobContext| {
            let commands = Arc::clone(&commands);
            async move { commands.job(&context).await }
        })
    }

    async fn job(&self, context: &JobContext) -> JobOutcome {
        let work: CommandWork = match serde_json::from_slice(&context.payload) {
            Ok(work) => work,
            Err(error) => return JobOutcome::failed(format!("its payload is not a command: {error}")),
        };
        let ended = match self.start(&work, &JobRun::of(context)) {
            Ok(running) => running.end(&context.output(), context.cancelled.cancelled()).await,
            Err(why) => return JobOutcome::failed(why),
        };
        match ended {
            Ok((status, said)) if status.success() => JobOutcome::succeeded(said),
            Ok((status, said)) if said.is_empty() => JobOutcome::failed(status.to_string()),
            Ok((status, said)) => JobOutcome::failed(format!("{status}: {said}")),
            Err(error) => JobOutcome::failed(error.to_string()),
        }
    }

    /// Starts a command, if it is allowed.
    pub(crate) fn start(&self, work: &CommandWork, job: &JobRun) -> Result<Running, String> {
        let child = self.process(work, job)?.spawn();
        let child = child.map_err(|error| format!("cannot start {}: {error}", work.command[0]))?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok(Running { child, group: Group(group) })
    }

    /// The process of a command, if it is allowed.
    pub(crate) fn process(&self, work: &CommandWork, job: &JobRun) -> Result<Command, String> {
        let (program, args) = work.command.split_first().ok_or("its command is empty")?;
        if !self.allowed.iter().any(|entry| work.is_allowed_by(entry)) {
            return Err("this agent does not allow this command with these arguments".to_owned());
        }
        let mut command = Command::new(program);
        command.args(args).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for name in PASSED.into_iter().chain(self.passed.iter().map(String::as_str)) {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.envs(&work.env);
        command.env("TENURE_JOB", job.job.as_str()).env("TENURE_ATTEMPT", job.attempt.to_string());
        command.env("TENURE_EPOCH", job.epoch.to_string());
        if let Some(directory) = &work.directory {
            command.current_dir(directory);
        }
        // A group of its own, so that everything it starts can be ended with it.
        command.process_group(0).kill_on_drop(true);
        Ok(command)
    }
}

/// A command that runs. Dropping it ends it and everything it started.
pub(crate) struct Running {
    child: Child,
    group: Group,
}

struct Group(Option<Pid>);

impl Group {
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // Whoever is gone needs no signal.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

impl Running {
    /// Waits until it has ended, and returns how, and the end of what it wrote; all of it goes to `output` as it comes. Once it is called
    /// off, it is asked to end.
    pub(crate) async fn end(
        mut self,
        output: &OutputWriter,
        called_off: impl Future<Output = ()>,
    ) -> std::io::Result<(ExitStatus, String)> {
        let said = Arc::new(parking_lot::Mutex::new(VecDeque::new()));
        let stdout = self.child.stdout.take();
        let stdout = stdout.map(|from| listen(from, Arc::clone(&said), output.clone(), OutputStream::Stdout));
        let stderr = self.child.stderr.take();
        let stderr = stderr.map(|from| listen(from, Arc::clone(&said), output.clone(), OutputStream::Stderr));
        let ended = tokio::select! {
            status = self.child.wait() => status,
            () = called_off => {
                self.group.signal(Signal::TERM);
                tokio::time::timeout(STOP_GRACE, self.child.wait()).await.unwrap_or_else(|_| {
                    Err(std::io::Error::other("it was cancelled and did not end by itself"))
                })
            }
        };
        // Nothing it started goes on without it; so nobody holds its output open either.
        drop(self.group);
        for listener in [stdout, stderr].into_iter().flatten() {
            // A listener that was cut off has kept what it had.
            let _ = tokio::time::timeout(Duration::from_secs(1), listener).await;
        }
        let said: Vec<u8> = said.lock().iter().copied().collect();
        Ok((ended?, end_of(&said)))
    }
}

/// Keeps the end of what comes, and passes it on. All of it is read, so that the program never blocks on a full pipe.
fn listen(
    mut from: impl AsyncRead + Unpin + Send + 'static,
    said: Arc<parking_lot::Mutex<VecDeque<u8>>>,
    output: OutputWriter,
    stream: OutputStream,
) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            output.write(stream, &buffer[..read]);
            let mut said = said.lock();
            said.extend(&buffer[..read]);
            let beyond = said.len().saturating_sub(SAID_MAX_BYTES);
            said.drain(..beyond);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_util::sync::CancellationToken;

    fn run() -> JobRun {
        JobRun { job: "t".parse().expect("valid"), attempt: 2, epoch: 7 }
    }

    fn shell(script: &str) -> CommandWork {
        let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        CommandWork {
            command,
            directory: Some("/".to_owned()),
            env: [("LEVEL".into(), "full".into())].into(),
        }
    }

    fn any() -> Commands {
        Commands::new(["PWD=* LEVEL=* /bin/sh **".parse().expect("valid")])
    }

    #[tokio::test]
    async fn a_command_has_its_directory_its_variables_and_its_words() {
        let script = "pwd; echo $LEVEL $TENURE_JOB $TENURE_ATTEMPT $TENURE_EPOCH $CARGO; exit 3";
        let running = any().start(&shell(script), &run()).expect("allowed");
        let (status, said) =
            running.end(&OutputWriter::nowhere(), std::future::pending()).await.expect("it ended");
        assert_eq!((status.code(), said.as_str()), (Some(3), "/\nfull t 2 7"));
    }

    #[tokio::test]
    async fn of_much_output_the_end_is_kept() {
        let running = any().start(&shell("seq 1 5000; echo done >&2; sleep 0.1"), &run()).expect("allowed");
        let (status, said) =
            running.end(&OutputWriter::nowhere(), std::future::pending()).await.expect("it ended");
        assert!(status.success() && said.len() <= SAID_MAX_BYTES, "{}", said.len());
        assert!(said.contains("5000") && said.contains("done") && !said.contains("\n1\n"), "{said}");
    }

    #[tokio::test]
    async fn sc4_what_is_not_allowed_is_not_started() {
        let only = Commands::new(["PWD=/ LEVEL=* /bin/sh -c true".parse().expect("valid")]);
        assert!(only.start(&shell("true"), &run()).is_ok());
        let mut elsewhere = shell("true");
        elsewhere.directory = Some("/tmp".to_owned());
        assert!(only.start(&elsewhere, &run()).is_err());
        let mut preloaded = shell("true");
        preloaded.env.insert("LD_PRELOAD".to_owned(), "/tmp/x.so".to_owned());
        assert!(only.start(&preloaded, &run()).is_err());
        let refused = only.start(&shell("false"), &run()).err().expect("refused");
        assert!(refused.contains("does not allow"), "{refused}");
    }

    /// An agent's directory may have a folder `LEVEL=`.
    #[test]
    fn a_program_that_looks_like_a_variable_is_not_started() {
        let commands = Commands::new(["PWD=* LEVEL=* /bin/sh -c true".parse().expect("valid")]);
        let mut work = shell("true");
        work.command.insert(0, "LEVEL=/evil".to_owned());
        let refused = commands.process(&work, &run()).expect_err("refused");
        assert!(refused.contains("does not allow"), "{refused}");
        let mut work = shell("true");
        work.env.insert("PWD".to_owned(), "/".to_owned());
        assert!(commands.process(&work, &run()).is_err(), "the directory is no variable");
    }

    #[tokio::test]
    async fn what_is_called_off_ends_with_everything_it_started() {
        let off = CancellationToken::new();
        let script = "trap 'echo stopping; exit 1' TERM; sleep 1000 & echo $!; wait";
        let running = any().start(&shell(script), &run()).expect("allowed");
        let ended = tokio::spawn({
            let off = off.clone();
            async move { running.end(&OutputWriter::nowhere(), off.cancelled()).await }
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        off.cancel();
        let (status, said) = ended.await.expect("no panic").expect("it ended");
        let (child, rest) = said.split_once('\n').expect("two lines");
        assert_eq!((status.code(), rest), (Some(1), "stopping"));
        let child = Pid::from_raw(child.parse().expect("a number")).expect("a process");
        let is_gone = || rustix::process::test_kill_process(child).is_err();
        for _ in 0..100 {
            if is_gone() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("what it started lives on");
    }
}
