//! An object store of a few dozen lines, to talk to over real HTTP.

use super::server::{Reply, Request, Server};
use std::collections::BTreeMap;
use std::sync::Mutex;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speech {
    /// S3 as documented: `If-Match` quoted.
    S3,
    /// As Ceph: compares `If-Match` with the bare ETag, so the quoted form never matches.
    S3Unquoted,
    /// As S3 Express One Zone: lists in no order.
    S3Unordered,
    /// Google's XML interface: conditions by generation.
    Gcs,
    /// Ignores every condition.
    Careless,
}

struct Stored {
    body: Vec<u8>,
    number: u64,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Stored>,
    number: u64,
}

/// Starts an engine with one bucket, `bucket`.
pub async fn start(speech: Speech) -> Server {
    start_with(speech, |_| None).await
}

/// The same, where some requests get an answer of the test's own.
pub async fn start_with(
    speech: Speech,
    own: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static,
) -> Server {
    let state = Mutex::new(State::default());
    let engine = move |request: &Request| answer(speech, &mut state.lock().unwrap(), request);
    Server::start(move |request| own(request).unwrap_or_else(|| engine(request))).await
}

fn answer(speech: Speech, state: &mut State, request: &Request) -> Reply {
    // Google's client escapes everything in a key, slashes included. No key of the tests has `=`, `&` or `+`.
    let path = url::form_urlencoded::parse(request.path().trim_start_matches('/').as_bytes());
    let path: String = path.map(|(name, _)| name.into_owned()).collect();
    let (bucket, key) = path.split_once('/').unwrap_or((&path, ""));
    if !matches!(bucket, "bucket" | "bucket--use1-az4--x-s3") {
        return Reply::error(404, "NoSuchBucket", "The specified bucket does not exist");
    }
    match request.method.as_str() {
        "GET" if request.query("list-type").is_some() => list(speech, state, request),
        "GET" => get(state, key, request),
        "PUT" => put(speech, state, key, request),
        "DELETE" => {
            state.objects.remove(key);
            Reply::status(204)
        }
        _ => Reply::error(501, "NotImplemented", "not here"),
    }
}

fn etag(number: u64) -> String {
    format!("e{number:08x}")
}

fn get(state: &State, key: &str, request: &Request) -> Reply {
    let Some(stored) = state.objects.get(key) else {
        return Reply::error(404, "NoSuchKey", "The specified key does not exist.");
    };
    let tag = format!("\"{}\"", etag(stored.number));
    if request.header("if-none-match") == Some(&tag) {
        return Reply::status(304).with("etag", tag);
    }
    Reply::Answer { status: 200, headers: Vec::new(), body: stored.body.clone() }
        .with("etag", tag)
        .with("x-goog-generation", stored.number.to_string())
        .with("last-modified", "Tue, 15 Nov 1994 08:12:31 GMT")
}

fn put(speech: Speech, state: &mut State, key: &str, request: &Request) -> Reply {
    let current = state.objects.get(key).map(|stored| stored.number);
    let (absent, matches) = (request.header("if-none-match"), request.header("if-match"));
    let generation = request.header("x-goog-if-generation-match");
    let holds = match speech {
        Speech::Careless => true,
        Speech::Gcs => generation.is_none_or(|wanted| wanted == current.unwrap_or(0).to_string()),
        Speech::S3 | Speech::S3Unquoted | Speech::S3Unordered => {
            let tag = current.map(|number| match speech {
                Speech::S3Unquoted => etag(number),
                _ => format!("\"{}\"", etag(number)),
            });
            absent.is_none_or(|_| current.is_none())
                && matches.is_none_or(|wanted| tag.as_deref() == Some(wanted))
        }
    };
    if !holds {
        return Reply::error(412, "PreconditionFailed", "At least one of the conditions did not hold");
    }
    state.number += 1;
    let number = state.number;
    state.objects.insert(key.to_owned(), Stored { body: request.body.clone(), number });
    Reply::status(200)
        .with("etag", format!("\"{}\"", etag(number)))
        .with("x-goog-generation", number.to_string())
}

fn list(speech: Speech, state: &State, request: &Request) -> Reply {
    let prefix = request.query("prefix").unwrap_or_default();
    let after: usize = request.query("continuation-token").map_or(0, |at| at.parse().unwrap());
    let mut below: Vec<_> = state.objects.iter().filter(|(key, _)| key.starts_with(&prefix)).collect();
    if speech == Speech::S3Unordered {
        // The same at every page, as little in order as can be.
        below.sort_by_key(|(key, _)| key.bytes().rev().collect::<Vec<u8>>());
        below.reverse();
    }
    let page: Vec<_> = below.into_iter().skip(after).take(1_001).collect();
    let mut xml = String::from("<?xml version=\"1.0\"?><ListBucketResult>");
    for (key, stored) in page.iter().take(1_000) {
        xml.push_str(&format!(
            "<Contents><Key>{key}</Key><LastModified>1994-11-15T08:12:31.000Z</LastModified>\
             <ETag>&quot;{}&quot;</ETag><Size>{}</Size></Contents>",
            etag(stored.number),
            stored.body.len()
        ));
    }
    if page.len() > 1_000 {
        xml.push_str(&format!("<NextContinuationToken>{}</NextContinuationToken>", after + 1_000));
    }
    xml.push_str("</ListBucketResult>");
    Reply::Answer { status: 200, headers: Vec::new(), body: xml.into_bytes() }
}
