//! What health costs, by the formula of the steady state.

use super::HealthOptions;
use serde::Serialize;
use tenure::Settings;
use tenure::metrics::{MONTH_SECONDS, Prices, ProjectionLine};

/// What ClusterHealth adds to the bill of a namespace, all of it on the leader. Not counted: writes because something changed,
/// and reads of nodes that are new.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthCost {
    /// What is done, one line each.
    pub lines: Vec<ProjectionLine>,
    /// All requests of a month.
    pub requests_per_month: f64,
    /// What they cost, in dollars.
    pub cost_per_month: f64,
}

impl HealthCost {
    /// For this many nodes, with the options that fit the settings.
    pub fn new(settings: &Settings, nodes: u64) -> HealthCost {
        let options = HealthOptions::of(settings);
        let prices = Prices::of(settings);
        let every_ms = u64::try_from(options.interval.as_millis()).unwrap_or(u64::MAX);
        let line = |what, nodes: u64, every_ms: u64, micros: u64| {
            let requests_per_month = nodes as f64 * (MONTH_SECONDS * 1000) as f64 / every_ms.max(1) as f64;
            ProjectionLine {
                what,
                nodes,
                every_ms,
                requests_per_month,
                price_per_1000: micros as f64 / 1e6,
                cost_per_month: requests_per_month / 1000.0 * micros as f64 / 1e6,
            }
        };
        let (write, read) = (prices.write_per_1000_micros, prices.read_per_1000_micros);
        let refresh_ms = every_ms.saturating_mul(u64::from(options.refresh_looks.max(1)));
        let others = nodes.saturating_sub(1).min(options.rereads as u64);
        let lines = vec![
            line("health: list pages", nodes.div_ceil(1000), every_ms, write),
            line("health: refreshes", nodes.min(1), refresh_ms, write),
            line("health: presences read", others, every_ms, read),
        ];
        HealthCost {
            requests_per_month: lines.iter().map(|line| line.requests_per_month).sum(),
            cost_per_month: lines.iter().map(|line| line.cost_per_month).sum(),
            lines,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::metrics::Projection;

    fn settings(preset: &str) -> Settings {
        Settings::builder().preset(preset).build().expect("valid")
    }

    #[test]
    fn the_guides_table_is_what_comes_out() {
        for (preset, nodes, said) in [
            ("default", 3, 0.81),
            ("thrifty", 3, 0.16),
            ("fast", 3, 0.97),
            ("default", 5, 0.89),
            ("default", 1000, 0.89),
            ("thrifty", 5, 0.18),
            ("fast", 5, 1.07),
        ] {
            let dollars = HealthCost::new(&settings(preset), nodes).cost_per_month;
            assert!((dollars - said).abs() < 0.006, "{preset} with {nodes}: {dollars}, not {said}");
        }
    }

    /// The bills the defaults were chosen for hold with health on board.
    #[test]
    fn the_budgets_of_the_cost_page_stay_true() {
        let default = settings("default");
        let fifty = Projection::with_workers(&default, 50, 50).cost_per_month
            + HealthCost::new(&default, 50).cost_per_month;
        assert!(fifty / 50.0 <= 4.60, "${} for a node and a month", fifty / 50.0);
        let thrifty = settings("thrifty");
        for nodes in [1, 5, 20, 50, 200, 1000] {
            let all = |workers| {
                let requests = Projection::with_workers(&thrifty, nodes, workers).requests_per_month
                    + HealthCost::new(&thrifty, nodes).requests_per_month;
                requests / nodes as f64 / (MONTH_SECONDS as f64 / 5.0)
            };
            assert!(all(nodes) <= 2.5 && all(0) <= 1.5, "{nodes} nodes: {} and {}", all(nodes), all(0));
        }
    }
}
