//! The nodes: processes of the binary, their events, and signals to them.

use crate::clock::boot_ms;
use crate::leadership::Said;
use crate::record::LifeRecord;
use anyhow::{Context, Result};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tenure_rig::process;

/// How often to check the processes while no event arrives.
const LOOK: Duration = Duration::from_millis(20);

/// A run with more unexpected failures than this is not worth continuing.
const COMPLAINTS_MAX: usize = 20;

#[derive(Clone, Debug)]
pub struct Launch {
    pub binary: PathBuf,
    pub store: String,
    pub preset: String,
    /// The path of libfaketime, if it is installed.
    pub faketime: Option<PathBuf>,
    /// Keys and the like, the same for all nodes.
    pub environment: Vec<(String, String)>,
}

impl Launch {
    pub fn settings(&self) -> Vec<String> {
        let mut all = self.place();
        all.extend(["--startup-jitter-max", "0", "--preset", &self.preset].map(str::to_owned));
        all
    }

    /// The store and namespace: all that read-only commands need.
    pub fn place(&self) -> Vec<String> {
        ["--namespace", "chaos", "--store", &self.store].map(str::to_owned).to_vec()
    }

    /// The binary, with a clean environment except for what it is meant to get.
    pub fn command(&self, home: &Path) -> Command {
        // Started through this very program, which ties it to our own life and then becomes it.
        let mut command = process::bound(&Command::new(&self.binary));
        command.env_clear().envs(self.environment.iter().cloned()).current_dir(home).stdin(Stdio::null());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", home);
        command
    }
}

/// One process of a node.
#[derive(Debug)]
struct Life {
    record: LifeRecord,
    slot: usize,
    child: Child,
    /// It was told to end, so its end is no surprise.
    asked: bool,
    paused_ms: Option<u64>,
    joined: bool,
    leads: Option<u64>,
    renewed_ms: u64,
    readers: Vec<JoinHandle<()>>,
}

