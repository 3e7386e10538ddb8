//! The command line of what serves HTTP, and of `token`.

use super::PlaceArgs;
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct HttpArgs {
    /// Address to serve HTTP on; if it is taken, the node runs without
    #[arg(long, value_name = "ADDR", env = "TENURE_HTTP_LISTEN", hide_env = true, default_value = tenure_server::DEFAULT_LISTEN, help_heading = "HTTP")]
    pub(crate) listen: std::net::SocketAddr,
    /// Do not serve HTTP
    #[arg(long, env = "TENURE_NO_HTTP", hide_env = true, help_heading = "HTTP")]
    pub(crate) no_http: bool,
    /// File with the token for changes [default: TENURE_HTTP_TOKEN, else one made at the first start]
    #[arg(long, value_name = "FILE", env = "TENURE_HTTP_TOKEN_FILE", hide_env = true, help_heading = "HTTP")]
    pub(crate) http_token_file: Option<PathBuf>,
    /// File with a read-only token [default: TENURE_HTTP_READ_TOKEN, else reading on loopback needs none]
    #[arg(
        long,
        value_name = "FILE",
        env = "TENURE_HTTP_READ_TOKEN_FILE",
        hide_env = true,
        help_heading = "HTTP"
    )]
    pub(crate) http_read_token_file: Option<PathBuf>,
    /// Host name clients may use besides localhost and IP addresses; may be repeated
    #[arg(long = "http-host", value_name = "NAME", help_heading = "HTTP")]
    pub(crate) http_hosts: Vec<String>,
}

#[derive(Args)]
#[command(
    after_help = "Send it as `Authorization: Bearer TOKEN`, or paste it into the dashboard. `tenure run` makes it at its first start, in a \
file that only this user can read. Anyone who has it can do everything HTTP allows.\n\
Exit code 1 if there is none yet."
)]
pub(crate) struct TokenArgs {
    /// Print where the token is kept, not the token
    #[arg(long)]
    pub(crate) path: bool,
    /// The node's token file, if it was given one
    #[arg(long, value_name = "FILE", env = "TENURE_HTTP_TOKEN_FILE", hide_env = true)]
    pub(crate) http_token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}
