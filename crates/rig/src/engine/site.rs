//! One started engine: directory, processes, state on disk.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Access, Engine, REGION};
use crate::process::{self, Identity};

/// How long an engine may take from its start to a bucket that holds an object.
const READY: Duration = Duration::from_secs(60);
const LOG_TAIL_LINES: usize = 25;
const STATE: &str = "state.json";

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Until this process ends, however it ends.
    Bound,
    /// Until it is stopped by command.
    Detached,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// The run this engine belongs to; `None` when detached.
    owner: Option<Identity>,
    /// In the order they were started.
    processes: Vec<Identity>,
    /// Files that the engine creates elsewhere and leaves behind when it is killed.
    litter: Vec<PathBuf>,
    access: Access,
}

/// A started engine; a bound one is stopped and removed when dropped.
pub struct Site {
    pub dir: PathBuf,
    lifetime: Lifetime,
    state: State,
    children: Vec<Child>,
    logs: Vec<PathBuf>,
    /// How each process was started, so that it can be started again.
    recipes: Vec<(String, Command)>,
}

impl Site {
    /// An empty site in a fresh `dir`, with its state on disk.
    pub(super) fn create(engine: Engine, dir: &Path, lifetime: Lifetime) -> Result<Self> {
        if dir.exists() {
            fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
        }
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let owner = match lifetime {
            Lifetime::Bound => Identity::of(std::process::id()),
            Lifetime::Detached => None,
        };
        let state = State { owner, processes: Vec::new(), litter: Vec::new(), access: Access::new(engine) };
        let site = Self {
            dir: dir.to_path_buf(),
            lifetime,
            state,
            children: Vec::new(),
            logs: Vec::new(),
            recipes: Vec::new(),
        };
        site.save()?;
        Ok(site)
    }

    /// The site that an earlier call left in `dir`, if there is one.
    pub fn open(dir: &Path) -> Option<Self> {
        let state = serde_json::from_slice(&fs::read(dir.join(STATE)).ok()?).ok()?;
        Some(Self {
            dir: dir.to_path_buf(),
            lifetime: Lifetime::Detached,
            state,
            children: Vec::new(),
            logs: Vec::new(),
            recipes: Vec::new(),
        })
    }

    pub fn access(&self) -> &Access {
        &self.state.access
    }

    pub(super) fn access_mut(&mut self) -> &mut Access {
        &mut self.state.access
    }

    /// Whether all started processes still run.
    pub fn running(&self) -> bool {
        !self.state.processes.is_empty() && self.state.processes.iter().all(Identity::alive)
    }

    fn save(&self) -> Result<()> {
        let (file, temporary) = (self.dir.join(STATE), self.dir.join("state.json.new"));
        fs::write(&temporary, serde_json::to_vec_pretty(&self.state)?)?;
        fs::rename(&temporary, &file).with_context(|| format!("cannot write {}", file.display()))
    }

    /// `count` free ports: any ports for a test run, always the same ones for a developer.
    pub(super) fn ports(&self, count: u16) -> Result<Vec<u16>> {
        let first = match self.lifetime {
            Lifetime::Bound => None,
            Lifetime::Detached => Some(self.state.access.name.base_port()),
        };
        // All are held until the last is found, so that they differ.
        let held: Vec<TcpListener> = (0..count)
            .map(|offset| {
                let port = first.map_or(0, |first| first + offset);
                TcpListener::bind(("127.0.0.1", port))
                    .with_context(|| format!("port {port} is taken by somebody else"))
            })
            .collect::<Result<_>>()?;
        held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
    }

    /// Registers a file outside the directory that must be removed with the engine.
    pub(super) fn litter(&mut self, file: String) {
        self.state.litter.push(file.into());
    }

    /// Starts one of the engine's processes with its output in `<label>.log`.
    pub(super) fn spawn(&mut self, label: &str, command: Command) -> Result<()> {
        self.launch(label, &command)?;
        self.recipes.push((label.to_owned(), command));
        Ok(())
    }

    fn launch(&mut self, label: &str, command: &Command) -> Result<()> {
        let log = self.dir.join(format!("{label}.log"));
        let output = File::options().create(true).append(true).open(&log);
        let output = output.with_context(|| format!("cannot create {}", log.display()))?;
        let mut command = match self.lifetime {
            Lifetime::Bound => process::bound(command),
            Lifetime::Detached => process::copy_of(command),
        };
        // No `current_dir`: an engine gets only absolute paths.
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {label}"))?;
        self.logs.push(log);
        let identity = Identity::of(child.id());
        self.children.push(child);
        self.state.processes.push(identity.with_context(|| format!("{label} ended at once"))?);
        self.save()
    }

    /// Ends the processes that do not keep data only in memory, youngest first; the data stays.
    pub fn pause(&mut self) -> Result<()> {
        let from = self.state.access.name.survivors();
        for process in self.state.processes.split_off(from).into_iter().rev() {
            process.end();
        }
        for mut child in self.children.split_off(from) {
            child.wait().context("wait for a process of the engine")?;
        }
        self.save()
    }

    /// Starts what [`Site::pause`] ended, and waits until the bucket is usable again through every endpoint.
    pub fn resume(&mut self) -> Result<()> {
        let recipes = std::mem::take(&mut self.recipes);
        let from = self.state.access.name.survivors();
        let started = recipes.iter().skip(from).try_for_each(|(label, command)| self.launch(label, command));
        self.recipes = recipes;
        started?;
        for endpoint in self.state.access.endpoints.clone() {
            self.await_endpoint(&endpoint, None)?;
        }
        Ok(())
    }

