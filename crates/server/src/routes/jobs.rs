//! Jobs for workers in any language.

use crate::extract::{Id, Payload, id_in_body};
use crate::http_jobs::JobGiven;
use crate::problem::{Answer, Problem};
use crate::state::Shared;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::{Duration, SystemTime};
use tenure::id::{JobId, Label, WorkerId};
use tenure::job::{JobOutcome, JobSpec, Labels, Submitted};
use tenure_plugins::work::{WORK_TIMEOUT, Work};
use utoipa::ToSchema;

/// Any time after this is too late as well, and adding it to another overflows nothing: the year 9999.
const NOT_BEFORE_MAX_MS: u64 = 253_402_300_799_000;

/// The longest wait for a job.
const WAIT_MAX_MS: u64 = 30_000;

/// The longest result; the library has the same limit.
const RESULT_MAX_BYTES: usize = 1024;

/// The longest text about how far a job is; the library cuts longer ones.
const PROGRESS_MAX_BYTES: usize = 200;

/// The most of a job's output in one request.
const OUTPUT_MAX_BYTES: usize = 32 * 1024;

/// Jobs to submit.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SubmitAsk {
    /// All of them are submitted, or none.
    #[schema(min_items = 1, max_items = 1000)]
    jobs: Vec<NewJob>,
}

/// A job to submit.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct NewJob {
    /// Your id for it: submitting it again gives the same job. Default: a new one.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)]
    id: Option<String>,
    /// Workers say which kinds they run.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)]
    kind: String,
    /// The queue it waits in. Default: `default`.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)]
    queue: Option<String>,
    /// 0 to 9: higher ones are run first. Default: 5.
    #[schema(maximum = 9)]
    priority: Option<u8>,
    /// It is not run before this time, in ms since 1970, at most a year from now. Default: at once.
    not_before: Option<u64>,
    /// Input for whoever runs it, at most 16 KiB as JSON. For agents: `{"command": ["/bin/date", "-u"], "directory": …, "env": {…}}`
    /// in a job of kind `command`, `{"url": …, "method": …, "headers": {…}, "body": …, "status": …}` in one of kind `http`.
    #[serde(default)]
    #[schema(value_type = Object)]
    payload: Option<Value>,
    /// The worker that must run it. Default: any.
    worker: Option<String>,
    /// The partition a worker must be in. Default: any.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)]
    partition: Option<String>,
    /// The domain a worker must be in. Default: any.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)]
    domain: Option<String>,
    /// What a worker must be able to do.
    #[serde(default)]
    #[schema(max_items = 32)]
    capabilities: Vec<String>,
    /// How long one attempt may take. Default: 60,000; for kinds `command` and `http` 3,600,000.
    timeout_ms: Option<u64>,
    /// How long it may wait for a worker. Default: for ever.
    ttl_ms: Option<u64>,
    /// How often it may be started. Default: 3.
    attempts: Option<u32>,
    /// The pause before the second attempt; it doubles before each further one. Default: 1,000.
    backoff_ms: Option<u64>,
}

impl NewJob {
    fn spec(self) -> Answer<JobSpec> {
        let mut spec = match &self.id {
            Some(id) => JobSpec::new(id, &self.kind),
            None => JobSpec::unnamed(&self.kind),
        };
        let payload = self.payload.filter(|payload| !payload.is_null());
        let payload = payload.map(|payload| payload.to_string()).unwrap_or_default();
        let work = Work::of_job(&self.kind, payload.as_bytes());
        spec = match work.map_err(|problems| Problem::invalid(problems.to_string()))? {
            Some(work) => work.job(spec).timeout(WORK_TIMEOUT),
            None => spec.payload(payload),
        };
        let label = |name, text: &String| id_in_body::<Label>(name, text);
        spec = spec.needs(Labels {
            partition: self.partition.as_ref().map(|text| label("partition", text)).transpose()?,
            domain: self.domain.as_ref().map(|text| label("domain", text)).transpose()?,
            capabilities: self
                .capabilities
                .iter()
                .map(|text| label("capabilities", text))
                .collect::<Answer<_>>()?,
        });
        if let Some(worker) = self.worker {
            spec = spec.worker(worker);
        }
        if let Some(queue) = self.queue {
            spec = spec.queue(queue);
        }
        let ms = Duration::from_millis;
        let moment = |since_1970| SystemTime::UNIX_EPOCH + ms(since_1970);
        spec = self.priority.into_iter().fold(spec, JobSpec::priority);
        spec = self
            .not_before
            .map(|time| time.min(NOT_BEFORE_MAX_MS))
            .map(moment)
            .into_iter()
            .fold(spec, JobSpec::not_before);
        spec = self.timeout_ms.map(ms).into_iter().fold(spec, JobSpec::timeout);
        spec = self.ttl_ms.map(ms).into_iter().fold(spec, JobSpec::ttl);
        spec = self.backoff_ms.map(ms).into_iter().fold(spec, JobSpec::backoff);
        Ok(self.attempts.into_iter().fold(spec, JobSpec::attempts))
    }
}