impl Drop for Life {
    fn drop(&mut self) {
        // Kills a stopped process too; an error means that it is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One node: how to start it, and its process while it has one.
#[derive(Debug)]
struct Slot {
    name: String,
    environment: Vec<(String, String)>,
    /// Where it serves HTTP, if it does.
    listen: Option<SocketAddr>,
    life: Option<usize>,
}

#[derive(Debug)]
pub struct Cluster {
    launch: Launch,
    dir: PathBuf,
    slots: Vec<Slot>,
    lives: Vec<Life>,
    inbox: Receiver<Said>,
    mouth: Sender<Said>,
    events: Arc<Mutex<BufWriter<File>>>,
    complaints: Vec<String>,
    refused_at_start: usize,
    history: Vec<Said>,
}

impl Cluster {
    /// Creates nodes that do not run yet; their output goes into the record's directory.
    pub fn new(launch: Launch, dir: &Path, nodes: Vec<(String, Vec<(String, String)>)>) -> Result<Cluster> {
        std::fs::create_dir_all(dir.join("logs"))?;
        let events = BufWriter::new(File::create(dir.join("events.jsonl"))?);
        let (mouth, inbox) = channel();
        Ok(Cluster {
            launch,
            dir: dir.to_path_buf(),
            slots: nodes
                .into_iter()
                .map(|(name, environment)| Slot { name, environment, listen: None, life: None })
                .collect(),
            lives: Vec::new(),
            inbox,
            mouth,
            events: Arc::new(Mutex::new(events)),
            complaints: Vec::new(),
            refused_at_start: 0,
            history: Vec::new(),
        })
    }

    /// The number of nodes, running or not.
    pub fn size(&self) -> usize {
        self.slots.len()
    }

    pub fn name(&self, slot: usize) -> &str {
        &self.slots[slot].name
    }

    /// From its next start on, the node serves HTTP on this address.
    pub fn listen(&mut self, slot: usize, address: SocketAddr) {
        self.slots[slot].listen = Some(address);
    }

    /// Starts a node, with its wall clock shifted by this many seconds.
    pub fn start(&mut self, slot: usize, skew_s: i64) -> Result<()> {
        let (life, Slot { name, environment, listen, .. }) = (self.lives.len(), &self.slots[slot]);
        let mut command = self.launch.command(&self.dir);
        command.args(["run", "--events", "--node", name]).args(self.launch.settings());
        match listen {
            Some(address) => command.args(["--listen", &address.to_string()]),
            // Dozens of nodes on one machine would all want the same port.
            None => command.arg("--no-http"),
        };
        command.envs(environment.iter().cloned());
        if let Some(library) = self.launch.faketime.as_ref().filter(|_| skew_s != 0) {
            // Shift only the wall clock: leases use other clocks, which must not change.
            command.env("LD_PRELOAD", library).env("FAKETIME", format!("{skew_s:+}s"));
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
        }
        let log = File::create(self.dir.join(format!("logs/{life:03}-{name}.log")))?;
        let started_ms = boot_ms();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().context("cannot start a node")?;
        let stdout = child.stdout.take().context("stdout is piped")?;
        let (mouth, events, name) = (self.mouth.clone(), Arc::clone(&self.events), name.clone());
        let node = name.clone();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let event =
                    serde_json::from_str(&line).unwrap_or_else(|_| serde_json::json!({ "garbage": line }));
                let said = Said { life, node: node.clone(), event, heard_ms: Some(boot_ms()) };
                let mut events = events.lock();
                let _ = serde_json::to_writer(&mut *events, &said).map(|()| events.write_all(b"\n"));
                let _ = mouth.send(said);
            }
        });
        let record = LifeRecord {
            life,
            node: name,
            started_ms,
            skew_s,
            pauses: Vec::new(),
            told_ms: None,
            ended_ms: None,
            code: None,
            killed: false,
        };
        let (asked, paused_ms, joined, leads, renewed_ms) = Default::default();
        let readers = vec![reader];
        self.lives.push(Life { record, slot, child, asked, paused_ms, joined, leads, renewed_ms, readers });
        self.slots[slot].life = Some(life);
        Ok(())
    }

    /// Sends a signal to a running node and returns a time just before it was sent.
    pub fn signal(&mut self, slot: usize, signal: Signal) -> u64 {
        let now_ms = boot_ms();
        let Some(life) = self.slots[slot].life.map(|life| &mut self.lives[life]) else { return now_ms };
        let is_end = signal == Signal::KILL || signal == Signal::TERM;
        life.asked |= is_end;
        if is_end {
            life.record.told_ms = Some(now_ms);
            life.record.killed |= signal == Signal::KILL;
        }
        if signal == Signal::STOP {
            life.paused_ms = Some(now_ms);
        }
        // An error means that it is already gone, which the next check finds out.
        let _ = kill_process(Pid::from_child(&life.child), signal);
        if let Some(from_ms) = life.paused_ms.filter(|_| signal == Signal::CONT) {
            life.record.pauses.push((from_ms, boot_ms()));
            life.paused_ms = None;
        }
        now_ms
    }

    /// Listens to all nodes and checks on them until the condition holds or the time is up.
    pub fn wait(&mut self, until_ms: u64, mut is_true: impl FnMut(&Cluster) -> bool) -> Result<bool> {
        loop {
            self.look_after()?;
            if is_true(self) {
                return Ok(true);
            }
            let left_ms = until_ms.saturating_sub(boot_ms());
            if left_ms == 0 {
                return Ok(false);
            }
            match self.inbox.recv_timeout(LOOK.min(Duration::from_millis(left_ms))) {
                Ok(said) => {
                    self.hear(&said);
                    while let Ok(said) = self.inbox.try_recv() {
                        self.hear(&said);
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }

    fn hear(&mut self, said: &Said) {
        self.history.push(said.clone());
        let life = &mut self.lives[said.life];
        match said.name() {
            "joined" => life.joined = true,
            "became_leader" => life.leads = said.event["epoch"].as_u64(),
            "lease_renewed" => life.renewed_ms = said.event["bootMs"].as_u64().unwrap_or(0),
            "lost_leadership" => life.leads = None,
            "" => self.complaints.push(format!("{} printed what is no event: {}", said.node, said.event)),
            _ => {}
        }
    }

    fn look_after(&mut self) -> Result<()> {
        for index in 0..self.lives.len() {
            let life = &mut self.lives[index];
            if life.record.ended_ms.is_some() {
                continue;
            }
            let Some(status) = life.child.try_wait().context("wait for a node")? else { continue };
            life.record.ended_ms = Some(boot_ms());
            life.record.code = status.code();
            life.leads = None;
            let (slot, asked, node, joined) = (life.slot, life.asked, life.record.node.clone(), life.joined);
            let (killed, skew_s) = (life.record.killed, life.record.skew_s);
            self.slots[slot].life = None;
            if asked {
                if !killed && status.code() != Some(0) {
                    self.complaints.push(format!("{node} was asked to stop and ended with {status}"));
                }
            } else if self.complaints.len() > COMPLAINTS_MAX {
                anyhow::bail!("too much went wrong by itself, at last: {node} ended with {status}");
            } else if !joined && status.code() == Some(4) {
                // A store that is just starting may refuse requests; a node that has not joined yet reports that and exits.
                self.refused_at_start += 1;
                self.start(slot, skew_s)?;
            } else {
                self.complaints.push(format!("{node} ended by itself with {status}"));
                self.start(slot, 0)?;
            }
        }
        Ok(())
    }

    pub fn history(&self) -> &[Said] {
        &self.history
    }

    pub fn is_running(&self, slot: usize) -> bool {
        self.slots[slot].life.is_some()
    }

    /// Whether every node runs and knows the others.
    pub fn all_joined(&self) -> bool {
        self.slots.iter().all(|slot| slot.life.is_some_and(|life| self.lives[life].joined))
    }

    /// The leader, by the latest events of the running nodes: node, process, epoch, and last renewal.
    pub fn leader(&self) -> Option<(usize, usize, u64, u64)> {
        let running = self.slots.iter().filter_map(|slot| slot.life);
        let leading = running.filter_map(|life| Some((self.lives[life].leads?, life)));
        let (epoch, life) = leading.max()?;
        let life = &self.lives[life];
        Some((life.slot, life.record.life, epoch, life.renewed_ms))
    }

    /// Ends all processes and waits until all their output is read. Returns the processes and what went wrong with them.
    pub fn finish(mut self) -> Result<(Vec<LifeRecord>, Vec<String>, usize)> {
        for slot in 0..self.slots.len() {
            self.signal(slot, Signal::KILL);
        }
        self.wait(boot_ms() + 10_000, |cluster| (0..cluster.size()).all(|slot| !cluster.is_running(slot)))?;
        for life in &mut self.lives {
            for reader in life.readers.drain(..) {
                let _ = reader.join();
            }
        }
        while let Ok(said) = self.inbox.try_recv() {
            self.hear(&said);
        }
        self.events.lock().flush()?;
        let lives = self.lives.iter().map(|life| life.record.clone()).collect();
        Ok((lives, std::mem::take(&mut self.complaints), self.refused_at_start))
    }
}
