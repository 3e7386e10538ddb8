//! A far region: two nodes for days on a store whose writes take long, and now and then very long.

use crate::fault::FaultMix;
use crate::node::Work;
use crate::world::World;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use tenure_core::Config;

/// What happened to leadership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FarOutcome {
    /// Renewals sent.
    pub renewals: u64,
    /// How often work was told to stop because a renewal did not get through.
    pub stops: u64,
    /// How often leadership was lost.
    pub losses: u64,
}

/// What a world records about it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Far {
    /// Writes take as long as to a far region.
    pub(crate) writes: bool,
    /// How often work was told to stop because a renewal did not get through.
    pub(crate) stops: u64,
    /// How often leadership was lost.
    pub(crate) losses: u64,
}

/// The time of a write, there and back: median 220 ms, p99 700 ms, 0.3 % above 1 s. A log-normal body, and a tail for the rest:
/// 0.18 % take a second and, on average, half a second more.
pub fn write_ms(rng: &mut ChaCha8Rng) -> u64 {
    if rng.random_bool(0.0018) {
        let share: f64 = rng.random();
        return 1000 + (-500.0 * share.max(1e-9).ln()) as u64;
    }
    // Two uniform draws make one normal draw.
    let (a, b): (f64, f64) = (rng.random(), rng.random());
    let normal = (-2.0 * a.max(1e-12).ln()).sqrt() * (std::f64::consts::TAU * b).cos();
    (220.0 * (0.4976 * normal).exp()) as u64
}

/// Runs two nodes with these settings for this many days.
pub fn far(config: Config, days: u64, seed: u64) -> FarOutcome {
    let mut world = World::new(seed, FaultMix::calm());
    world.far.writes = true;
    // A month of renewals is only counted, not compared with the proof: that would remember every write.
    world.modelled = false;
    world.latency_ms = (10, 40);
    world.timeout_ms = config.hold_ms() * 3 / 10;
    for name in ["node-0", "node-1"] {
        let node = world.add(name, config.clone(), 1000, Work::Prompt);
        world.start(node, 0);
    }
    world.run_for(days * 86_400_000);
    let renewals = world.nodes.iter().map(|node| node.count(crate::kind::Kind::Renew)).sum();
    FarOutcome { renewals, stops: world.far.stops, losses: world.far.losses }
}
