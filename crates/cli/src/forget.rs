//! `tenure node forget`: removes the presence of a node that is gone.

use crate::args::OneArgs;
use crate::exit::Failure;
use crate::out::{say, say_json};
use crate::status::existing;
use std::process::ExitCode;
use tenure::admin::{Forgot, forget_node};
use tenure::{Namespace, NodeId};

pub(crate) async fn forget(args: OneArgs) -> Result<ExitCode, Failure> {
    let settings = args.settings.load()?.settings;
    let namespace = Namespace::new(&settings.namespace).map_err(Failure::usage)?;
    let node = NodeId::new(&args.id).map_err(Failure::usage)?;
    let unknown = || Failure::missing(format!("there is no node {node} in {namespace}"));
    let lanes = existing(&settings).await?.ok_or_else(unknown)?;
    let ago = match forget_node(&lanes, &namespace, &node).await? {
        Forgot::Removed { last_seen_ago } => last_seen_ago,
        Forgot::Unknown => return Err(unknown()),
        Forgot::Leads => {
            return Err(Failure::other(format!(
                "{node} leads {namespace}: stop it first, or run `tenure step-down`"
            )));
        }
    };
    if args.json {
        let namespace = namespace.as_str();
        let report = serde_json::json!({"namespace": namespace, "node": node.as_str(), "lastSeenMsAgo": ago.as_millis() as u64});
        say_json(&report.to_string());
    } else {
        let ago = ago.as_secs_f64();
        say!("removed {node}, last seen {ago:.1} s ago; if it is still running, it will register again");
    }
    Ok(ExitCode::SUCCESS)
}