/// What was submitted.
#[derive(Serialize, ToSchema)]
pub(crate) struct SubmitAnswer {
    /// In the order in which they were given.
    jobs: Vec<SubmittedJob>,
}

/// A job that was submitted.
#[derive(Serialize, ToSchema)]
pub(crate) struct SubmittedJob {
    id: String,
    /// There was a job with this id; it stays as it is.
    existed: bool,
}

/// Submits jobs: they are on the store when this answers, whether anybody leads or not
#[utoipa::path(
    post, path = "/v1/jobs", tag = "jobs", request_body = SubmitAsk,
    responses(
        (status = 202, description = "submitted", body = SubmitAnswer),
        (status = 422, description = "one of them is invalid; nothing was submitted", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "too many requests, or too many jobs wait to be taken up; nothing was submitted", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "the store does not answer", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn submit(
    State(state): State<Shared>,
    Payload(ask): Payload<SubmitAsk>,
) -> Answer<(StatusCode, axum::Json<SubmitAnswer>)> {
    if ask.jobs.is_empty() {
        return Err(Problem::invalid("jobs: must have at least one job"));
    }
    state.rate_limit.take(1.0)?;
    let specs = ask.jobs.into_iter().map(NewJob::spec).collect::<Answer<Vec<_>>>()?;
    let jobs = state.jobs.clone();
    let receipts = state.on_node(async move { jobs.submit_all(specs).await }).await??;
    let submitted = receipts.into_iter().map(|receipt| SubmittedJob {
        existed: receipt.submitted == Submitted::Exists,
        id: receipt.id.to_string(),
    });
    Ok((StatusCode::ACCEPTED, axum::Json(SubmitAnswer { jobs: submitted.collect() })))
}

/// A worker that wants work.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct NextAsk {
    /// As the registration was answered.
    registration: String,
    /// How long to wait, at most 30,000 and at most half of the worker's timeout. Default: 20,000.
    #[schema(maximum = 30_000)]
    wait_ms: Option<u64>,
}

/// The next job of a worker, waited for
#[utoipa::path(
    post, path = "/v1/workers/{id}/jobs/next", tag = "jobs", request_body = NextAsk,
    params(("id" = String, Path, description = "the worker", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)),
    responses(
        (status = 200, description = "a job", body = JobGiven),
        (status = 204, description = "no job in that time"),
        (status = 404, description = "not registered through this node, or dropped", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "registered by another client, or taken over by another process", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "it has ended: register again", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "the request is invalid", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn next(
    State(state): State<Shared>,
    Id(worker): Id<WorkerId>,
    Payload(ask): Payload<NextAsk>,
) -> Answer<Response> {
    let member = state.http_workers.member(&worker, &ask.registration)?;
    let wait_ms = ask.wait_ms.unwrap_or(20_000);
    if wait_ms > WAIT_MAX_MS {
        return Err(Problem::invalid(format!("waitMs = {wait_ms}: must be at most {WAIT_MAX_MS}")));
    }
    // Waiting is no sign of life, so the wait must end before the next one is due.
    let wait = Duration::from_millis(wait_ms.min(member.timeout_ms / 2));
    let job = state.closing.run_until_cancelled(member.jobs.next(wait)).await.flatten();
    if job.is_some() {
        state.http_workers.note_heartbeat(&member);
    }
    Ok(match job {
        Some(job) => axum::Json(job).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

/// Which attempt of which worker.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AckAsk {
    /// The worker it was given to.
    worker_id: String,
    /// As the registration was answered.
    registration: String,
    /// The attempt, as it was given.
    attempt: u32,
}

/// Says that the client has a job; without, it is given out again
#[utoipa::path(
    post, path = "/v1/jobs/{id}/ack", tag = "jobs", request_body = AckAsk,
    params(("id" = String, Path, description = "the job", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)),
    responses(
        (status = 204, description = "heard"),
        (status = 404, description = "no such worker here, or the job is over, cancelled, or on another attempt: stop it", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "registered by another client, or taken over by another process", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "the worker has ended", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "the request is invalid", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn ack(
    State(state): State<Shared>,
    Id(job): Id<JobId>,
    Payload(ask): Payload<AckAsk>,
) -> Answer<StatusCode> {
    let worker = id_in_body("workerId", &ask.worker_id)?;
    let member = state.http_workers.member(&worker, &ask.registration)?;
    if member.jobs.ack(job.as_str(), ask.attempt) {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(unknown(job.as_str()))
    }
}

/// How far a worker is with a job, what the job has said since the last time, or both.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ProgressAsk {
    /// The worker it was given to.
    worker_id: String,
    /// As the registration was answered.
    registration: String,
    /// The attempt, as it was given.
    attempt: u32,
    /// 0 to 100.
    #[schema(maximum = 100)]
    percent: Option<u8>,
    /// One line about it: at most 200 bytes.
    #[serde(default)]
    #[schema(max_length = 200)]
    text: String,
    /// What is added to the output of the attempt: at most 32 KiB.
    #[serde(default)]
    #[schema(max_length = 32_768)]
    output: String,
}

/// Says how far a job is, and what it said; a cancelled one is answered with 404
#[utoipa::path(
    post, path = "/v1/jobs/{id}/progress", tag = "jobs", request_body = ProgressAsk,
    params(("id" = String, Path, description = "the job", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)),
    responses(
        (status = 204, description = "heard"),
        (status = 404, description = "no such worker here, or the job is over, cancelled, or on another attempt: stop it", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "registered by another client, or taken over by another process", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "the worker has ended", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "the request is invalid", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn progress(
    State(state): State<Shared>,
    Id(job): Id<JobId>,
    Payload(ask): Payload<ProgressAsk>,
) -> Answer<StatusCode> {
    let worker = id_in_body("workerId", &ask.worker_id)?;
    let member = state.http_workers.member(&worker, &ask.registration)?;
    if ask.percent.is_some_and(|percent| percent > 100) || ask.text.len() > PROGRESS_MAX_BYTES {
        let detail = format!("percent must be 0 to 100, and text at most {PROGRESS_MAX_BYTES} bytes");
        return Err(Problem::invalid(detail));
    }
    if ask.percent.is_none() && (!ask.text.is_empty() || ask.output.is_empty()) {
        return Err(Problem::invalid("there must be `percent` (with or without `text`), `output`, or both"));
    }
    check_output(&ask.output)?;
    let far = ask.percent.map(|percent| (percent, &*ask.text));
    match member.jobs.progress(job.as_str(), ask.attempt, far, &ask.output) {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(unknown(job.as_str())),
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Ending {
    /// Done.
    Succeeded,
    /// Done in part, and not to be tried again.
    Partial,
    /// Not done; to be tried again if attempts are left.
    Failed,
}

/// What came of a job.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ResultAsk {
    /// The worker it was given to.
    worker_id: String,
    /// As the registration was answered.
    registration: String,
    /// The attempt, as it was given.
    attempt: u32,
    /// How it ended.
    outcome: Ending,
    /// A summary: at most 1 KiB.
    #[serde(default)]
    #[schema(max_length = 1024)]
    result: String,
    /// What is added to the output of the attempt: at most 32 KiB.
    #[serde(default)]
    #[schema(max_length = 32_768)]
    output: String,
}

/// What became of a result.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResultAnswer {
    /// It is on its way to the leader.
    accepted: bool,
}

/// Says what came of a job
#[utoipa::path(
    post, path = "/v1/jobs/{id}/result", tag = "jobs", request_body = ResultAsk,
    params(("id" = String, Path, description = "the job", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128)),
    responses(
        (status = 200, description = "taken", body = ResultAnswer),
        (status = 404, description = "no such worker here, or the job is over, cancelled, or on another attempt", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "registered by another client, or taken over by another process", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "the worker has ended", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "the request is invalid", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn result(
    State(state): State<Shared>,
    Id(job): Id<JobId>,
    Payload(ask): Payload<ResultAsk>,
) -> Answer<axum::Json<ResultAnswer>> {
    let worker = id_in_body("workerId", &ask.worker_id)?;
    let member = state.http_workers.member(&worker, &ask.registration)?;
    if ask.result.len() > RESULT_MAX_BYTES {
        let detail =
            format!("result: {} bytes, but at most {RESULT_MAX_BYTES} are allowed", ask.result.len());
        return Err(Problem::invalid(detail));
    }
    check_output(&ask.output)?;
    let outcome = match ask.outcome {
        Ending::Succeeded => JobOutcome::succeeded(ask.result),
        Ending::Partial => JobOutcome::partial(ask.result),
        Ending::Failed => JobOutcome::failed(ask.result),
    };
    if member.jobs.report(job.as_str(), ask.attempt, outcome, &ask.output) {
        Ok(axum::Json(ResultAnswer { accepted: true }))
    } else {
        Err(unknown(job.as_str()))
    }
}

fn check_output(output: &str) -> Answer<()> {
    let bytes = output.len();
    if bytes <= OUTPUT_MAX_BYTES {
        return Ok(());
    }
    let detail = format!(
        "output: {bytes} bytes, but at most {OUTPUT_MAX_BYTES} are allowed at a time: send it in several requests"
    );
    Err(Problem::invalid(detail))
}

fn unknown(job: &str) -> Problem {
    let detail =
        format!("this worker does not have job {job}: it is over, was cancelled, or is on another attempt");
    Problem::not_found("unknown-job", detail)
}
