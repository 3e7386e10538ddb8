//! What a cluster may cost in the steady state.

use super::name;
use crate::kind::Kind;
use crate::world::World;

/// Counts requests for this long and compares them with the published cost: one read per election interval for a standby, one
/// write per heartbeat for the leader, one write per presence interval for each node, all by the leader's settings, and nothing
/// else.
pub(crate) fn steady(world: &mut World, ms: u64) {
    // Not all nodes know a leader that has just begun, and some may still be about to claim.
    let look = world.nodes.iter().map(|node| node.config.election_interval_ms).max().unwrap_or(0);
    world.run_for(2 * look + 4 * world.latency_ms.1);
    let Some(leader) = world.acting().first().copied() else { return };
    let before: Vec<_> = world.nodes.iter().map(|node| node.sent).collect();
    let epoch = world.nodes[leader].acting.map(|acting| acting.epoch);
    world.run_for(ms);
    if world.acting() != [leader] || world.nodes[leader].acting.map(|acting| acting.epoch) != epoch {
        let leaders = world.acting();
        world.violated(name::NO_FAIL_BACK, || {
            format!("{leader} led in {epoch:?} and all was calm, but now lead {leaders:?}")
        });
        return;
    }
    let mut wrong = Vec::new();
    let config = world.nodes[leader].config.clone();
    for (index, node) in world.nodes.iter().enumerate().filter(|(_, node)| node.alive && node.running) {
        let local_ms = ms * node.computer.clock.rate() / 1000;
        let sent = |kind: Kind| node.count(kind) - before[index][kind as usize];
        let mut hold = |kind: Kind, interval_ms: u64| {
            let due = local_ms / interval_ms.max(1);
            let (least, most) = (due.saturating_sub(1), due + 1);
            if !(least..=most).contains(&sent(kind)) {
                wrong.push(format!("node {index}: {} {}, due {due}", sent(kind), kind.name()));
            }
        };
        let leads = index == leader;
        let never = if leads { Kind::Read } else { Kind::Renew };
        match leads {
            true => hold(Kind::Renew, config.heartbeat_ms),
            false => hold(Kind::Read, config.election_interval_ms),
        }
        hold(Kind::Presence, config.presence_ms);
        for kind in [never, Kind::Claim, Kind::Vacate, Kind::List, Kind::Probe, Kind::Leave] {
            if sent(kind) > 0 {
                wrong.push(format!("node {index}: {} {}", sent(kind), kind.name()));
            }
        }
    }
    for what in wrong {
        world.violated(name::BUDGET, || format!("in {ms} ms of calm: {what}"));
    }
}
