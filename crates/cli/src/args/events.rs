//! The command line of `events`.

use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
#[command(
    after_help = "Events are one node's, and of its present life: the newest 1,000 are kept. With --follow a node that goes away is \
waited for; events that were missed are said to be. Where reading needs a token it is read from the file or from TENURE_HTTP_TOKEN; for a node \
on this machine also from the data directory. Proxies are not used. Exit code 1 if the node cannot be asked."
)]
pub(crate) struct EventsArgs {
    /// The node's HTTP address
    #[arg(long, value_name = "URL", env = "TENURE_URL", default_value = "http://127.0.0.1:7420")]
    pub(crate) url: url::Url,
    /// Go on with what happens from now on
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// How many of the newest events to begin with
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u64).range(0..=1000))]
    pub(crate) recent: u64,
    /// Also what is repeated all the time: renewals, looks at the seat
    #[arg(long)]
    pub(crate) all: bool,
    /// Only events whose name contains this, e.g. `leader`
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// One JSON object a line, as `tenure run --events` prints them
    #[arg(long)]
    pub(crate) json: bool,
    /// A file with a token of the node, if reading needs one
    #[arg(long, value_name = "FILE", env = "TENURE_HTTP_TOKEN_FILE")]
    pub(crate) token_file: Option<PathBuf>,
}
