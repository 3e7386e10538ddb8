//! The transcript language: commands in, what happened out. See `testdata/README.md`.

use super::*;
use std::collections::BTreeSet;

pub struct Script {
    pub world: World,
    config: Config,
    shown: BTreeSet<&'static str>,
    saved: Option<store::SeatObject>,
    printed: usize,
}

impl Script {
    pub fn new() -> Script {
        Script {
            world: World::new(),
            config: round_numbers(),
            shown: BTreeSet::new(),
            saved: None,
            printed: 0,
        }
    }

    /// Runs one command line and returns what it printed.
    pub fn command(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (verb, rest) = words.split_first().expect("a command");
        let mut said = String::new();
        match *verb {
            "config" => self.configure(rest),
            "node" => {
                let mut config = self.config.clone();
                std::mem::swap(&mut config, &mut self.config);
                self.configure(&rest[1..]);
                std::mem::swap(&mut config, &mut self.config);
                self.world.add(rest[0], config);
            }
            "start" | "restart" => self.start(verb, rest),
            "run" => {
                let end = self.world.now + number(rest[0]);
                self.world.run_until(end);
                if rest.get(1) == Some(&"quietly") {
                    self.printed = self.world.notes.len();
                }
            }
            "crash" => self.each(rest, |world, name| world.crash(name)),
            "pause" => self.each(rest, |world, name| world.node(name).paused = true),
            "resume" => self.each(rest, World::resume),
            "cut" => self.each(rest, |world, name| world.node(name).cut = true),
            "heal" => self.each(rest, |world, name| world.node(name).cut = false),
            "reset" => *self = Script::new(),
            "stuck" => self.each(rest, |world, name| world.node(name).stuck = true),
            "unstuck" => self.each(rest, World::unstuck),
            "stop" => self.each(rest, |world, name| world.input(name, Input::Stop)),
            "stepdown" => self.each(rest, |world, name| world.input(name, Input::StepDown)),
            "aside" => self.world.input(rest[0], Input::StandAside { hold_ms: number(rest[1]) }),
            "mark" => {
                let asked = self.world.mark(rest.first().map_or(0, |delay| number(delay)));
                self.world.run_until(self.world.now);
                said = if asked { String::new() } else { "nobody to ask\n".to_owned() };
            }
            "fault" => self.fault(rest),
            "seat" => said = self.seat(rest),
            "store" => self.world.store.unsafe_ = rest[0] == "unsafe",
            "latency" => self.world.latency_ms = number(rest[0]),
            "clock" => self.world.node(rest[0]).rate = number(rest[1]),
            "show" => self.shown.extend(rest.iter().map(|word| topic(word))),
            "hide" => self.shown.retain(|topic| !rest.contains(topic)),
            "state" => said = self.state(),
            "requests" => said = self.requests(),
            other => panic!("no command {other:?} in {line:?}"),
        }
        format!("{}{said}", self.drain())
    }

    fn configure(&mut self, pairs: &[&str]) {
        for pair in pairs {
            let (key, value) = pair.split_once('=').expect("key=value");
            let config = &mut self.config;
            match key {
                "heartbeat" => config.heartbeat_ms = number(value),
                "lease" => config.lease_ms = number(value),
                "hold" => config.hold_factor_permille = number(value),
                "factor" => config.expiry_factor_permille = number(value),
                "preset" => {
                    self.world.timeout_ms = preset(value, config);
                }
                "delay" => config.takeover_delay_ms = number(value),
                "interval" => config.election_interval_ms = number(value),
                "settle" => config.settle_ms = number(value),
                "presence" => config.presence_ms = number(value),
                "drain" => config.drain_ms = number(value),
                "eligible" => config.eligible = value == "true",
                "jitter" => {
                    let (min, max) = value.split_once("..").expect("min..max");
                    (config.startup_jitter_min_ms, config.startup_jitter_max_ms) = (number(min), number(max));
                }
                other => panic!("no setting {other:?}"),
            }
        }
    }

    fn start(&mut self, verb: &str, words: &[&str]) {
        let mut random = 0;
        for word in words {
            if let Some(share) = word.strip_prefix("random=") {
                let share: f64 = share.parse().expect("a share of one");
                random = (share * u64::MAX as f64) as u64;
            } else if verb == "restart" {
                self.world.restart(word, random);
            } else {
                if !self.world.nodes.contains_key(*word) {
                    self.world.add(word, self.config.clone());
                }
                self.world.input(word, Input::Start { random });
            }
        }
    }

    fn each(&mut self, names: &[&str], action: impl Fn(&mut World, &str)) {
        names.iter().for_each(|name| action(&mut self.world, name));
    }

    /// `fault NODE FAULT [MS] [on KIND] [x COUNT]`
    fn fault(&mut self, words: &[&str]) {
        let after = |key: &str| words.iter().position(|word| *word == key).map(|index| words[index + 1]);
        let fault = match words[1] {
            "lose-request" => Fault::LoseRequest,
            "lose-answer" => Fault::LoseAnswer,
            "echo" => Fault::Echo,
            "late" => Fault::Late(number(words[2])),
            "slow" => Fault::Slow(number(words[2])),
            "slow-answer" => Fault::SlowAnswer(number(words[2])),
            "unavailable" => Fault::Unavailable,
            "denied" => Fault::Denied,
            other => panic!("no fault {other:?}"),
        };
        let kind = match after("on") {
            None => Kind::Any,
            Some(name) => {
                [Kind::Claim, Kind::Renew, Kind::Vacate, Kind::Read, Kind::Presence, Kind::List, Kind::Probe]
                    .into_iter()
                    .find(|kind| kind_name(*kind) == name)
                    .unwrap_or_else(|| panic!("no kind {name:?}"))
            }
        };
        for _ in 0..after("x").map_or(1, number) {
            self.world.node(words[0]).faults.push_back((kind, fault));
        }
    }

