//! The checks with many writers at once: they break stores that check a condition first and apply the write later.

use super::bench::{Bench, Stop};
use crate::{Condition, Store, Write};
use bytes::Bytes;
use futures::future::join_all;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::sleep;

/// How often to repeat a round in which nobody got through.
const ROUND_TRIES: usize = 5;

/// How many lost tries make a writer give up one increment. Somebody wins each round, so a writer among `width` others loses
/// that often only if the store is hopelessly unfair.
const INCREMENT_TRIES: usize = 2_000;

pub(super) async fn create(bench: &Bench<'_>, width: usize, rounds: usize) -> Result<(), Stop> {
    for round in 0..rounds {
        let mut settled = false;
        for again in 0..ROUND_TRIES {
            let key = bench.key(&format!("create-race/{round}-{again}"));
            if create_round(bench, &key, width).await.map_err(|stop| in_round(round, stop))? {
                settled = true;
                break;
            }
        }
        if !settled {
            return Err(Stop::Skip(format!("round {round}: no writer got through in {ROUND_TRIES} tries")));
        }
    }
    Ok(())
}

fn in_round(round: usize, stop: Stop) -> Stop {
    match stop {
        Stop::Fail(sentence) => Stop::Fail(format!("round {round}: {sentence}")),
        Stop::Skip(sentence) => Stop::Skip(format!("round {round}: {sentence}")),
    }
}

/// One race. Returns whether the object was created at all.
async fn create_round(bench: &Bench<'_>, key: &str, width: usize) -> Result<bool, Stop> {
    let bodies: Vec<Bytes> = (0..width).map(|_| bench.body("racer")).collect();
    let writes = bodies
        .iter()
        .enumerate()
        .map(|(writer, body)| bench.timed(bench.endpoint(writer).put(key, body.clone(), Condition::Absent)));
    let answers = join_all(writes).await;
    let winners = answers.iter().filter(|answer| matches!(answer, Write::Won(_))).count();
    if winners > 1 {
        return Stop::fail(format!(
            "{winners} of {width} writers were told that they had created one object"
        ));
    }
    let found = bench.read(bench.first(), key).await?;
    let Some(object) = found else {
        return match winners {
            0 => Ok(false),
            _ => Stop::fail("a writer was told that it had created the object, and it is not there"),
        };
    };
    let Some(writer) = bodies.iter().position(|body| *body == object.body) else {
        return Stop::fail("the object has a body that nobody wrote");
    };
    match &answers[writer] {
        Write::Won(_) => Ok(true),
        Write::Unknown(_) if winners == 0 => Ok(true),
        Write::Unknown(_) => {
            Stop::fail("the object of the winner was overwritten by a writer without an answer")
        }
        Write::Lost | Write::Unavailable(_) | Write::Denied(_) => {
            Stop::fail("the object has the body of a writer that was told it had not written")
        }
    }
}

/// Every writer increments one counter `rounds` times. The object contains the name of every increment, so that one whose
/// answer was lost can still be found after others have written on top of it.
pub(super) async fn counter(bench: &Bench<'_>, width: usize, rounds: usize) -> Result<(), Stop> {
    let key = bench.key("counter");
    bench.create(bench.first(), &key, &Bytes::from_static(b"start")).await?;
    let names: Vec<String> = (0..width).map(|writer| writer.to_string()).collect();
    let writers = names.iter().enumerate();
    let writers = writers.map(|(writer, name)| increment(bench, bench.endpoint(writer), &key, name, rounds));
    for result in join_all(writers).await {
        result?;
    }
    let Some(object) = bench.read(bench.first(), &key).await? else {
        return Stop::fail("the counter is gone");
    };
    let text = String::from_utf8_lossy(&object.body).into_owned();
    let applied: Vec<&str> = text.lines().skip(1).collect();
    let distinct: BTreeSet<&str> = applied.iter().copied().collect();
    let expected = width * rounds;
    if distinct.len() != applied.len() {
        return Stop::fail(format!("{} updates were applied twice", applied.len() - distinct.len()));
    }
    if applied.len() != expected {
        return Stop::fail(format!("{expected} updates were confirmed, and {} are there", applied.len()));
    }
    Ok(())
}

/// `writer` names this one among all.
pub(super) async fn increment(
    bench: &Bench<'_>,
    store: &dyn Store,
    key: &str,
    writer: &str,
    rounds: usize,
) -> Result<(), Stop> {
    for round in 0..rounds {
        let name = format!("{writer}/{round}");
        let mut confirmed = false;
        for attempt in 0..INCREMENT_TRIES {
            let Some(object) = bench.read(store, key).await? else {
                return Stop::fail("the counter is gone");
            };
            let text = String::from_utf8_lossy(&object.body).into_owned();
            if text.lines().any(|line| line == name) {
                // An earlier try without an answer landed after all.
                confirmed = true;
                break;
            }
            let body = Bytes::from(format!("{text}\n{name}"));
            match bench.timed(store.put(key, body, Condition::Matches(object.version))).await {
                Write::Won(_) => {
                    confirmed = true;
                    break;
                }
                // Also after an unknown outcome: either the version has moved on and the try can no longer land, or the next
                // try meets the same version and only one of the two can win.
                Write::Lost | Write::Unknown(_) | Write::Unavailable(_) => {}
                Write::Denied(trouble) => return Err(Stop::Skip(trouble.to_string())),
            }
            sleep(Duration::from_millis((attempt as u64).min(20))).await;
        }
        if !confirmed {
            return Err(Stop::Skip(format!(
                "writer {writer} did not get through in {INCREMENT_TRIES} tries"
            )));
        }
    }
    Ok(())
}
