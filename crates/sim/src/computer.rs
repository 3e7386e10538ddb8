//! A computer: its clocks and its link to the store. A node and the workers in its process share one.

use crate::clock::Clock;
use crate::kind::Kind;
use crate::network::Fate;
use crate::queue::Run;
use crate::shell::Who;
use crate::world::World;
use std::collections::VecDeque;

/// Wall clocks start here.
pub(crate) const WALL_MS: u64 = 1_000_000_000;

pub(crate) struct Computer {
    pub(crate) clock: Clock,
    /// The clock's rate while the computer is awake.
    pub(crate) awake_rate: u64,
    pub(crate) last_jump: u64,
    /// How far its wall clock is off.
    pub(crate) wall_off_ms: i64,
    /// It stands still.
    pub(crate) paused: bool,
    /// Its requests do not arrive.
    pub(crate) cut_out: bool,
    /// Its answers do not arrive.
    pub(crate) cut_in: bool,
    /// How many requests in a thousand meet a fault.
    pub(crate) burst: u32,
    /// Faults that wait for a matching request.
    pub(crate) faults: VecDeque<(Option<Kind>, Fate)>,
    /// What changed while it stood still, of whom and in which life.
    pub(crate) held: Vec<(Who, u64, Run)>,
}

impl Computer {
    pub(crate) fn new(now: u64, rate: u64) -> Computer {
        Computer {
            clock: Clock::new(now, rate),
            awake_rate: rate,
            last_jump: 0,
            wall_off_ms: 0,
            paused: false,
            cut_out: false,
            cut_in: false,
            burst: 0,
            faults: VecDeque::new(),
            held: Vec::new(),
        }
    }

    /// Repairs the link.
    pub(crate) fn mend_link(&mut self) {
        (self.cut_out, self.cut_in, self.burst) = (false, false, 0);
        self.faults.clear();
    }
}

impl World {
    pub(crate) fn computer(&self, who: Who) -> &Computer {
        match who {
            Who::Node(node) => &self.nodes[node].computer,
            Who::Worker(index) => {
                let worker = &self.workers[index];
                worker.node.map_or(&worker.computer, |node| &self.nodes[node].computer)
            }
        }
    }

    pub(crate) fn computer_mut(&mut self, who: Who) -> &mut Computer {
        match who {
            Who::Node(node) => &mut self.nodes[node].computer,
            Who::Worker(index) => match self.workers[index].node {
                Some(node) => &mut self.nodes[node].computer,
                None => &mut self.workers[index].computer,
            },
        }
    }

    /// Everybody on the same computer.
    pub(crate) fn sharing(&self, who: Who) -> Vec<Who> {
        match who {
            Who::Node(node) => std::iter::once(who).chain(self.workers_on(node).map(Who::Worker)).collect(),
            Who::Worker(_) => vec![who],
        }
    }

    pub(crate) fn wall(&self, who: Who) -> u64 {
        (WALL_MS + self.now).saturating_add_signed(self.computer(who).wall_off_ms)
    }

    pub(crate) fn is_up(&self, who: Who) -> bool {
        match who {
            Who::Node(node) => self.nodes[node].alive,
            Who::Worker(index) => self.workers[index].alive,
        }
    }

    /// The incarnation of a node's or a worker's process.
    pub(crate) fn life(&self, who: Who) -> u64 {
        match who {
            Who::Node(node) => self.nodes[node].life,
            Who::Worker(index) => self.workers[index].life,
        }
    }

    pub(crate) fn count_sent(&mut self, who: Who, kind: Kind) {
        match who {
            Who::Node(node) => {
                self.nodes[node].sent[kind as usize] += 1;
                self.check_job_rate(node, kind);
            }
            Who::Worker(index) => self.workers[index].sent[kind as usize] += 1,
        }
    }
}
