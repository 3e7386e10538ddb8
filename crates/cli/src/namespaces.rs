//! `tenure namespaces`: what a store holds.

use crate::args::LookArgs;
use crate::exit::Failure;
use crate::out::{Table, complain, say, say_json};
use crate::status::existing;
use std::process::ExitCode;
use tenure::admin::Namespaces;

pub(crate) async fn namespaces(args: LookArgs) -> Result<ExitCode, Failure> {
    let settings = args.settings.load()?.settings;
    let found = match existing(&settings).await? {
        Some(lanes) => Namespaces::read(&lanes).await?,
        None => Namespaces::default(),
    };
    if args.json {
        say_json(&serde_json::to_string_pretty(&found).map_err(Failure::other)?);
    } else if found.namespaces.is_empty() {
        say!("no namespace on {}", settings.store);
    } else {
        let mut table = Table::new(&["NAMESPACE", "HELD BY", "EPOCH", "NODES", "OWN ELECTIONS"]);
        for one in &found.namespaces {
            let held_by = match (&one.held_by, &one.problem) {
                (Some(node), _) => node.clone(),
                (None, Some(_)) => "unreadable".to_owned(),
                (None, None) => "nobody".to_owned(),
            };
            let numbers = [one.epoch, one.nodes, one.own_elections].map(|number| number.to_string());
            let [epoch, nodes, own] = numbers;
            table.row([one.namespace.clone(), held_by, epoch, nodes, own]);
        }
        table.say();
    }
    if found.more {
        complain!("tenure: the store has too many objects to list them all; there may be more namespaces");
    }
    Ok(ExitCode::SUCCESS)
}
