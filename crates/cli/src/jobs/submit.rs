//! `tenure job submit`, `cancel`, `retry` and `rm`: from anywhere, whether anybody leads or not.

use crate::args::{OneArgs, PlaceArgs, RetryArgs, SubmitArgs};
use crate::exit::Failure;
use crate::out::{complain, say, say_json};
use crate::schedules::{Place, id, pretty};
use serde_json::json;
use std::io::Read;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tenure::id::{JobId, Label};
use tenure::job::{JobList, JobRecord, JobSpec, JobState, Jobs, Labels, Submitted};
use tenure_plugins::work::{COMMAND_KIND, HTTP_KIND, WORK_TIMEOUT, Work};

/// How often it is looked whether the job has ended, while somebody waits for it.
const LOOK: Duration = Duration::from_millis(500);

/// How long a job may wait before it is said why.
const PATIENCE: Duration = Duration::from_secs(3);

/// The job ended, and did not succeed.
const NOT_DONE: u8 = 1;

/// Most bytes of a payload that are read, so that what is too much is told as such.
const PAYLOAD_READ_MAX: u64 = 1 << 20;

pub(crate) async fn submit(args: SubmitArgs) -> Result<ExitCode, Failure> {
    let ms = Duration::from_millis;
    let mut spec = work(&args)?.attempts(args.attempts);
    spec = spec.backoff(ms(args.backoff)).queue(&args.queue).priority(args.priority);
    if let Some(timeout) = args.timeout {
        spec = spec.timeout(ms(timeout));
    }
    let label = |flag: &str, text: &String| id::<Label>(flag, text);
    spec = spec.needs(Labels {
        partition: args.partition.as_ref().map(|text| label("--partition", text)).transpose()?,
        domain: args.domain.as_ref().map(|text| label("--domain", text)).transpose()?,
        capabilities: args
            .capabilities
            .iter()
            .map(|text| label("--capability", text))
            .collect::<Result<_, _>>()?,
    });
    if let Some(ttl) = args.ttl {
        spec = spec.ttl(ms(ttl));
    }
    if let Some(moment) = args.not_before {
        spec = spec.not_before(moment);
    }
    if let Some(worker) = &args.worker {
        spec = spec.worker(worker);
    }
    let place = Place::open(&args.settings).await?;
    let jobs = Jobs::of_namespace(&args.settings.load()?.settings, place.lanes.clone())?;
    let receipt = jobs.submit(spec).await?;
    let existed = receipt.submitted != Submitted::Created;
    let ended = if args.wait { Some(ended(&place, &receipt.id).await?) } else { None };
    let state = ended.as_ref().map(|job| job.state);
    if args.json {
        let report = json!({
            "namespace": place.namespace.as_str(), "job": receipt.id.as_str(),
            "outcome": if existed { "existed" } else { "submitted" }, "state": state.map(JobState::as_str),
            "result": ended.as_ref().map(|job| String::from_utf8_lossy(&job.result)),
            "reason": ended.as_ref().map(|job| &*job.reason),
        });
        say_json(&pretty(&report)?);
    } else {
        match (&ended, existed) {
            (None, false) => say!("submitted job {}", receipt.id),
            (None, true) => say!("job {} exists: it was submitted before", receipt.id),
            (Some(job), _) => {
                let result = String::from_utf8_lossy(&job.result);
                if job.state == JobState::Succeeded {
                    say!("{result}");
                } else {
                    let whys = [&*job.reason, &result].into_iter().filter(|why| !why.is_empty());
                    let told: Vec<&str> = [job.state.as_str()].into_iter().chain(whys).collect();
                    complain!("tenure: job {} ended as {}", job.id, told.join(": "));
                }
            }
        }
    }
    Ok(match state {
        None | Some(JobState::Succeeded) => ExitCode::SUCCESS,
        Some(_) => ExitCode::from(NOT_DONE),
    })
}

/// What it does: a command, a request, or what the workers do that take jobs of its kind.
fn work(args: &SubmitArgs) -> Result<JobSpec, Failure> {
    let given = args.payload.as_ref().map(|text| payload(text)).transpose()?.unwrap_or_default();
    let (kind, given) = match (&args.kind, &args.http) {
        (Some(kind), _) => (kind.as_str(), given),
        (None, Some(url)) => (HTTP_KIND, json!({ "url": url }).to_string().into_bytes()),
        (None, None) => {
            let mut fields = json!({ "command": args.command });
            if let Some(directory) = &args.directory {
                fields["directory"] = json!(directory);
            }
            (COMMAND_KIND, fields.to_string().into_bytes())
        }
    };
    let new = match &args.id {
        Some(id) => JobSpec::new(id, kind),
        None => JobSpec::unnamed(kind),
    };
    let work = Work::of_job(kind, &given).map_err(|problems| Failure::usage(problems.to_string()))?;
    Ok(match work {
        Some(work) => work.job(new).timeout(WORK_TIMEOUT),
        None => new.payload(given),
    })
}

