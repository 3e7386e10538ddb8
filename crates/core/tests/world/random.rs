//! Random schedules: one seed decides everything that happens in a world.

use super::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Faults happen for this long; then everything is mended and the world must settle.
const TROUBLE_MS: u64 = 60_000;

pub struct Outcome {
    pub violations: Vec<String>,
    pub claims: usize,
    pub faults: usize,
    /// Step-downs asked for from outside that reached the seat.
    pub marks: usize,
    /// Same seed, same trace: a digest of everything noted.
    pub trace: u64,
}

/// Runs one schedule. `change` may alter the nodes' configuration, for the deliberately broken ones.
pub fn run(seed: u64, change: impl Fn(&mut Config)) -> Outcome {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut world = World::new();
    let heartbeat_ms = [400, 1000][rng.random_range(0..2)];
    let mut config = Config {
        heartbeat_ms,
        election_interval_ms: heartbeat_ms,
        startup_jitter_max_ms: [0, 500, 5000][rng.random_range(0..3)],
        expiry_factor_permille: [1250, 1500, 3000][rng.random_range(0..3)],
        takeover_delay_ms: [0, 100, 1000][rng.random_range(0..3)],
        presence_ms: 5000,
        drain_ms: 2000,
        ..Config::default()
    };
    change(&mut config);
    world.latency_ms = rng.random_range(5..200);
    // Longer than a sane driver would wait: safety must not hang on it.
    world.timeout_ms = [750, 2000][rng.random_range(0..2)];
    let names: Vec<String> = (0..rng.random_range(3..=5)).map(|index| format!("node-{index}")).collect();
    let mut faults = 0;
    for name in &names {
        world.add(name, config.clone());
        // Within the drift that the smallest expiry factor tolerates.
        world.node(name).rate = rng.random_range(950..=1050);
        world.node(name).dawdles = rng.random_bool(0.5);
        world.node(name).stuck = rng.random_bool(0.1);
        world.input(name, Input::Start { random: rng.random() });
    }
    while world.now < TROUBLE_MS {
        // Misfortunes come alone or in quick succession.
        let longest = if rng.random_bool(0.5) { 1500 } else { 100 };
        let until = world.now + rng.random_range(1..longest);
        world.run_until(until);
        let name = &names[rng.random_range(0..names.len())];
        trouble(&mut world, name, &mut rng);
        faults += 1;
    }
    settle(&mut world, &names, &config, &mut rng);
    if std::env::var_os("TENURE_SEED").is_some() {
        for (at, name, note) in &world.notes {
            println!("{at:>6} {name}: {note:?}");
        }
    }
    let trace = world.notes.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, note| {
        format!("{note:?}")
            .bytes()
            .fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    });
    let marks = world.notes.iter().filter(|(_, _, note)| matches!(note, Note::Marked(_, true))).count();
    Outcome { violations: world.violations, claims: world.store.claims.len(), faults, marks, trace }
}

/// One random misfortune of one node; the leader is hit as often as all others together.
fn trouble(world: &mut World, name: &str, rng: &mut ChaCha8Rng) {
    let leader = world.believers().into_iter().next().filter(|_| rng.random_bool(0.5));
    let name = leader.as_deref().unwrap_or(name);
    let alive = world.nodes[name].alive;
    match rng.random_range(0..15) {
        0 => world.crash(name),
        1 | 2 if !alive => world.restart(name, rng.random()),
        1 => world.node(name).paused = true,
        2 => world.resume(name),
        3 => world.node(name).cut = true,
        4 => world.node(name).cut = false,
        5 => world.input(name, Input::StepDown),
        6 => world.input(name, Input::Stop),
        7 => world.input(name, Input::Start { random: rng.random() }),
        8 => {
            world.node(name).paused = true;
            let until = world.now + rng.random_range(1000..20_000);
            world.run_until(until);
            world.resume(name);
        }
        9..=12 => {
            let fault = match rng.random_range(0..7) {
                0 => Fault::LoseRequest,
                1 => Fault::LoseAnswer,
                2 => Fault::Late(rng.random_range(800..12_000)),
                3 => Fault::Unavailable,
                4 => Fault::Denied,
                5 => Fault::SlowAnswer(rng.random_range(500..2500)),
                _ => Fault::Slow(rng.random_range(100..4000)),
            };
            let kind =
                [Kind::Any, Kind::Claim, Kind::Renew, Kind::Vacate, Kind::Read][rng.random_range(0..5)];
            for _ in 0..rng.random_range(1..4) {
                world.node(name).faults.push_back((kind, fault));
            }
        }
        // Somebody outside asks whoever holds the seat to step down; the mark may arrive late.
        13 => {
            world.mark(rng.random_range(0..1500));
        }
        // A connection that goes bad: one answer crawls in, then nothing comes any more.
        _ => {
            let faults = &mut world.node(name).faults;
            faults.push_back((Kind::Renew, Fault::SlowAnswer(rng.random_range(900..2000))));
            faults.extend((0..8).map(|_| (Kind::Any, Fault::LoseRequest)));
        }
    }
}

/// Everything is mended; somebody must lead soon, and nobody beside them.
fn settle(world: &mut World, names: &[String], config: &Config, rng: &mut ChaCha8Rng) {
    for name in names {
        world.node(name).cut = false;
        world.node(name).faults.clear();
        if !world.node(name).alive {
            world.restart(name, rng.random());
        }
        if world.node(name).paused {
            world.resume(name);
        }
    }
    // A node that is still leaving hears no start; by then everybody has left or stayed.
    let left = world.now + (config.drain_ms + config.lease_ms) * 10 / 9 + 1000;
    world.run_until(left);
    for name in names {
        world.input(name, Input::Start { random: rng.random() });
    }
    // Late landings and slow answers still under way, a drain, the startup wait, and a failover on the slowest clock.
    let bound = 12_000
        + config.drain_ms
        + config.startup_jitter_max_ms
        + config.failover_bound_ms() * 10 / 9
        + 10_000;
    let until = world.now + bound;
    world.run_until(until);
    if let Some(store::SeatObject { stored: store::Stored::Seat(seat), .. }) = &world.store.seat
        && seat.step_down
    {
        world.violations.push(format!("the leader of {:?} was asked to step down and did not", seat.epoch));
    }
    let leaders = world.believers();
    if leaders.len() != 1 {
        world.violations.push(format!("{bound} ms after all was mended the leaders are {leaders:?}"));
    }
}
