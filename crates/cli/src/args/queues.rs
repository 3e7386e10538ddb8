//! The arguments of `tenure queue`.

use super::{LookArgs, PlaceArgs};
use clap::{Args, Subcommand};

#[derive(Args)]
pub(crate) struct QueueArgs {
    #[command(subcommand)]
    pub(crate) action: QueueAction,
}

#[derive(Subcommand)]
pub(crate) enum QueueAction {
    /// List the queues that have jobs or settings
    Ls(LookArgs),
    /// Show one queue
    Show(QueueOneArgs),
    /// Stop handing out jobs from a queue; running jobs continue
    Pause(QueueOneArgs),
    /// Hand out jobs from a paused queue again
    Resume(QueueOneArgs),
    /// Limit how many jobs of a queue run at once
    Set(QueueSetArgs),
}

#[derive(Args)]
pub(crate) struct QueueOneArgs {
    /// The queue
    pub(crate) name: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Args)]
#[command(
    after_help = "The limit holds across all workers and across a change of leaders. A job whose worker fell silent is no longer \
counted once another worker has it, though it may still run there."
)]
pub(crate) struct QueueSetArgs {
    /// The queue
    pub(crate) name: String,
    /// Most jobs that run at once, or `none`
    #[arg(long, value_name = "COUNT")]
    pub(crate) concurrency: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}