/// The job once it has ended, however long that takes. Says why it waits, when that lasts.
async fn ended(place: &Place, id: &JobId) -> Result<JobRecord, Failure> {
    let (mut told, began) = (String::new(), Instant::now());
    loop {
        match JobList::find(&place.lanes, &place.namespace, id).await? {
            Some(job) if job.state.is_final() => return Ok(job),
            Some(job) => {
                let reason = if job.state == JobState::Queued { &*job.reason } else { "" };
                if began.elapsed() > PATIENCE && !reason.is_empty() && told != *reason {
                    complain!("tenure: job {id} waits: {reason}");
                    told = reason.to_owned();
                }
            }
            None => return Err(Failure::missing(format!("job {id} is gone: somebody removed it"))),
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The payload itself, or what `@FILE` or `-` stands for.
fn payload(given: &str) -> Result<Vec<u8>, Failure> {
    let (mut source, name): (Box<dyn Read>, &str) = match given.strip_prefix('@') {
        _ if given == "-" => (Box::new(std::io::stdin()), "stdin"),
        Some(path) => {
            let file = std::fs::File::open(path);
            (Box::new(file.map_err(|error| unread(path, &error))?), path)
        }
        None => return Ok(given.as_bytes().to_vec()),
    };
    let mut bytes = Vec::new();
    source.by_ref().take(PAYLOAD_READ_MAX).read_to_end(&mut bytes).map_err(|error| unread(name, &error))?;
    Ok(bytes)
}

fn unread(name: &str, error: &std::io::Error) -> Failure {
    Failure::usage(format!("--payload: cannot read {name}: {error}"))
}

/// A job that a command is about.
struct Target {
    place: Place,
    jobs: Jobs,
    job: JobRecord,
}

impl Target {
    async fn find(id_text: &str, settings: &PlaceArgs) -> Result<Target, Failure> {
        let id: JobId = id("ID", id_text)?;
        let (namespace, place) = Place::existing(settings).await?;
        let missing = || Failure::missing(format!("there is no job {:?} in {namespace}", id.as_str()));
        let place = place.ok_or_else(missing)?;
        let job = JobList::find(&place.lanes, &namespace, &id).await?.ok_or_else(missing)?;
        let jobs = Jobs::of_namespace(&settings.load()?.settings, place.lanes.clone())?;
        Ok(Target { place, jobs, job })
    }

    fn tell(&self, as_json: bool, outcome: &str, sentence: &str) -> Result<(), Failure> {
        if as_json {
            let (job, state) = (self.job.id.as_str(), self.job.state.as_str());
            let namespace = self.place.namespace.as_str();
            let report = json!({"namespace": namespace, "job": job, "outcome": outcome, "state": state});
            say_json(&pretty(&report)?);
        } else {
            say!("{sentence}");
        }
        Ok(())
    }
}

pub(crate) async fn cancel(args: OneArgs) -> Result<ExitCode, Failure> {
    let target = Target::find(&args.id, &args.settings).await?;
    let (id, state) = (&target.job.id, target.job.state);
    if state.is_final() {
        target.tell(args.json, "over", &format!("job {id} is over: {}", state.as_str()))?;
    } else {
        target.jobs.cancel(id).await?;
        target.tell(args.json, "asked", &format!("asked the leader to cancel job {id}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn retry(args: RetryArgs) -> Result<ExitCode, Failure> {
    let target = Target::find(&args.id, &args.settings).await?;
    target.jobs.retry(&target.job, args.attempts).await?;
    let sentence = format!("asked the leader to try job {} again", target.job.id);
    target.tell(args.json, "asked", &sentence)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn remove(args: OneArgs) -> Result<ExitCode, Failure> {
    let target = Target::find(&args.id, &args.settings).await?;
    let (id, state) = (&target.job.id, target.job.state);
    if !state.is_final() {
        let sentence = format!("job {id} is {}: cancel it first", state.as_str());
        return Err(Failure::other(sentence));
    }
    target.jobs.remove(id).await?;
    target.tell(args.json, "asked", &format!("asked the leader to remove job {id}"))?;
    Ok(ExitCode::SUCCESS)
}
