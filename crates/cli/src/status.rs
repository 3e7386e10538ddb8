//! `tenure status` and `tenure leader`: a look from outside. Nothing is written.

use crate::args::{LeaderArgs, SeatArgs, StatusArgs};
use crate::exit::Failure;
use crate::out::{Table, complain, say, say_json};
use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::Duration;
use tenure::admin::{LeaderStatus, Status};
use tenure::store::{Lanes, OpenOptions, StoreUrl};
use tenure::{Namespace, Settings};

pub(crate) const NO_LEADER: u8 = 3;

/// A look is not lease traffic: it may take longer than a renewal may.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn status(args: StatusArgs) -> Result<ExitCode, Failure> {
    let settings = args.settings.load()?.settings;
    let namespace = Namespace::new(&settings.namespace).map_err(Failure::usage)?;
    let Some(status) = look(&settings, &namespace, &args.seat, args.wait).await? else {
        if args.json {
            let nothing = serde_json::json!({"namespace": namespace.as_str(), "store": settings.store.to_string(), "epoch": 0, "leader": null, "nodes": []});
            say_json(&nothing.to_string());
        } else {
            say!("no leader: {} does not exist yet", settings.store);
        }
        return Ok(ExitCode::from(NO_LEADER));
    };
    if args.json {
        say_json(&serde_json::to_string_pretty(&status).map_err(Failure::other)?);
    } else {
        print(&status, args.seat.words());
    }
    Ok(if status.has_live_leader() { ExitCode::SUCCESS } else { ExitCode::from(NO_LEADER) })
}

/// `tenure leader`: the id alone, for scripts.
pub(crate) async fn leader(args: LeaderArgs) -> Result<ExitCode, Failure> {
    let settings = args.settings.load()?.settings;
    let namespace = Namespace::new(&settings.namespace).map_err(Failure::usage)?;
    let status = look(&settings, &namespace, &args.seat, args.wait).await?;
    match status.and_then(|status| status.leader).filter(|leader| leader.live) {
        Some(leader) => {
            say!("{}", leader.node);
            Ok(ExitCode::SUCCESS)
        }
        None => {
            complain!("tenure: no live leader seen in {namespace}");
            Ok(ExitCode::from(NO_LEADER))
        }
    }
}

/// `None` if there is no such store yet.
async fn look(
    settings: &Settings,
    namespace: &Namespace,
    seat: &SeatArgs,
    wait_ms: u64,
) -> Result<Option<Status>, Failure> {
    let election = seat.election(namespace)?;
    match existing(settings).await? {
        Some(lanes) => {
            let most = Duration::from_millis(wait_ms);
            Ok(Some(Status::read_at(&lanes, &election, most).await?))
        }
        None => Ok(None),
    }
}

/// The store; `None` if it is an embedded one that has not been made yet: looking must not make it.
pub(crate) async fn existing(settings: &Settings) -> Result<Option<Lanes>, Failure> {
    if let StoreUrl::Sqlite { path } = &settings.store {
        match std::fs::metadata(path) {
            // An empty file is a database to SQLite too, one whose tables are still to be made.
            Ok(file) if file.is_file() && file.len() == 0 => return Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => return Ok(None),
            // Opening it says what is wrong.
            Ok(_) | Err(_) => {}
        }
    }
    let options = OpenOptions::with_request_timeout(REQUEST_TIMEOUT);
    Ok(Some(tenure::store::open(&settings.store, &options).await?))
}

fn lease(leader: &LeaderStatus) -> String {
    let LeaderStatus { renewals, lease_hold, watched_ms, .. } = leader;
    if leader.live {
        format!("live: renewing, {renewals} renewals of {lease_hold} ms so far")
    } else if watched_ms < lease_hold {
        let watched = Duration::from_millis(*watched_ms).as_secs_f64();
        format!(
            "unknown: no renewal seen within {watched:.1} s, but it holds for {lease_hold} ms (see --wait)"
        )
    } else {
        format!("SILENT: no renewal for a whole hold ({lease_hold} ms)")
    }
}

fn print(status: &Status, election: Option<String>) {
    say!("namespace  {}", status.namespace);
    if let Some(election) = election {
        say!("election   {election}");
    }
    say!("store      {}", status.store);
    match &status.leader {
        Some(leader) => {
            say!("leader     {} (incarnation {})", leader.node, leader.incarnation);
            say!("epoch      {}", status.epoch);
            say!("since      {}", leader.since.as_deref().unwrap_or("unknown"));
            say!("lease      {}", lease(leader));
            if leader.asked_to_step_down {
                say!("asked      to step down");
            }
        }
        None => {
            say!("leader     none");
            say!("epoch      {}", status.epoch);
        }
    }
    if status.nodes.is_empty() {
        say!("nodes      none");
        if status.epoch == 0 {
            say!();
            say!("this namespace was never used: `tenure namespaces` lists those in the store");
        }
        return;
    }
    let mut table = Table::new(&["NODE", "ROLE", "LAST SEEN"]);
    for node in &status.nodes {
        let seen = Duration::from_millis(node.last_seen_ms_ago);
        table.row([node.node.clone(), node.role.to_owned(), format!("{:.1} s ago", seen.as_secs_f64())]);
    }
    say!();
    table.say();
}
