//! The checks with one writer at a time.

use super::bench::{Bench, Stop};
use crate::{BODY_MAX_BYTES, Condition, Read, Version};
use bytes::Bytes;

/// Rounds of "write, list, remove, list".
const LIST_ROUNDS: usize = 10;

pub(super) async fn create_once(bench: &Bench<'_>) -> Result<(), Stop> {
    let (store, key) = (bench.first(), bench.key("create-once"));
    let (first, second) = (bench.body("first"), bench.body("second"));
    let version = bench.create(store, &key, &first).await?;
    if bench.put(store, &key, &second, &Condition::Absent).await?.is_some() {
        return Stop::fail("a second create of the same object was accepted: the condition is ignored");
    }
    let object = bench.expect(store, &key, &first, "after a refused create").await?;
    if object.version != version {
        return Stop::fail("the version read is not the version that the write was answered with");
    }
    Ok(())
}

pub(super) async fn replace_current(bench: &Bench<'_>) -> Result<(), Stop> {
    let (store, key) = (bench.first(), bench.key("replace-current"));
    let mut version = bench.create(store, &key, &bench.body("first")).await?;
    for round in 0..3 {
        let body = bench.body("next");
        let Some(next) = bench.put(store, &key, &body, &Condition::Matches(version.clone())).await? else {
            return Stop::fail(format!("replace {round} with the current version was refused"));
        };
        if next == version {
            return Stop::fail("a replace did not change the version");
        }
        bench.expect(store, &key, &body, "after a replace").await?;
        version = next;
    }
    Ok(())
}

pub(super) async fn replace_stale(bench: &Bench<'_>) -> Result<(), Stop> {
    let (store, key) = (bench.first(), bench.key("replace-stale"));
    let old = bench.create(store, &key, &bench.body("first")).await?;
    let body = bench.body("second");
    if bench.put(store, &key, &body, &Condition::Matches(old.clone())).await?.is_none() {
        return Stop::fail("a replace with the current version was refused");
    }
    if bench.put(store, &key, &bench.body("stale"), &Condition::Matches(old)).await?.is_some() {
        return Stop::fail("a replace with an old version was accepted: the condition is ignored");
    }
    bench.expect(store, &key, &body, "after a refused replace").await?;
    Ok(())
}

pub(super) async fn replace_missing(bench: &Bench<'_>) -> Result<(), Stop> {
    let (store, key) = (bench.first(), bench.key("replace-missing"));
    // A plausible version: a neighbour's, or that of the object before it was removed.
    let version = bench.create(store, &key, &bench.body("first")).await?;
    bench.remove(store, &key).await?;
    if bench.put(store, &key, &bench.body("ghost"), &Condition::Matches(version)).await?.is_some() {
        return Stop::fail(
            "a replace of an object that does not exist was accepted: the condition is ignored",
        );
    }
    match bench.read(store, &key).await? {
        None => Ok(()),
        Some(_) => Stop::fail("a refused replace made the object"),
    }
}

pub(super) async fn read_unchanged(bench: &Bench<'_>) -> Result<(), Stop> {
    let (store, key) = (bench.first(), bench.key("read-unchanged"));
    let old = bench.create(store, &key, &bench.body("first")).await?;
    read_if_changed(bench, &key, &old, None).await?;
    let body = bench.body("second");
    let Some(new) = bench.put(store, &key, &body, &Condition::Matches(old.clone())).await? else {
        return Stop::fail("a replace with the current version was refused");
    };
    read_if_changed(bench, &key, &old, Some(&body)).await?;
    read_if_changed(bench, &key, &new, None).await
}

/// Reads with a version. `expected` is the body that must be returned, or `None` for "unchanged".
async fn read_if_changed(
    bench: &Bench<'_>,
    key: &str,
    version: &Version,
    expected: Option<&Bytes>,
) -> Result<(), Stop> {
    match (bench.timed(bench.first().get(key, Some(version))).await, expected) {
        (Read::Unchanged, None) => Ok(()),
        (Read::Found(object), Some(body)) if object.body == *body => Ok(()),
        (Read::Found(_), Some(_)) => Stop::fail("a read of a changed object brought another body"),
        (Read::Found(_), None) => Stop::fail("a read of an unchanged object brought it again"),
        (Read::Unchanged, Some(_)) => Stop::fail("a read of a changed object was answered \"unchanged\""),
        (Read::Absent, _) => Stop::fail("an object that was just written is not there"),
        (Read::Unavailable(trouble) | Read::Denied(trouble), _) => Err(Stop::Skip(trouble.to_string())),
    }
}

pub(super) async fn remove(bench: &Bench<'_>) -> Result<(), Stop> {
    let (store, key) = (bench.first(), bench.key("remove"));
    let old = bench.create(store, &key, &bench.body("first")).await?;
    bench.remove(store, &key).await?;
    if bench.read(store, &key).await?.is_some() {
        return Stop::fail("an object that was removed is still there");
    }
    // Removing an absent object is not an error: a node that restarts cleans up twice.
    bench.remove(store, &key).await?;
    let new = bench.create(store, &key, &bench.body("second")).await?;
    match old == new {
        true => Stop::fail("an object that was removed and made again has its old version"),
        false => Ok(()),
    }
}

