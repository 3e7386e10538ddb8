//! Parts of the simulator, by themselves.

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use tenure_core::Time;
use tenure_sim::clock::Clock;
use tenure_sim::far_region::write_ms;
use tenure_sim::{FaultKind, FaultMix};

#[test]
fn the_latencies_are_those_that_were_asked_for() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut drawn: Vec<u64> = (0..200_000).map(|_| write_ms(&mut rng)).collect();
    drawn.sort_unstable();
    let at = |share: f64| drawn[(drawn.len() as f64 * share) as usize];
    assert!((215..225).contains(&at(0.5)), "{}", at(0.5));
    assert!((680..740).contains(&at(0.99)), "{}", at(0.99));
    let slow = drawn.iter().filter(|ms| **ms > 1000).count();
    assert!((540..660).contains(&slow), "{slow} of 200,000");
}

#[test]
fn what_it_shows_and_when_agree() {
    let mut clock = Clock::new(500, 800);
    for step in 0..1000u64 {
        let at = Time(clock.local(500 + step).0 + 37);
        let when = clock.when(at).expect("it runs");
        assert!(clock.local(when) >= at && clock.local(when - 1) < at, "{step}");
    }
    let before = clock.local(900);
    clock.set_rate(900, 0);
    assert_eq!(clock.local(5000), before);
    assert_eq!(clock.when(before + 1), None);
    clock.jump(5000, 70);
    assert_eq!(clock.local(9000), before + 70);
}

#[test]
fn every_kind_is_switched_by_itself() {
    for kind in FaultKind::ALL {
        assert!(FaultMix::calm().with(*kind).has(*kind));
        let without = FaultMix::all().without(*kind);
        assert!(FaultKind::ALL.iter().all(|other| without.has(*other) == (other != kind)));
    }
}