    /// An error when one of the engine's processes has ended.
    pub(super) fn check_alive(&mut self) -> Result<()> {
        for child in &mut self.children {
            if let Some(status) = child.try_wait()? {
                bail!("a process of the engine ended: {status}");
            }
        }
        Ok(())
    }

    /// Announces an endpoint and waits until the bucket is usable through it.
    pub(super) fn serve(&mut self, port: u16, reader_arn: Option<&str>) -> Result<()> {
        let endpoint = format!("http://127.0.0.1:{port}");
        self.state.access.endpoints.push(endpoint.clone());
        self.await_endpoint(&endpoint, reader_arn)?;
        self.save()
    }

    fn await_endpoint(&mut self, endpoint: &str, reader_arn: Option<&str>) -> Result<()> {
        let access = &self.state.access;
        let job = json!({
            "endpoint": endpoint,
            "region": REGION,
            "bucket": access.bucket,
            "access_key": access.access_key,
            "secret_key": access.secret_key,
            "reader_access_key": access.reader_access_key,
            "reader_secret_key": access.reader_secret_key,
            "reader_arn": reader_arn,
            "deadline_s": READY.as_secs(),
        });
        let mut script = Command::new("python3");
        script.args(["-c", include_str!("prepare.py"), &job.to_string()]);
        let limit = READY + Duration::from_secs(30);
        process::capture_while(&mut script, limit, || self.check_alive())?.ok("waiting for the engine")?;
        Ok(())
    }

    /// The last lines of every log that is not empty.
    pub(super) fn log_tails(&self) -> String {
        let mut text = String::new();
        for path in &self.logs {
            let log = fs::read(path).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let lines: Vec<&str> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
            if !tail.is_empty() {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                text.push_str(&format!("--- end of {name} ---\n{}\n", tail.join("\n")));
            }
        }
        text
    }

    /// Ends the engine's processes, youngest first, and removes its directory.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        for process in self.state.processes.drain(..).rev() {
            process.end();
        }
        for mut child in self.children.drain(..) {
            // It was told to end, or never got an identity and ended by itself; either way this returns.
            let _ = child.kill();
            let _ = child.wait();
        }
        for file in self.state.litter.drain(..) {
            // Already gone if the engine had time to end in order.
            let _ = fs::remove_file(file);
        }
        if let Err(error) = fs::remove_dir_all(&self.dir)
            && self.dir.exists()
        {
            eprintln!("xtask: cannot remove {}: {error}", self.dir.display());
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if self.lifetime == Lifetime::Bound {
            self.end();
        }
    }
}

/// Where the engines of runs are, below the folder that cargo builds into.
pub(super) fn runs() -> Result<PathBuf> {
    Ok(crate::target()?.join("engines/run"))
}

/// Ends engines whose run is gone; returns which.
pub fn clean_leftovers() -> Vec<String> {
    runs().map(|runs| clean(&runs)).unwrap_or_default()
}

fn clean(runs: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(runs) else { return Vec::new() };
    let mut cleaned = Vec::new();
    for dir in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match Site::open(&dir) {
            Some(site) if site.state.owner.as_ref().is_some_and(Identity::alive) => {}
            Some(site) => {
                site.stop();
                cleaned.push(name);
            }
            // Created this moment by a live run, or a wreck.
            None => {
                let owner = name.split('-').next().and_then(|pid| pid.parse().ok());
                if owner.and_then(Identity::of).is_none() && fs::remove_dir_all(&dir).is_ok() {
                    cleaned.push(name);
                }
            }
        }
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run's directory with one process in its state, as a killed run leaves it.
    fn plant(runs: &Path, owner: Option<Identity>) -> (PathBuf, Child) {
        let dir = runs.join(format!("{}-rclone", std::process::id()));
        let mut site = Site::create(Engine::Rclone, &dir, Lifetime::Detached).expect("a site");
        let mut sleep = Command::new("sleep");
        sleep.arg("60");
        site.spawn("sleep", sleep).expect("started");
        site.state.owner = owner;
        site.save().expect("saved");
        (dir, site.children.remove(0))
    }

    #[test]
    fn leftovers_of_a_dead_run_are_ended_and_those_of_a_live_one_kept() {
        let target = tempfile::tempdir().expect("a directory");
        let runs = target.path();
        let (dir, mut child) = plant(runs, Identity::of(std::process::id()));
        assert_eq!(clean(runs), [""; 0]);
        assert!(child.try_wait().expect("a child").is_none(), "a live run's engine was ended");
        child.kill().and_then(|()| child.wait()).expect("ended");

        let (_, mut child) = plant(runs, None);
        assert_eq!(clean(runs).len(), 1);
        assert!(!dir.exists());
        assert!(child.try_wait().expect("a child").is_some(), "a dead run's engine still runs");
    }

    #[test]
    fn a_bound_engine_ends_with_its_guard() {
        let target = tempfile::tempdir().expect("a directory");
        let dir = target.path().join("site");
        let mut site = Site::create(Engine::Rclone, &dir, Lifetime::Bound).expect("a site");
        let child = Command::new("sleep").arg("60").process_group(0).spawn().expect("started");
        let identity = Identity::of(child.id()).expect("it runs");
        site.state.processes.push(identity.clone());
        site.children.push(child);
        drop(site);
        assert!(!identity.alive() && !dir.exists());
    }

    #[test]
    fn free_ports_differ() {
        let target = tempfile::tempdir().expect("a directory");
        let site =
            Site::create(Engine::Rclone, &target.path().join("site"), Lifetime::Bound).expect("a site");
        let mut ports = site.ports(10).expect("free ports");
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 10);
    }
}