pub(super) async fn bodies(bench: &Bench<'_>) -> Result<(), Stop> {
    let store = bench.first();
    let nonce = bench.body("large");
    let large: Vec<u8> = nonce.iter().copied().cycle().take(BODY_MAX_BYTES).collect();
    for (name, body) in [("body-empty", Bytes::new()), ("body-large", Bytes::from(large))] {
        let key = bench.key(name);
        bench.create(store, &key, &body).await?;
        bench.expect(store, &key, &body, "after a create").await?;
    }
    Ok(())
}

pub(super) async fn list_pages(bench: &Bench<'_>, count: usize) -> Result<(), Stop> {
    let store = bench.first();
    let below = bench.key("list/");
    let mut keys: Vec<String> = (0..count.max(2)).map(|n| format!("{below}{n:06}")).collect();
    // A neighbour whose name begins the same way must not be listed.
    bench.fill(store, &[bench.key("list-neighbour")]).await?;
    let last = keys.pop().unwrap_or_default();
    let (first, rest) = keys.split_first().ok_or_else(|| Stop::Skip("nothing to list".to_owned()))?;
    bench.fill(store, std::slice::from_ref(first)).await?;
    bench.fill(store, rest).await?;
    bench.fill(store, std::slice::from_ref(&last)).await?;
    let expected: Vec<&String> = keys.iter().chain([&last]).collect();

    let (entries, more) = bench.list(store, &below, expected.len()).await?;
    if entries.len() != expected.len() || more {
        let seen = entries.len();
        let wanted = expected.len();
        return Stop::fail(format!("a list of {wanted} objects brought {seen} (more to come: {more})"));
    }
    if entries.iter().map(|entry| &entry.key).ne(expected.iter().copied()) {
        return Stop::fail("a list is not in the order of the keys");
    }
    if entries.iter().any(|entry| entry.bytes == 0) {
        return Stop::fail("a list gives a wrong size");
    }
    if entries[0].modified > entries[entries.len() - 1].modified {
        return Stop::fail("the object written first has a later store time than the one written last");
    }
    let (entries, more) = bench.list(store, &below, 1).await?;
    if entries.len() != 1 || !more || entries[0].key != *first {
        return Stop::fail(
            "a list with a limit of 1 did not bring just the first object and say that there is more",
        );
    }
    Ok(())
}

pub(super) async fn list_after_write(bench: &Bench<'_>) -> Result<(), Stop> {
    let store = bench.first();
    let below = bench.key("list-after/");
    for round in 0..LIST_ROUNDS {
        let key = format!("{below}{round}");
        bench.create(store, &key, &bench.body("listed")).await?;
        let (entries, _) = bench.list(store, &below, 100).await?;
        if !entries.iter().any(|entry| entry.key == key) {
            return Stop::fail(format!("round {round}: a list does not show an object written before it"));
        }
        bench.remove(store, &key).await?;
        let (entries, _) = bench.list(store, &below, 100).await?;
        if !entries.is_empty() {
            return Stop::fail(format!("round {round}: a list shows an object removed before it"));
        }
    }
    Ok(())
}

/// If lists show versions, they must be the same as those of reads, so that a list can save a read.
pub(super) async fn list_versions(bench: &Bench<'_>) -> Result<(), Stop> {
    let (store, below) = (bench.first(), bench.key("list-versions/"));
    let key = format!("{below}one");
    let mut version = bench.create(store, &key, &bench.body("first")).await?;
    for round in 0..3 {
        let (entries, _) = bench.list(store, &below, 10).await?;
        let Some(listed) = entries.iter().find(|entry| entry.key == key) else {
            return Stop::fail("a list does not show an object written before it");
        };
        let Some(named) = &listed.version else {
            return Err(Stop::Skip("lists of this store name no versions".to_owned()));
        };
        if *named != version {
            return Stop::fail(format!(
                "round {round}: a list names {named:?}, reads and writes {version:?}"
            ));
        }
        let body = bench.body("next");
        let Some(next) = bench.put(store, &key, &body, &Condition::Matches(version)).await? else {
            return Stop::fail("a replace with the current version was refused");
        };
        version = next;
    }
    Ok(())
}

pub(super) async fn two_endpoints(bench: &Bench<'_>) -> Result<(), Stop> {
    let (one, Some(other)) = (bench.first(), bench.second()) else {
        return Err(Stop::Skip("only one endpoint was given".to_owned()));
    };
    for round in 0..LIST_ROUNDS {
        let key = bench.key(&format!("two-endpoints/{round}"));
        let (first, second) = (bench.body("first"), bench.body("second"));
        let old = bench.create(one, &key, &first).await?;
        if bench.put(other, &key, &second, &Condition::Absent).await?.is_some() {
            return Stop::fail("the other endpoint created an object that exists");
        }
        let seen = bench.expect(other, &key, &first, "through the other endpoint").await?;
        if seen.version != old {
            return Stop::fail("the endpoints give one object different versions");
        }
        if bench.put(other, &key, &second, &Condition::Matches(old.clone())).await?.is_none() {
            return Stop::fail("the other endpoint refused the current version");
        }
        if bench.put(one, &key, &bench.body("stale"), &Condition::Matches(old)).await?.is_some() {
            return Stop::fail(
                "an old version was accepted after the other endpoint had replaced the object",
            );
        }
        bench.expect(one, &key, &second, "through the first endpoint").await?;
        let (entries, _) = bench.list(other, &bench.key("two-endpoints/"), 100).await?;
        if !entries.iter().any(|entry| entry.key == key) {
            return Stop::fail("the other endpoint does not list an object written through the first");
        }
    }
    Ok(())
}
