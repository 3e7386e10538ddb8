//! Which namespaces a store holds.

use crate::error::{Error, listed};
use crate::keys::Keys;
use crate::status::read_seat;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::{Namespace, SeatState};
use tenure_store::Lanes;

/// Most objects to look through below each of the two roots.
const OBJECTS_MAX: usize = 50_000;

/// The namespaces of a store.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Namespaces {
    /// In name order.
    pub namespaces: Vec<NamespaceSummary>,
    /// Whether there were too many objects to look through, so that namespaces may be missing.
    pub more: bool,
}

/// One namespace of a store.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceSummary {
    /// The name of the namespace.
    pub namespace: String,
    /// The holder of its seat, alive or not; `None` if nobody holds it.
    pub held_by: Option<String>,
    /// The highest epoch on the seat; 0 if there is no seat.
    pub epoch: u64,
    /// Nodes with a presence.
    pub nodes: u64,
    /// Elections of their own beside the shared one: plugins, locks, commands.
    pub own_elections: u64,
    /// Why the seat cannot be read; `None` if it can.
    pub problem: Option<String>,
}

impl Namespaces {
    /// Lists the namespaces and reads the seat of each.
    pub async fn read(lanes: &Lanes) -> Result<Namespaces, Error> {
        let (shared, more_shared) = below(lanes, Keys::GLOBAL_ROOT).await?;
        let (own, more_own) = below(lanes, Keys::PLUGIN_ROOT).await?;
        let mut found: BTreeMap<Namespace, NamespaceSummary> = BTreeMap::new();
        for (namespace, path) in &shared {
            let one = found.entry(namespace.clone()).or_default();
            one.nodes += u64::from(path.starts_with("nodes/"));
        }
        let elections: BTreeSet<(&Namespace, &str)> =
            own.iter().filter_map(|(namespace, path)| Some((namespace, path.split_once('/')?.0))).collect();
        for (namespace, _) in elections {
            found.entry(namespace.clone()).or_default().own_elections += 1;
        }
        for (namespace, one) in &mut found {
            one.namespace = namespace.to_string();
            match read_seat(lanes, &Keys::global(namespace), None).await {
                Ok(Some(found)) => {
                    one.epoch = found.seat.epoch.0;
                    let held = found.seat.state == SeatState::Held;
                    one.held_by = held.then(|| found.seat.holder.node.to_string());
                }
                Ok(None) => {}
                Err(error) if error.is_unreadable() => one.problem = Some(error.detail()),
                Err(error) => return Err(error),
            }
        }
        Ok(Namespaces { namespaces: found.into_values().collect(), more: more_shared || more_own })
    }
}

/// Every object below a root: its namespace, and the rest of its key.
async fn below(lanes: &Lanes, root: &str) -> Result<(Vec<(Namespace, String)>, bool), Error> {
    let (entries, more) = listed(lanes.bulk.list(root, OBJECTS_MAX).await)?;
    let place = |key: &str| {
        let (namespace, path) = key.strip_prefix(root)?.split_once('/')?;
        Some((Namespace::new(namespace).ok()?, path.to_owned()))
    };
    Ok((entries.iter().filter_map(|entry| place(&entry.key)).collect(), more))
}
