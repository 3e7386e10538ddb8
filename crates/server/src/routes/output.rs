//! What jobs said.

use super::json;
use crate::extract::{Id, Params};
use crate::problem::{Answer, Problem};
use crate::state::Shared;
use crate::store_reads::{FRESH, bytes_of};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tenure::id::JobId;
use tenure::job::{JobOutput, OutputPiece};
use utoipa::{IntoParams, ToSchema};

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutputQuery {
    /// Which attempt. Default: the latest that said something.
    attempt: Option<u32>,
    /// `json` (the default), or `text`: all of it in order, both streams together.
    #[serde(default)]
    #[param(inline)]
    format: Format,
}

#[derive(Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Format {
    /// As `tenure job logs --json`.
    #[default]
    Json,
    /// As text.
    Text,
}

/// An output, in its namespace.
#[derive(Serialize, ToSchema)]
pub(crate) struct OutputReport<'a> {
    #[schema(inline)]
    #[serde(flatten)]
    output: &'a JobOutput,
    namespace: &'a str,
}

/// What an attempt of a job said, as `tenure job logs --json` has it
#[utoipa::path(
    get, path = "/v1/jobs/{id}/output", tag = "jobs",
    params(("id" = String, Path, description = "the job", pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 128), OutputQuery),
    responses(
        (status = 200, description = "the output", content((OutputReport<'_> = "application/json"), (String = "text/plain"))),
        (status = 404, description = "the job or the attempt does not exist, or said nothing, or it is not kept any more", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn output(
    State(state): State<Shared>,
    Id(job): Id<JobId>,
    Params(query): Params<OutputQuery>,
) -> Answer<Response> {
    state.rate_limit.take_to_read(2.0)?;
    let (store, named) = (state.store.clone(), job.clone());
    let found = state.on_node(async move {
        let (lanes, namespace) = (&store.lanes, &store.namespace);
        let output = JobOutput::read(lanes, namespace, &named, query.attempt).await?;
        let others = match &output {
            None if query.attempt.is_some() => JobOutput::attempts(lanes, namespace, &named).await?,
            None | Some(_) => Vec::new(),
        };
        Answer::Ok((output, others))
    });
    let (output, others) = found.await??;
    let Some(output) = output else { return Err(missing(&state, &job, query.attempt, &others).await) };
    Ok(match query.format {
        Format::Json => {
            let namespace = state.namespace.as_str();
            json(bytes_of(&OutputReport { output: &output, namespace }))
        }
        Format::Text => {
            ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text(&output)).into_response()
        }
    })
}

fn text(output: &JobOutput) -> String {
    let mut text = String::new();
    for piece in output.pieces() {
        match piece {
            OutputPiece::Text(_, said) => text.push_str(said),
            OutputPiece::LeftOut(bytes) => text.push_str(&format!("\n[{bytes} bytes are left out here]\n")),
        }
    }
    text
}

/// Why there is nothing. A search for the job would cost hundreds of requests, so only the newest are looked at.
async fn missing(state: &Shared, job: &JobId, attempt: Option<u32>, others: &[u32]) -> Problem {
    if let (Some(attempt), [_, ..]) = (attempt, others) {
        let others: Vec<String> = others.iter().map(u32::to_string).collect();
        let detail = format!(
            "there is no output of attempt {attempt} of job {job}; there is of attempt {}",
            others.join(", ")
        );
        return Problem::not_found("no-output", detail);
    }
    let found = match state.store_reads.jobs(FRESH).await {
        Ok(found) => found,
        Err(problem) => return problem,
    };
    match found.value.find(job).map(|(_, row)| row) {
        Some(row) if row.open => {
            let detail = format!("job {job} has said nothing so far; what it says is written every 30 s");
            Problem::not_found("no-output", detail)
        }
        Some(_) => {
            let detail = format!("no output of job {job} is kept, or it said nothing");
            Problem::not_found("no-output", detail)
        }
        None => {
            let detail = format!("no output of a job {job} is kept, and it is not among the newest jobs");
            Problem::not_found("unknown-job", detail)
        }
    }
}
