//! HTTP for `tenure run`: where, and with which token.

use crate::args::RunArgs;
use crate::exit::Failure;
use std::path::Path;
use tenure::settings::Resolved;
use tenure::{Event, Node};
use tenure_server::{Bound, Options, Parts, Server, Token};
use tokio::sync::broadcast;

/// The token, if no file is named. Never a flag: others could read it in the list of processes.
const TOKEN_VARIABLE: &str = "TENURE_HTTP_TOKEN";

/// No file with a token is longer.
const TOKEN_FILE_MAX: u64 = 64 * 1024;

/// An address that was taken, or what to say about one that was not to be had.
pub(crate) enum Web {
    Bound(Box<Bound>),
    Taken(String),
}

impl Web {
    /// Checks what was asked for, and takes the address. `None`: no HTTP is wanted.
    pub(crate) fn prepare(args: &RunArgs) -> Result<Option<Web>, Failure> {
        if args.no_http {
            return Ok(None);
        }
        let mut options =
            Options::new(args.listen, token(args.http_token_file.as_deref())?).map_err(Failure::usage)?;
        for host in &args.http_hosts {
            options = options.host(host).map_err(|error| Failure::usage(format!("--http-host: {error}")))?;
        }
        Ok(Some(match Server::bind(options) {
            Ok(bound) => Web::Bound(Box::new(bound)),
            Err(error) => Web::Taken(format!(
                "http: {} cannot be had ({error}); the node runs without HTTP. --listen chooses another address",
                args.listen
            )),
        }))
    }

    /// Serves the node. What goes wrong is told, and does not end the node.
    pub(crate) fn serve(
        self,
        node: &Node,
        events: broadcast::Receiver<Event>,
        resolved: &Resolved,
    ) -> Option<Server> {
        let served = match self {
            Web::Bound(bound) => (*bound).serve(Parts::of(node).events(events).config(resolved)),
            Web::Taken(words) => {
                tracing::warn!("{words}");
                return None;
            }
        };
        match served {
            Ok(server) => {
                tracing::info!("http: listening on http://{}", server.address());
                Some(server)
            }
            Err(error) => {
                tracing::warn!("http: cannot serve: {error}");
                None
            }
        }
    }
}

fn token(file: Option<&Path>) -> Result<Option<Token>, Failure> {
    let text = text(file)?;
    let checked = text.map(|text| Token::new(&text)).transpose();
    checked.map_err(|error| match file {
        Some(path) => Failure::usage(format!("--http-token-file {}: {error}", path.display())),
        None => Failure::usage(format!("{TOKEN_VARIABLE}: {error}")),
    })
}

/// The token as it stands in the file, or in the environment.
pub(crate) fn text(file: Option<&Path>) -> Result<Option<String>, Failure> {
    Ok(match file {
        Some(path) => Some(read(path)?),
        None => match std::env::var(TOKEN_VARIABLE) {
            Ok(text) => Some(text),
            Err(std::env::VarError::NotPresent) => None,
            Err(std::env::VarError::NotUnicode(_)) => {
                return Err(Failure::usage(format!("{TOKEN_VARIABLE} is no text")));
            }
        },
    })
}

fn read(path: &Path) -> Result<String, Failure> {
    let failed = |error: std::io::Error| {
        Failure::usage(format!("--http-token-file {} cannot be read: {error}", path.display()))
    };
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > TOKEN_FILE_MAX {
        return Err(Failure::usage(format!(
            "--http-token-file {}: {size} bytes are no token",
            path.display()
        )));
    }
    std::fs::read_to_string(path).map_err(failed)
}
