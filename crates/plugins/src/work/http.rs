//! HTTP requests as jobs.

use super::{HTTP_KIND, SAID_MAX_BYTES};
use crate::checks::{HttpCheck, JobRun, LinkLocal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use tenure::job::{Handlers, JobContext, JobOutcome};

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
        match self.send(&work, &JobRun::of(context)).await {
            Ok(said) => JobOutcome::succeeded(said),
            Err(why) => JobOutcome::failed(why),
        }
    }

    async fn send(&self, work: &HttpWork, job: &JobRun) -> Result<String, String> {
        let method = work.method.parse().map_err(|_| format!("{:?} is not a method", work.method))?;
        let mut request = self.0.request(method, &work.url, job)?;
        for (name, value) in &work.headers {
            request = request.header(name, value);
        }
        let mut answer = self.0.answer(request.body(work.body.clone())).await?;
        let status = u64::from(answer.status().as_u16());
        let well = work.status.map_or((200..300).contains(&status), |wanted| status == wanted);
        let mut said = Vec::new();
        while said.len() < SAID_MAX_BYTES {
            match answer.chunk().await {
                Ok(Some(chunk)) => said.extend_from_slice(&chunk),
                Ok(None) | Err(_) => break,
            }
        }
        said.truncate(SAID_MAX_BYTES);
        let said = format!("status {status}: {}", String::from_utf8_lossy(&said).trim());
        let said = said.trim_end_matches(": ").to_owned();
        if well { Ok(said) } else { Err(said) }
    }
}
