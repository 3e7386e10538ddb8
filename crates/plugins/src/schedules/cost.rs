//! What looking for jobs and schedules costs in the steady state.

use super::ScheduleOptions;
use tenure::Settings;
use tenure::clock::millis;
use tenure::metrics::{Prices, ProjectionLine, Surcharge};

/// What a ScheduleRunner adds to the bill of a namespace with this many nodes and up to 1,000 schedules. The leader pays all of
/// it. Does not count jobs, or reads of agents and of changed schedules.
pub fn cost(settings: &Settings, nodes: u64) -> Surcharge {
    let look_ms = millis(ScheduleOptions::default().look_interval);
    let Prices { read_per_1000_micros: read, write_per_1000_micros: write, .. } = Prices::of(settings);
    Surcharge::of(vec![
        ProjectionLine::new("jobs: looks whether anything is asked", nodes.min(1), 1000, read),
        ProjectionLine::new("schedules: list pages", nodes.min(1), look_ms, write),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guides_figure_is_what_comes_out() {
        let settings = Settings::default();
        let dollars = |nodes| cost(&settings, nodes).cost_per_month;
        assert!((dollars(3) - 1.25).abs() < 0.006, "{}", dollars(3));
        assert_eq!((dollars(0), dollars(1)), (0.0, dollars(1000)));
    }
}
