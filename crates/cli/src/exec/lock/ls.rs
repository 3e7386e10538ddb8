//! `tenure lock ls`: the locks of a namespace that are held, and by whom. Nothing is written.

use crate::args::LockLsArgs;
use crate::exit::Failure;
use crate::out::{Table, complain, say, say_json};
use crate::status::existing;
use serde_json::{Value, json};
use std::process::ExitCode;
use tenure::Error;
use tenure::admin::{Election, SeatHolder, Status, WATCH_MAX};
use tenure::id::{Namespace, PluginName};
use tenure::store::{Lanes, List};
use tokio::task::JoinSet;

/// Objects looked through at most.
const OBJECTS_MAX: usize = 100_000;
/// Seats that are watched at a time.
const AT_ONCE: usize = 32;

struct HeldLock {
    name: String,
    holder: String,
    since: Option<String>,
    epoch: u64,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    Live,
    Silent,
    /// Its seat is damaged, or of a newer version; it is left alone.
    Unreadable,
}

pub(super) async fn list(args: LockLsArgs) -> Result<ExitCode, Failure> {
    let settings = args.settings.load()?.settings;
    let namespace = Namespace::new(&settings.namespace).map_err(Failure::usage)?;
    let locks = match existing(&settings).await? {
        Some(lanes) => read(&lanes, &namespace).await?,
        None => Vec::new(),
    };
    if args.json {
        let locks: Vec<Value> = locks.iter().map(HeldLock::json).collect();
        let all = json!({"namespace": namespace.as_str(), "locks": locks});
        say_json(&serde_json::to_string_pretty(&all).map_err(Failure::other)?);
    } else if locks.is_empty() {
        say!("no locks are held in {namespace}");
    } else {
        let mut table = Table::new(&["LOCK", "HOLDER", "AGE", "EPOCH", "STATE"]);
        for lock in &locks {
            table.row([
                lock.name.clone(),
                lock.holder.clone(),
                lock.age(),
                lock.epoch.to_string(),
                lock.state().to_owned(),
            ]);
        }
        table.say();
    }
    Ok(ExitCode::SUCCESS)
}

impl HeldLock {
    fn state(&self) -> &'static str {
        match self.state {
            State::Live => "live",
            State::Silent => "silent",
            State::Unreadable => "unreadable",
        }
    }

    /// By the holder's wall clock and ours.
    fn age(&self) -> String {
        let since = self.since.as_deref().and_then(|since| since.parse::<jiff::Timestamp>().ok());
        let Some(since) = since else { return "-".to_owned() };
        let ms = jiff::Timestamp::now().as_millisecond() - since.as_millisecond();
        crate::schedules::span(u64::try_from(ms).unwrap_or(0))
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name, "holder": self.holder, "since": self.since, "epoch": self.epoch, "state": self.state(),
        })
    }
}

/// Those that are held, by name.
async fn read(lanes: &Lanes, namespace: &Namespace) -> Result<Vec<HeldLock>, Failure> {
    let root = format!("plg_coordinator/{namespace}/");
    let entries = match lanes.bulk.list(&root, OBJECTS_MAX).await {
        List::Entries { entries, more } => {
            if more {
                complain!("tenure: only the first {OBJECTS_MAX} objects were read; there are more");
            }
            entries
        }
        List::Unavailable(trouble) => return Err(Error::unavailable(trouble).into()),
        List::Denied(trouble) => return Err(Error::denied(trouble).into()),
    };
    let names = entries.iter().filter_map(|entry| {
        let rest = entry.key.strip_prefix(&root)?.strip_prefix("lock-")?;
        rest.strip_suffix("/seat.json").map(str::to_owned)
    });
    let mut names = names.into_iter();
    let (mut looks, mut held) = (JoinSet::new(), Vec::new());
    loop {
        while looks.len() < AT_ONCE
            && let Some(name) = names.next()
        {
            let (lanes, namespace) = (lanes.clone(), namespace.clone());
            looks.spawn(async move {
                let seat = PluginName::new(&format!("lock-{name}")).ok()?;
                let election = Election { namespace, plugin: Some(seat) };
                let status = match SeatHolder::read(&lanes, &election).await {
                    Ok(None) => return None,
                    Ok(Some(_)) => Status::read_at(&lanes, &election, WATCH_MAX).await,
                    Err(error) => Err(error),
                };
                Some((name, status))
            });
        }
        let Some(look) = looks.join_next().await else { break };
        let Some((name, status)) = look.map_err(Failure::other)? else { continue };
        match status {
            Ok(Status { leader: Some(leader), epoch, .. }) => {
                let state = if leader.live { State::Live } else { State::Silent };
                held.push(HeldLock { name, holder: leader.node, since: leader.since, epoch, state });
            }
            Ok(Status { leader: None, .. }) => {}
            Err(error) if error.is_unreadable() => held.push(HeldLock {
                name,
                holder: "-".to_owned(),
                since: None,
                epoch: 0,
                state: State::Unreadable,
            }),
            Err(error) => return Err(error.into()),
        }
    }
    held.sort_by(|one, two| one.name.cmp(&two.name));
    Ok(held)
}
