//! What requests cost: by measured rates, and by a formula for the steady state.

use crate::clock::millis;
use crate::settings::Settings;
use serde::Serialize;
use tenure_store::StoreUrl;

/// Seconds in a month of 30 days.
pub const MONTH_SECONDS: u64 = 30 * 24 * 60 * 60;

/// Prices of requests, in millionths of a dollar per 1,000.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prices {
    /// For writes and list pages.
    pub write_per_1000_micros: u64,
    /// For reads.
    pub read_per_1000_micros: u64,
}

impl Prices {
    /// The prices in these settings.
    pub fn of(settings: &Settings) -> Prices {
        Prices {
            write_per_1000_micros: settings.price_write_per_1000_micros,
            read_per_1000_micros: settings.price_read_per_1000_micros,
        }
    }

    /// The prices that the store of these settings charges: a file costs nothing.
    pub(crate) fn billed(settings: &Settings) -> Prices {
        match settings.store {
            StoreUrl::Sqlite { .. } => Prices { write_per_1000_micros: 0, read_per_1000_micros: 0 },
            StoreUrl::Memory { .. } | StoreUrl::Bucket { .. } => Prices::of(settings),
        }
    }

    /// Dollars per month at these rates.
    pub fn per_month(&self, writes_per_second: f64, reads_per_second: f64) -> f64 {
        let month = MONTH_SECONDS as f64;
        dollars(writes_per_second * month, self.write_per_1000_micros)
            + dollars(reads_per_second * month, self.read_per_1000_micros)
    }
}

fn dollars(requests: f64, per_1000_micros: u64) -> f64 {
    requests / 1000.0 * per_1000_micros as f64 / 1e6
}

/// What a namespace will cost in steady state, according to its settings.
///
/// Not counted: starts, elections, retries, and requests made by anything other than the nodes themselves.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Projection {
    /// Number of nodes: one leads, the others stand by.
    pub nodes: u64,
    /// Number of workers, wherever they run.
    pub workers: u64,
    /// Their regular requests, one line each.
    pub lines: Vec<ProjectionLine>,
    /// Requests per month.
    pub requests_per_month: f64,
    /// Dollars per month.
    pub cost_per_month: f64,
}

/// One kind of regular request and its cost.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProjectionLine {
    /// What the request is for.
    pub what: &'static str,
    /// How many nodes make it; for workers, how many workers; for lists, how many pages.
    pub nodes: u64,
    /// How often each one makes it.
    pub every_ms: u64,
    /// Requests per month.
    pub requests_per_month: f64,
    /// Dollars per 1,000 requests.
    pub price_per_1000: f64,
    /// Dollars per month.
    pub cost_per_month: f64,
}

impl ProjectionLine {
    /// `nodes` nodes, workers or pages, each every `every_ms`, at this price per 1,000 in millionths of a dollar.
    pub fn new(what: &'static str, nodes: u64, every_ms: u64, per_1000_micros: u64) -> ProjectionLine {
        let requests = nodes as f64 * (MONTH_SECONDS * 1000) as f64 / every_ms.max(1) as f64;
        ProjectionLine {
            what,
            nodes,
            every_ms,
            requests_per_month: requests,
            price_per_1000: per_1000_micros as f64 / 1e6,
            cost_per_month: dollars(requests, per_1000_micros),
        }
    }
}

/// What something that runs on a namespace's nodes adds to the bill.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Surcharge {
    /// Its regular requests, one line each.
    pub lines: Vec<ProjectionLine>,
    /// Requests per month.
    pub requests_per_month: f64,
    /// Dollars per month.
    pub cost_per_month: f64,
}

impl Surcharge {
    /// Adds these lines up.
    pub fn of(lines: Vec<ProjectionLine>) -> Surcharge {
        Surcharge {
            requests_per_month: lines.iter().map(|line| line.requests_per_month).sum(),
            cost_per_month: lines.iter().map(|line| line.cost_per_month).sum(),
            lines,
        }
    }
}

impl Projection {
    /// For this many nodes, all eligible, without workers.
    pub fn new(settings: &Settings, nodes: u64) -> Projection {
        Projection::with_workers(settings, nodes, 0)
    }

    /// For this many nodes, all eligible, and this many workers in the nodes' processes.
    pub fn with_workers(settings: &Settings, nodes: u64, workers: u64) -> Projection {
        let prices = Prices::of(settings);
        let line = ProjectionLine::new;
        let (write, read) = (prices.write_per_1000_micros, prices.read_per_1000_micros);
        // One list page per 1,000 workers; a quarter as often while there are none.
        let pages = workers.div_ceil(1000).max(1) * nodes.min(1);
        let sweep_ms = millis(settings.worker_sweep_interval) * if workers == 0 { 4 } else { 1 };
        let mut lines = vec![
            line("renewals of the leader", nodes.min(1), millis(settings.heartbeat_interval), write),
            line("looks of the standbys", nodes.saturating_sub(1), millis(settings.election_interval), read),
            line("presences", nodes, millis(settings.presence_interval), write),
            line("list pages of the leader", pages, sweep_ms, write),
        ];
        if workers > 0 {
            lines.push(line(
                "heartbeats of workers",
                workers,
                millis(settings.worker_heartbeat_interval),
                write,
            ));
        }
        let Surcharge { lines, requests_per_month, cost_per_month } = Surcharge::of(lines);
        Projection { nodes, workers, lines, requests_per_month, cost_per_month }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Preset;

    fn projected(preset: Preset, nodes: u64) -> (f64, f64) {
        let settings = Settings::builder().preset(preset).build().expect("valid");
        let projection = Projection::new(&settings, nodes);
        (projection.requests_per_month, projection.cost_per_month)
    }

    #[test]
    fn the_projection_agrees_with_the_table_of_the_tuning_page() {
        for (preset, nodes, said) in [
            (Preset::Default, 3, 13.31),
            (Preset::Default, 10, 25.10),
            (Preset::Thrifty, 3, 3.31),
            (Preset::Fast, 3, 54.09),
        ] {
            let (_, dollars) = projected(preset, nodes);
            assert!((dollars - said).abs() < 0.02, "{preset} with {nodes}: {dollars}, not {said}");
        }
        assert_eq!(projected(Preset::Default, 1).0, 1_728_000.0 + 129_600.0 + 129_600.0);
        assert_eq!(projected(Preset::Default, 0), (0.0, 0.0));
    }

    #[test]
    fn workers_keep_within_the_bill_the_defaults_were_chosen_for() {
        let with = |preset: Preset, nodes, workers| {
            let settings = Settings::builder().preset(preset).build().expect("valid");
            Projection::with_workers(&settings, nodes, workers)
        };
        let fifty = with(Preset::Default, 50, 50).cost_per_month / 50.0;
        assert!((4.40..=4.50).contains(&fifty), "${fifty} for a node and a month");
        let one = with(Preset::Thrifty, 1, 1).requests_per_month / (MONTH_SECONDS as f64 / 5.0);
        assert!((1.90..=2.00).contains(&one), "{one} requests in 5 s");
        let crowd = with(Preset::Default, 1, 10_000);
        let lists = crowd.lines.iter().find(|line| line.what.starts_with("list")).expect("a line");
        assert_eq!((lists.nodes, lists.every_ms), (10, 5000), "a page for each 1,000");
    }
}
