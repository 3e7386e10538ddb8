//! The quick check a node makes before it trusts a store: seven requests.

use crate::{Condition, EtagForm, Object, Read, Remove, Store, Trouble, TroubleKind, Version, Write};
use bytes::Bytes;

/// A write that must win is repeated if it was refused and the object shows no reason: a single refusal may be the echo of a
/// request that something on the way sent twice. Two refusals contradict what was read in between.
const TRIES: usize = 2;

/// What the probe found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Probe {
    /// Conditions are honoured, as far as one writer can see.
    Safe {
        /// The ETag spelling that was learned; `None` where there is no choice.
        etag_form: Option<EtagForm>,
        /// Whether the store answers "unchanged" to a read of an unchanged object. If not, every poll costs a whole body.
        unchanged_reads: bool,
    },
    /// The store contradicted itself and must not arbitrate. The sentence says how.
    Unsafe(String),
    /// The probe could not find out now.
    Unavailable(Trouble),
    /// The store refuses, until somebody changes something.
    Denied(Trouble),
}

impl Probe {
    /// Whether the store may be used.
    pub fn is_safe(&self) -> bool {
        match self {
            Probe::Safe { .. } => true,
            Probe::Unsafe(_) | Probe::Unavailable(_) | Probe::Denied(_) => false,
        }
    }
}

/// Asks a store whether it honours conditions, using one object below `prefix` that is removed afterwards. `unique` must be
/// new at every call and a valid part of a key.
pub async fn probe(store: &dyn Store, prefix: &str, unique: &str) -> Probe {
    let prefix = prefix.trim_matches('/');
    let slash = if prefix.is_empty() { "" } else { "/" };
    let key = format!("{prefix}{slash}probe-{unique}");
    let body = |n: u8| Bytes::from(format!("probe {unique} {n}"));
    // Read first: some engines create a missing bucket on the first write, which nobody asked for.
    match store.get(&key, None).await {
        Read::Absent | Read::Found(_) | Read::Unchanged => {}
        Read::Unavailable(trouble) => return Probe::Unavailable(trouble),
        Read::Denied(trouble) => return Probe::Denied(trouble),
    }
    let first = match create(store, &key, body(1)).await {
        Ok(version) => version,
        Err(probe) => return probe,
    };
    let found = match ask(store, &key, first, body).await {
        Ok(unchanged_reads) => Probe::Safe { etag_form: store.etag_form(), unchanged_reads },
        Err(probe) => probe,
    };
    match (store.remove(&key).await, found) {
        // Without permission to remove, objects of dead nodes pile up. It is better to know that at the start.
        (Remove::Denied(trouble), Probe::Safe { .. }) => Probe::Denied(trouble),
        (Remove::Done | Remove::Unknown(_) | Remove::Unavailable(_) | Remove::Denied(_), found) => found,
    }
}

async fn create(store: &dyn Store, key: &str, body: Bytes) -> Result<Version, Probe> {
    for _ in 0..TRIES {
        match store.put(key, body.clone(), Condition::Absent).await {
            Write::Won(version) => return Ok(version),
            Write::Lost => match read(store, key).await? {
                Some(object) if object.body == body => return Ok(object.version),
                // The name was not new, so this proves nothing.
                Some(_) => {
                    let detail = format!("{key} exists already; try again");
                    return Err(Probe::Unavailable(Trouble::new(TroubleKind::Busy, detail)));
                }
                None => {}
            },
            Write::Unknown(trouble) => {
                // The object may exist: clean up, whatever the outcome.
                store.remove(key).await;
                return Err(Probe::Unavailable(trouble));
            }
            Write::Unavailable(trouble) => return Err(Probe::Unavailable(trouble)),
            Write::Denied(trouble) => return Err(Probe::Denied(trouble)),
        }
    }
    Err(Probe::Unsafe("it refuses to create an object that does not exist".to_owned()))
}

/// The replace that must win.
async fn replace(store: &dyn Store, key: &str, body: Bytes, current: &Version) -> Result<Version, Probe> {
    for _ in 0..TRIES {
        if let Some(version) = put(store, key, body.clone(), Condition::Matches(current.clone())).await? {
            return Ok(version);
        }
        match read(store, key).await? {
            Some(object) if object.body == body => return Ok(object.version),
            Some(object) if object.version == *current => {}
            Some(_) => return Err(Probe::Unsafe("a refused write changed the object".to_owned())),
            None => return Err(Probe::Unsafe("an object that was just written is not there".to_owned())),
        }
    }
    Err(Probe::Unsafe("it refuses to replace an object by its current version".to_owned()))
}

/// Everything after the first create. Returns whether the store answers "unchanged" to unchanged reads.
async fn ask(
    store: &dyn Store,
    key: &str,
    first: Version,
    body: impl Fn(u8) -> Bytes,
) -> Result<bool, Probe> {
    if put(store, key, body(2), Condition::Absent).await?.is_some() {
        return Err(Probe::Unsafe("it accepts a second create of the same object".to_owned()));
    }
    let second = replace(store, key, body(3), &first).await?;
    if second == first {
        return Err(Probe::Unsafe("a replace does not change the version".to_owned()));
    }
    if put(store, key, body(4), Condition::Matches(first)).await?.is_some() {
        return Err(Probe::Unsafe("it accepts a replace by an old version".to_owned()));
    }
    match store.get(key, Some(&second)).await {
        Read::Unchanged => Ok(true),
        Read::Found(object) if object.version == second && object.body == body(3) => Ok(false),
        Read::Found(_) => Err(Probe::Unsafe("a refused write changed the object".to_owned())),
        Read::Absent => Err(Probe::Unsafe("an object that was just written is not there".to_owned())),
        Read::Unavailable(trouble) => Err(Probe::Unavailable(trouble)),
        Read::Denied(trouble) => Err(Probe::Denied(trouble)),
    }
}

/// A certain answer, or the reason to stop: an unclear answer says nothing about safety.
async fn put(
    store: &dyn Store,
    key: &str,
    body: Bytes,
    condition: Condition,
) -> Result<Option<Version>, Probe> {
    match store.put(key, body, condition).await {
        Write::Won(version) => Ok(Some(version)),
        Write::Lost => Ok(None),
        Write::Unknown(trouble) | Write::Unavailable(trouble) => Err(Probe::Unavailable(trouble)),
        Write::Denied(trouble) => Err(Probe::Denied(trouble)),
    }
}

async fn read(store: &dyn Store, key: &str) -> Result<Option<Object>, Probe> {
    match store.get(key, None).await {
        Read::Found(object) => Ok(Some(object)),
        Read::Absent => Ok(None),
        Read::Unchanged => {
            Err(Probe::Unsafe("a read without a version is answered \"unchanged\"".to_owned()))
        }
        Read::Unavailable(trouble) => Err(Probe::Unavailable(trouble)),
        Read::Denied(trouble) => Err(Probe::Denied(trouble)),
    }
}
