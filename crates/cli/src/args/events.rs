//! The command line of `events`.

use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
#[command(
    after_help = "Each node keeps its own newest 1,000 events since it started. With --follow the command waits for a node that goes away, \
and says when events were missed. If reading needs a token, it is read from the file or from TENURE_HTTP_TOKEN; for a node \
on this machine also from the data directory. Proxies are not used. Exit code 1 if the node does not answer."
)]
pub(crate) struct EventsArgs {
    /// The node's HTTP address
    #[arg(long, value_name = "URL", env = "TENURE_URL", default_value = "http://127.0.0.1:7420")]
    pub(crate) url: url::Url,
    /// Keep printing new events
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// How many recent events to start with
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u64).range(0..=1000))]
    pub(crate) recent: u64,
    /// Include routine events: renewals, reads of the seat
    #[arg(long)]
    pub(crate) all: bool,
    /// Only events whose name contains this, e.g. `leader`
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// One JSON object per line, as `tenure run --events` prints them
    #[arg(long)]
    pub(crate) json: bool,
    /// File with one of the node's tokens, if reading needs one
    #[arg(long, value_name = "FILE", env = "TENURE_HTTP_TOKEN_FILE")]
    pub(crate) token_file: Option<PathBuf>,
}
