//! HTTP requests as jobs.

use super::{HTTP_KIND, SAID_MAX_BYTES, beginning_of};
use crate::checks::{HttpCheck, JobRun, LinkLocal};
use crate::schedules::Problem;
use reqwest::header::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenure::job::{Handlers, JobContext, JobOutcome, OutputWriter};
use tokio::time::Instant;

/// How much of an answer is read at most for the output, and how long after enough was read for the result.
const BODY_MAX_BYTES: usize = 256 * 1024;
const BODY_TIME: Duration = Duration::from_secs(5);

/// Headers that would carry a secret.
const SECRET_HEADERS: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];

/// Headers that the request or its connection determines, besides `Proxy-*`.
const FIXED_HEADERS: [&str; 8] =
    ["host", "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "content-length"];

/// The headers that a request must not have, each with the rule that it breaks.
pub(crate) fn refused_headers(
    headers: &BTreeMap<String, String>,
) -> impl Iterator<Item = (&String, &'static str)> {
    headers.iter().filter_map(|(name, value)| Some((name, broken_rule(name, value)?)))
}

fn broken_rule(name: &str, value: &str) -> Option<&'static str> {
    // Many servers take `_` for `-`.
    let plain = name.to_ascii_lowercase().replace('_', "-");
    let is_fixed = ["tenure-", "proxy-"].iter().any(|own| plain.starts_with(own));
    if SECRET_HEADERS.contains(&&*plain) {
        Some("must not be given: a schedule is no place for secrets")
    } else if is_fixed || FIXED_HEADERS.contains(&&*plain) {
        Some("must not be given: the agent sets Tenure-*, Host and the headers of the connection")
    } else if HeaderName::try_from(name).is_err() || HeaderValue::try_from(value).is_err() {
        Some("is not a header, or its value is none")
    } else {
        None
    }
}

/// An HTTP request of a schedule, and the payload of its jobs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HttpWork {
    /// Where it goes: `http://` or `https://`, without user name and password.
    pub url: String,
    /// `GET`, `HEAD`, `POST`, `PUT`, `PATCH` or `DELETE`.
    #[serde(default = "get")]
    pub method: String,
    /// Its headers. They stand on the store: no place for secrets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Its body.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
    /// The status that means success. Default: 200 to 299.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u64>,
}

fn get() -> String {
    "GET".to_owned()
}

/// Sends the requests of jobs, directly and with the headers `Tenure-Job`, `Tenure-Attempt` and `Tenure-Epoch`. Redirects are not
/// followed.
#[derive(Clone, Debug)]
pub struct HttpRequests(HttpCheck);

impl HttpRequests {
    /// With a choice about link-local addresses. Fails if no HTTP client can be created.
    pub fn new(link_local: LinkLocal) -> Result<HttpRequests, String> {
        HttpCheck::new(link_local).map(HttpRequests)
    }

    /// Adds the handler for jobs that send a request.
    pub fn handle(self, handlers: Handlers) -> Handlers {
        let requests = Arc::new(self);
        handlers.on(HTTP_KIND, move |context: JobContext| {
            let requests = Arc::clone(&requests);
            async move {
                tokio::select! {
                    biased;
                    () = context.cancelled.cancelled() => JobOutcome::failed("cancelled"),
                    outcome = requests.job(&context) => outcome,
                }
            }
        })
    }

    async fn job(&self, context: &JobContext) -> JobOutcome {
        let work: HttpWork = match serde_json::from_slice(&context.payload) {
            Ok(work) => work,
            Err(error) => return JobOutcome::failed(format!("its payload is not a request: {error}")),
        };
        match self.send(&work, &JobRun::of(context), &context.output()).await {
            Ok(said) => JobOutcome::succeeded(said),
            Err(why) => JobOutcome::failed(why),
        }
    }

    async fn send(&self, work: &HttpWork, job: &JobRun, output: &OutputWriter) -> Result<String, String> {
        if let Some((name, rule)) = refused_headers(&work.headers).next() {
            return Err(Problem::new(None, "http.headers", format!("{name:?}"), rule).to_string());
        }
        let method = work.method.parse().map_err(|_| format!("{:?} is not a method", work.method))?;
        let mut request = self.0.request(method, &work.url, job)?;
        for (name, value) in &work.headers {
            request = request.header(name, value);
        }
        let mut answer = self.0.answer(request.body(work.body.clone())).await?;
        let status = u64::from(answer.status().as_u16());
        let well = work.status.map_or((200..300).contains(&status), |wanted| status == wanted);
        let (mut said, mut read, mut enough_at) = (Vec::new(), 0, None);
        while read < BODY_MAX_BYTES {
            // The result never waits long for the rest of an answer that may have no end.
            let chunk = match enough_at {
                None => answer.chunk().await,
                Some(at) => match tokio::time::timeout_at(at, answer.chunk()).await {
                    Ok(chunk) => chunk,
                    Err(_) => break,
                },
            };
            let Ok(Some(chunk)) = chunk else { break };
            output.stdout(&chunk[..chunk.len().min(BODY_MAX_BYTES - read)]);
            read += chunk.len();
            said.extend_from_slice(&chunk[..chunk.len().min(SAID_MAX_BYTES - said.len())]);
            if said.len() == SAID_MAX_BYTES {
                enough_at.get_or_insert(Instant::now() + BODY_TIME);
            }
        }
        let said = format!("status {status}: {}", beginning_of(&said));
        let said = said.trim_end_matches(": ").to_owned();
        if well { Ok(said) } else { Err(said) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// Another program may have written the job.
    #[tokio::test]
    async fn a_request_with_a_forged_epoch_is_not_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        let requests = HttpRequests::new(LinkLocal::Denied).expect("a client");
        let run = JobRun { job: "t".parse().expect("valid"), attempt: 2, epoch: 7 };
        for name in ["Tenure-Epoch", "host", "Transfer-Encoding"] {
            let work = serde_json::json!({ "url": url, "headers": { name: "9" } });
            let work: HttpWork = serde_json::from_value(work).expect("a request");
            let output = OutputWriter::nowhere();
            let sent = requests.send(&work, &run, &output);
            let sent = tokio::time::timeout(Duration::from_secs(5), sent).await.expect("nothing is sent");
            let refused = sent.expect_err("refused");
            assert!(refused.starts_with(&format!("http.headers = {name:?}: must not be given")), "{refused}");
        }
    }
}
