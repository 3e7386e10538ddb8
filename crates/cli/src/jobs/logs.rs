//! `tenure job logs`: what an attempt of a job said.

use crate::args::LogsArgs;
use crate::exit::Failure;
use crate::out::{closed, complain, repeat, say_json};
use crate::schedules::{Place, id, pretty};
use serde_json::json;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;
use tenure::id::JobId;
use tenure::job::{JobList, JobOutput, JobRecord, JobState, OutputPiece, OutputStream};

/// How often whoever follows looks.
const LOOK: Duration = Duration::from_secs(2);

pub(crate) async fn logs(args: LogsArgs) -> Result<ExitCode, Failure> {
    let id: JobId = id("ID", &args.id)?;
    let (namespace, place) = Place::existing(&args.settings).await?;
    let missing = || Failure::missing(format!("there is no job {:?} in {namespace}", id.as_str()));
    let logs = Logs { place: place.ok_or_else(missing)?, id };
    if args.follow {
        return logs.follow(args.attempt).await;
    }
    let Some(output) = logs.read(args.attempt).await? else {
        let sentence = logs.nothing(&logs.job().await?, args.attempt).await?;
        if args.json {
            say_json(&pretty(
                &json!({"namespace": namespace.as_str(), "job": logs.id.as_str(), "bytes": 0}),
            )?);
        }
        complain!("tenure: {sentence}");
        return Ok(ExitCode::SUCCESS);
    };
    if args.json {
        let mut value = json!(output);
        value["namespace"] = json!(namespace.as_str());
        say_json(&pretty(&value)?);
        return Ok(ExitCode::SUCCESS);
    }
    let mut printer = Printer::default();
    printer.print(&output);
    if output.ended_at.is_none() {
        let job = logs.job().await?;
        printer.remark(&match is_over(&job, output.attempt) {
            true => format!("attempt {} was cut off: what it said last may be missing", output.attempt),
            false => format!("attempt {} is running; what it says is written every 30 s", output.attempt),
        });
    }
    Ok(ExitCode::SUCCESS)
}

struct Logs {
    place: Place,
    id: JobId,
}

impl Logs {
    async fn read(&self, attempt: Option<u32>) -> Result<Option<JobOutput>, Failure> {
        Ok(JobOutput::read(&self.place.lanes, &self.place.namespace, &self.id, attempt).await?)
    }

    async fn job(&self) -> Result<JobRecord, Failure> {
        let Place { lanes, namespace } = &self.place;
        let found = JobList::find(lanes, namespace, &self.id).await?;
        found
            .ok_or_else(|| Failure::missing(format!("there is no job {:?} in {namespace}", self.id.as_str())))
    }

    /// Why there is no output: the job, or this attempt, said nothing. An attempt that does not exist is an error.
    async fn nothing(&self, job: &JobRecord, attempt: Option<u32>) -> Result<String, Failure> {
        let (id, begun) = (&self.id, job.begun());
        let attempts = JobOutput::attempts(&self.place.lanes, &self.place.namespace, id).await?;
        let others = match attempts.is_empty() {
            true => String::new(),
            false => {
                let all: Vec<String> = attempts.iter().map(u32::to_string).collect();
                format!("; there is output of attempt {}", all.join(", "))
            }
        };
        match attempt {
            Some(attempt) if attempt > begun => {
                let had = match begun {
                    0 => "none".to_owned(),
                    begun => format!("{begun}"),
                };
                Err(Failure::missing(format!(
                    "job {id} has no attempt {attempt}: it had {had} so far{others}"
                )))
            }
            Some(attempt) => Ok(format!("no output of attempt {attempt} of job {id} is kept{others}")),
            None if begun == 0 => Ok(format!("job {id} has not begun: it is {}", job.state.as_str())),
            None if job.state.is_final() => Ok(format!("no output of job {id} is kept, or it said nothing")),
            None => Ok(format!("job {id} has said nothing so far; what it says is written every 30 s")),
        }
    }

    async fn follow(&self, attempt: Option<u32>) -> Result<ExitCode, Failure> {
        let mut job = self.job().await?;
        let mut printer = Printer::default();
        let attempt = match attempt {
            Some(attempt) => attempt,
            None => {
                if job.begun() == 0 && !job.state.is_final() {
                    printer.remark(&format!("waiting for job {} to begin", self.id));
                }
                while job.begun() == 0 && !job.state.is_final() {
                    tokio::time::sleep(LOOK).await;
                    job = self.job().await?;
                }
                let latest = if job.state.is_out() { None } else { self.read(None).await? };
                latest.map_or(job.begun(), |output| output.attempt)
            }
        };
        let mut shown: Option<JobOutput> = None;
        let mut last_look = false;
        while !closed() {
            let news = match &shown {
                None => self.read(Some(attempt)).await?,
                Some(shown) => shown.newer(&self.place.lanes, &self.place.namespace).await?,
            };
            if let Some(output) = news {
                printer.print(&output);
                shown = Some(output);
            }
            if shown.as_ref().is_some_and(|output| output.ended_at.is_some()) {
                return Ok(ExitCode::SUCCESS);
            }
            if last_look {
                let sentence = match &shown {
                    Some(_) => format!("attempt {attempt} was cut off: what it said last may be missing"),
                    None => self.nothing(&job, Some(attempt)).await?,
                };
                printer.remark(&sentence);
                return Ok(ExitCode::SUCCESS);
            }
            job = self.job().await?;
            // What it said last may be written a little later than that it is over.
            last_look = is_over(&job, attempt);
            tokio::time::sleep(LOOK).await;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Whether this attempt has ended, whatever it said.
fn is_over(job: &JobRecord, attempt: u32) -> bool {
    let waits_for_the_next = job.state == JobState::Queued && job.begun() >= attempt;
    job.state.is_final() || job.begun() > attempt || waits_for_the_next
}

#[derive(Default)]
struct Printer {
    /// How much of the output was printed.
    shown: u64,
    /// Whether the last line is not complete.
    mid_line: bool,
}

impl Printer {
    /// Prints what is new.
    fn print(&mut self, output: &JobOutput) {
        for piece in output.pieces_after(self.shown) {
            match piece {
                OutputPiece::Text(stream, text) => {
                    repeat(stream == OutputStream::Stderr, text);
                    self.mid_line = !text.ends_with('\n');
                }
                OutputPiece::LeftOut(bytes) => self.remark(&format!("{bytes} bytes are left out here")),
            }
        }
        self.shown = self.shown.max(output.bytes);
    }

    /// Says something that the job did not say, on a line of its own.
    fn remark(&mut self, sentence: &str) {
        if std::mem::take(&mut self.mid_line) && std::io::stdout().is_terminal() {
            repeat(true, "\n");
        }
        complain!("tenure: {sentence}");
    }
}
