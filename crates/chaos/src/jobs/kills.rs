//! The kills: the leader, again and again, and between two of those an agent.

use super::agents::Agents;
use super::history::Kill;
use super::{PATIENCE_MS, Plan, is_told, ms};
use crate::clock::boot_ms;
use crate::cluster::Cluster;
use anyhow::{Result, ensure};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

/// A killed node stays away for this long, and until it is reported missing. With the presence interval of these runs, that
/// happens within the second figure on any machine.
pub(super) const AWAY_MS: u64 = 12_000;
const MISSED_WITHIN_MS: u64 = 40_000;

/// Killed agents stay away longer than a worker's timeout and come back at once, in turns: the leader gives up what the former had,
/// the latter report it themselves.
const AGENT_AWAY_MS: [u64; 2] = [12_000, 1000];

const LOOK_MS: u64 = 50;

/// One kill of an agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentKill {
    pub agent: String,
    /// On the boot-time clock.
    pub killed_ms: u64,
    /// When it was started again.
    pub back_ms: u64,
}

impl AgentKill {
    pub fn is_between(&self, from_ms: u64, until_ms: u64) -> bool {
        (from_ms..=until_ms).contains(&self.killed_ms)
    }
}

/// Who was killed, and who is away: number, place among the kills, and when it may come back.
pub(super) struct Kills<'a> {
    plan: &'a Plan,
    began_ms: u64,
    pub(super) nodes: Vec<Kill>,
    pub(super) agents: Vec<AgentKill>,
    nodes_away: Vec<(usize, usize, u64)>,
    agents_away: Vec<(usize, usize, u64)>,
    led_ms: u64,
}

impl<'a> Kills<'a> {
    pub(super) fn new(plan: &'a Plan, began_ms: u64) -> Kills<'a> {
        let (nodes, agents, nodes_away, agents_away) = Default::default();
        Kills { plan, began_ms, nodes, agents, nodes_away, agents_away, led_ms: began_ms }
    }

    /// Returns once the time is over and everybody is back.
    pub(super) fn play(
        &mut self,
        cluster: &mut Cluster,
        agents: &mut Agents,
        tell: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let every_ms = ms(self.plan.kill_every);
        let end_ms = self.began_ms + ms(self.plan.length);
        let (mut leader_ms, mut agent_ms) = (self.began_ms + every_ms, self.began_ms + every_ms / 2);
        loop {
            let now_ms = boot_ms();
            self.bring_back(cluster, agents, now_ms)?;
            if now_ms > end_ms && self.nodes_away.is_empty() && self.agents_away.is_empty() {
                return Ok(());
            }
            // Whoever cannot be killed at its time is killed as soon as it can be; the times after that stay as they were.
            let is_on = |at_ms: u64| (at_ms..=end_ms).contains(&now_ms);
            if is_on(leader_ms) && self.kill_leader(cluster, tell) {
                leader_ms = next(leader_ms, every_ms);
            }
            if is_on(agent_ms) && self.kill_agent(agents, tell)? {
                agent_ms = next(agent_ms, every_ms);
            }
            cluster.wait(now_ms + LOOK_MS, |_| false)?;
            if cluster.leader().is_some() {
                self.led_ms = boot_ms();
            }
            ensure!(boot_ms() < self.led_ms + PATIENCE_MS, "nobody led for {} s", PATIENCE_MS / 1000);
        }
    }

    fn bring_back(&mut self, cluster: &mut Cluster, agents: &mut Agents, now_ms: u64) -> Result<()> {
        let mut still_away = Vec::new();
        for (slot, place, back_ms) in std::mem::take(&mut self.nodes_away) {
            let Kill { node, killed_ms, .. } = &self.nodes[place];
            let is_missed = || is_told(cluster, "node_down", node, *killed_ms);
            if now_ms >= back_ms && (now_ms >= killed_ms + MISSED_WITHIN_MS || is_missed()) {
                self.nodes[place].back_ms = boot_ms();
                cluster.start(slot, 0)?;
            } else {
                still_away.push((slot, place, back_ms));
            }
        }
        self.nodes_away = still_away;
        let mut still_away = Vec::new();
        for (number, place, back_ms) in std::mem::take(&mut self.agents_away) {
            if now_ms >= back_ms {
                self.agents[place].back_ms = boot_ms();
                agents.start_again(number)?;
            } else {
                still_away.push((number, place, back_ms));
            }
        }
        self.agents_away = still_away;
        Ok(())
    }

    /// Kills whoever leads, if another node could take over and health has told everything about the last time it was killed.
    fn kill_leader(&mut self, cluster: &mut Cluster, tell: &mut dyn FnMut(&str)) -> bool {
        let Some((slot, _, epoch, _)) = cluster.leader() else { return false };
        let node = cluster.name(slot).to_owned();
        let running = (0..cluster.size()).filter(|slot| cluster.is_running(*slot)).count();
        let is_next = self.nodes.last().is_none_or(|last| epoch > last.epoch);
        let before = self.nodes.iter().rev().find(|kill| kill.node == node);
        let is_settled = before.is_none_or(|kill| is_told(cluster, "node_up", &node, kill.back_ms));
        if running < 2 || !is_next || !is_settled {
            return false;
        }
        let killed_ms = cluster.signal(slot, Signal::KILL);
        tell(&format!("{:>4} s  {node} killed in epoch {epoch}", (killed_ms - self.began_ms) / 1000));
        self.nodes_away.push((slot, self.nodes.len(), killed_ms + AWAY_MS));
        self.nodes.push(Kill { node, epoch, killed_ms, back_ms: u64::MAX });
        true
    }

    /// Kills the next agent, if another one runs.
    fn kill_agent(&mut self, agents: &mut Agents, tell: &mut dyn FnMut(&str)) -> Result<bool> {
        let running: Vec<usize> = (0..agents.size()).filter(|number| agents.is_running(*number)).collect();
        let (round, number) = (self.agents.len() / agents.size(), self.agents.len() % agents.size());
        if running.len() < 2 || !running.contains(&number) {
            return Ok(false);
        }
        let (agent, killed_ms) = (agents.name(number).to_owned(), agents.kill(number)?);
        tell(&format!("{:>4} s  {agent} killed", (killed_ms - self.began_ms) / 1000));
        let away_ms = AGENT_AWAY_MS[(round + number) % AGENT_AWAY_MS.len()];
        self.agents_away.push((number, self.agents.len(), killed_ms + away_ms));
        self.agents.push(AgentKill { agent, killed_ms, back_ms: u64::MAX });
        Ok(true)
    }
}

/// The first of these times that is still to come.
fn next(at_ms: u64, every_ms: u64) -> u64 {
    at_ms + every_ms * ((boot_ms().saturating_sub(at_ms)) / every_ms + 1)
}
