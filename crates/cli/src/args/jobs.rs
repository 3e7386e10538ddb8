//! The arguments of `tenure job history`.

use super::PlaceArgs;
use super::time::past;
use clap::Args;
use std::time::SystemTime;

#[derive(Args)]
#[command(
    after_help = "Newest first. A job is listed within seconds of its end, a failed one at once, and for `jobRetention` (7 days). Costs \
at most 5 reads, however many jobs there are.\n\
A page of a narrow search can be short and go on all the same: the last line says how.\n\
`tenure history` shows the terms of leaders."
)]
pub(crate) struct JobHistoryArgs {
    /// Only jobs of this schedule
    #[arg(long, value_name = "ID")]
    pub(crate) schedule: Option<String>,
    /// Only jobs of this queue
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,
    /// Only jobs that ended in this state: succeeded, failed, timed_out, lost, expired, …
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<String>,
    /// Only jobs that ended within this time, or since this moment: 2h, 2026-12-24T18:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = past)]
    pub(crate) since: Option<SystemTime>,
    /// Only jobs that had ended this long ago, or by this moment
    #[arg(long, value_name = "WHEN", value_parser = past)]
    pub(crate) until: Option<SystemTime>,
    /// Go on after a page that ended here
    #[arg(long, value_name = "NUMBER")]
    pub(crate) before: Option<u64>,
    /// Most jobs to show
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) limit: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}