    fn seat(&mut self, words: &[&str]) -> String {
        let now = self.world.now;
        match words[0] {
            "corrupt" => drop(self.world.store.put(now, store::Stored::Garbage(SeatProblem::Corrupt))),
            "newer" => drop(self.world.store.put(now, store::Stored::Garbage(SeatProblem::Newer))),
            "delete" => self.world.store.seat = None,
            "forge" => {
                let holder = Holder { node: NodeId::new(words[1]).unwrap(), incarnation: Incarnation(0xbad) };
                let (epoch, lease) = (Epoch(number(words[2])), self.config.lease());
                let nonce = Nonce { incarnation: holder.incarnation, sequence: now };
                let seat = Seat {
                    epoch,
                    state: SeatState::Held,
                    holder,
                    lease,
                    terms: None,
                    renewals: 0,
                    nonce,
                    step_down: false,
                };
                drop(self.world.store.put(now, store::Stored::Seat(seat)));
            }
            "save" => self.saved = self.world.store.seat.clone(),
            "restore" => self.world.store.seat = self.saved.clone(),
            "print" => {
                return match &self.world.store.seat {
                    None => "seat: none\n".to_owned(),
                    Some(object) => match &object.stored {
                        store::Stored::Garbage(problem) => format!("seat: {problem:?}\n"),
                        store::Stored::Seat(seat) => {
                            let mark = if seat.step_down { ", marked" } else { "" };
                            format!("seat: {:?} {:?} by {}{mark}\n", seat.epoch, seat.state, seat.holder.node)
                        }
                    },
                };
            }
            other => panic!("no seat action {other:?}"),
        }
        String::new()
    }

    fn state(&self) -> String {
        let line = |(name, node): (&String, &Node)| {
            let role = match node.core.role() {
                _ if !node.alive => "dead".to_owned(),
                None => match node.core.leader() {
                    Some((leader, epoch)) => format!("no role, sees {leader} lead in {epoch:?}"),
                    None => "no role".to_owned(),
                },
                Some(role) => format!("{role:?}"),
            };
            let lease = node.core.lease().filter(|_| node.alive);
            let lease =
                lease.map_or(String::new(), |(epoch, deadline)| format!(" {epoch:?} until {}", deadline.0));
            format!("{name}: {role}{lease}\n")
        };
        self.world.nodes.iter().map(line).collect()
    }

    /// Counts of requests since the last such command.
    fn requests(&mut self) -> String {
        let mut said = String::new();
        for (name, node) in &mut self.world.nodes {
            let counts: Vec<String> =
                std::mem::take(&mut node.sent).iter().map(|(kind, n)| format!("{kind} {n}")).collect();
            said += &format!(
                "{name}: {}\n",
                if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
            );
        }
        said
    }

    fn drain(&mut self) -> String {
        let mut said = String::new();
        let notes = self.world.notes[self.printed..].to_vec();
        self.printed = self.world.notes.len();
        for (at, name, note) in notes {
            if let Some(text) = self.describe(&note) {
                said += &format!("{at:>6} {name}: {text}\n");
            }
        }
        for violation in self.world.violations.drain(..) {
            said += &format!("VIOLATION {violation}\n");
        }
        said
    }

    fn describe(&self, note: &Note) -> Option<String> {
        match note {
            Note::Event(Event::ElectionCheck { leader, unchanged_ms }) => self
                .shown
                .contains("checks")
                .then(|| format!("looks: {leader:?}, unchanged for {unchanged_ms}")),
            Note::Event(Event::LeaseRenewed { epoch, deadline, .. }) => {
                self.shown.contains("renewals").then(|| format!("renewed {epoch:?} until {}", deadline.0))
            }
            Note::Event(event @ Event::LostLeadership { reason, .. }) if self.shown.contains("reasons") => {
                Some(format!("{event:?} = {:?}", reason.as_str()))
            }
            Note::Event(event) => Some(format!("{event:?}")),
            Note::Request(request) => {
                self.shown.contains("requests").then(|| format!("-> {}", short(request)))
            }
            Note::Started(epoch) => Some(format!("processes of {epoch:?} start")),
            Note::Stopping(epoch) => Some(format!("processes of {epoch:?} stop")),
            Note::Stopped(cause) => Some(format!("at rest ({cause:?})")),
            Note::Marked(epoch, true) => Some(format!("asks the leader of {epoch:?} to step down")),
            Note::Marked(epoch, false) => {
                Some(format!("could not ask the leader of {epoch:?}: the seat has changed"))
            }
        }
    }
}

fn short(request: &Request) -> String {
    match request {
        Request::Probe => "probe".to_owned(),
        Request::ReadSeat { unless } => format!("read seat unless {unless:?}"),
        Request::WriteSeat { seat, expect } => {
            format!("{} {:?} nonce {:?} if {expect:?}", kind_name(kind_of(request)), seat.epoch, seat.nonce)
        }
        Request::WritePresence { expect, .. } => format!("presence if {expect:?}"),
        Request::RemovePresence => "remove presence".to_owned(),
        Request::ListNodes => "list nodes".to_owned(),
    }
}

fn topic(word: &str) -> &'static str {
    let topics = ["checks", "renewals", "requests", "reasons"];
    topics
        .into_iter()
        .find(|topic| *topic == word)
        .unwrap_or_else(|| panic!("one of {topics:?}, not {word:?}"))
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("a number, not {text:?}"))
}
