//! What health costs in the steady state.

use super::HealthOptions;
use tenure::Settings;
use tenure::clock::millis;
use tenure::metrics::{Prices, ProjectionLine, Surcharge};

/// What ClusterHealth adds to the bill of a namespace with this many nodes, with the options derived from the settings. The
/// leader pays all of it. Does not count writes caused by changes, or reads of new nodes.
pub fn cost(settings: &Settings, nodes: u64) -> Surcharge {
    let options = HealthOptions::of(settings);
    let prices = Prices::of(settings);
    let every_ms = millis(options.interval);
    let (write, read) = (prices.write_per_1000_micros, prices.read_per_1000_micros);
    let refresh_ms = every_ms.saturating_mul(u64::from(options.refresh_looks.max(1)));
    let others = nodes.saturating_sub(1).min(options.rereads as u64);
    Surcharge::of(vec![
        ProjectionLine::new("health: list pages", nodes.div_ceil(1000), every_ms, write),
        ProjectionLine::new("health: refreshes", nodes.min(1), refresh_ms, write),
        ProjectionLine::new("health: presences read", others, every_ms, read),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::metrics::{MONTH_SECONDS, Projection};
    use tenure::settings::Preset;

    fn settings(preset: Preset) -> Settings {
        Settings::builder().preset(preset).build().expect("valid")
    }

    #[test]
    fn the_guides_table_is_what_comes_out() {
        for (preset, nodes, said) in [
            (Preset::Default, 3, 0.81),
            (Preset::Thrifty, 3, 0.16),
            (Preset::Fast, 3, 0.97),
            (Preset::Default, 5, 0.89),
            (Preset::Default, 1000, 0.89),
            (Preset::Thrifty, 5, 0.18),
            (Preset::Fast, 5, 1.07),
        ] {
            let dollars = cost(&settings(preset), nodes).cost_per_month;
            assert!((dollars - said).abs() < 0.006, "{preset} with {nodes}: {dollars}, not {said}");
        }
    }

    /// The budgets behind the defaults still hold with health running.
    #[test]
    fn the_budgets_of_the_cost_page_stay_true() {
        let default = settings(Preset::Default);
        let fifty =
            Projection::with_workers(&default, 50, 50).cost_per_month + cost(&default, 50).cost_per_month;
        assert!(fifty / 50.0 <= 4.60, "${} for a node and a month", fifty / 50.0);
        let thrifty = settings(Preset::Thrifty);
        for nodes in [1, 5, 20, 50, 200, 1000] {
            let all = |workers| {
                let requests = Projection::with_workers(&thrifty, nodes, workers).requests_per_month
                    + cost(&thrifty, nodes).requests_per_month;
                requests / nodes as f64 / (MONTH_SECONDS as f64 / 5.0)
            };
            assert!(all(nodes) <= 2.5 && all(0) <= 1.5, "{nodes} nodes: {} and {}", all(nodes), all(0));
        }
    }
}
