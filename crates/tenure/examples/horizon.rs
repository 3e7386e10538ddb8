//! A queue and a scheduler share one election, and a crash in the middle loses nothing and does nothing twice:
//! `cargo run -p tenure --example horizon`.
//!
//! Three pods. On the one that leads, the queue hands out jobs and the scheduler makes one at every tick; all three run them.
//! Meanwhile mails are submitted from outside. In the middle the leading pod dies without a word, with jobs half done.
#![allow(clippy::print_stdout, reason = "an example talks")]

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;
use tenure::id::{JobId, Namespace, SeriesId};
use tenure::job::{
    Dispatcher, Handlers, JobContext, JobList, JobOutcome, JobRunner, JobSpec, JobState, Jobs,
};
use tenure::plugin::{Plugin, Services};
use tenure::settings::{CoordinationMode, Preset};
use tenure::worker::WorkerSpec;
use tenure::{LeaderGuard, Settings, async_trait};
use tokio::runtime::Builder;
use tokio::sync::{SetOnce, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const PODS: [&str; 3] = ["pod-a", "pod-b", "pod-c"];
const TICKS: u64 = 30;
const MAILS: u64 = 15; // before the crash, and after
const PACE: Duration = Duration::from_millis(100);
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

fn settings(pod: &str) -> Result<Settings, Failure> {
    let settings = Settings::builder().store("memory:horizon").namespace("horizon").node(pod);
    let settings = settings.coordination_mode(CoordinationMode::Global); // one election for queue and scheduler
    let settings = settings.preset(Preset::Fast).startup_jitter_max(Duration::ZERO); // you are watching
    let settings = settings.job_poll_interval(PACE / 2).job_idle_interval(PACE * 2);
    let settings = settings.worker_heartbeat_interval(PACE * 10).worker_timeout(PACE * 20);
    Ok(settings.worker_sweep_interval(PACE * 5).build()?)
}

/// Where a plugin's jobs are: its handle says so, once it is attached.
type Place = Arc<SetOnce<Jobs>>;

/// Hands out jobs while its pod leads.
struct Queue {
    pod: &'static str,
    place: Place,
    leader: watch::Sender<(&'static str, u64)>,
}

#[async_trait]
impl Plugin for Queue {
    fn name(&self) -> &str {
        "queue"
    }

    async fn promoted(&self, guard: LeaderGuard) {
        let _dispatcher = Dispatcher::start(self.place.wait().await, guard.clone());
        say(format!("{} leads in epoch {}", self.pod, guard.epoch()));
        self.leader.send_replace((self.pod, guard.epoch()));
        guard.ended().await; // the dispatcher ends here; the jobs stay on the store, for the next leader
    }
}

/// Makes a job at every tick while its pod leads.
struct Scheduler(Place);

#[async_trait]
impl Plugin for Scheduler {
    fn name(&self) -> &str {
        "scheduler"
    }

    async fn promoted(&self, guard: LeaderGuard) {
        // The same dispatcher as the queue's: in one epoch all parts of a program share it.
        let dispatcher = Dispatcher::start(self.0.wait().await, guard.clone());
        let _ = guard.run(ticks(dispatcher)).await; // until leadership ends: the next leader's goes on from there
    }
}

async fn ticks(dispatcher: Dispatcher) -> Result<(), Failure> {
    dispatcher.ready().await;
    // The last tick that became a job, whoever led then. Those that came while nobody led are made up for.
    let last = dispatcher.series().await.get(&SeriesId::new("tick")?).copied().unwrap_or(0);
    for tick in last + 1..=TICKS {
        sleep_until(*BEGAN + PACE * tick as u32).await;
        // The ledger keeps the watermark: whoever submits this tick again gets no second job.
        let job = JobSpec::new(format!("tick-{tick}"), "report").series("tick").watermark(tick);
        dispatcher.submit(job.queue("reports")).await?;
    }
    Ok(())
}

/// What the jobs do, as the rest of the world sees it: which pod began which job, and which one did it.
#[derive(Default)]
struct World {
    begun: Mutex<Vec<(JobId, &'static str)>>,
    done: Mutex<BTreeMap<JobId, &'static str>>,
}

impl World {
    async fn work(self: Arc<Self>, job: JobContext, pod: &'static str) -> JobOutcome {
        self.begun.lock().expect("unpoisoned").push((job.id.clone(), pod));
        sleep(PACE).await;
        // A job may run twice. Whatever it changes goes by the job's id, so that it is done once.
        self.done.lock().expect("unpoisoned").entry(job.id).or_insert(pod);
        JobOutcome::succeeded(format!("done on {pod}"))
    }

    /// What this pod has begun and nobody has done yet.
    fn half_done(&self, pod: &str) -> Vec<JobId> {
        let (begun, done) = (self.begun.lock().expect("unpoisoned"), self.done.lock().expect("unpoisoned"));
        let here = begun.iter().filter(|(id, on)| *on == pod && !done.contains_key(id));
        here.map(|(id, _)| id.clone()).collect()
    }
}

/// What each process of yours does.
async fn live(queue: Queue, world: Arc<World>, stop: CancellationToken) -> Result<(), Failure> {
    let (pod, place) = (queue.pod, Arc::clone(&queue.place));
    let services = Services::new(); // a process within this process; in a program of its own: Services::process()
    let queue = services.attach(queue, settings(pod)?).await?;
    let scheduler = services.attach(Scheduler(Arc::clone(&place)), settings(pod)?).await?;
    place.set(queue.jobs())?;
    let worker = queue.register_worker(&WorkerSpec::new(format!("{pod}-worker"), "queue"))?;
    let work = move |job| Arc::clone(&world).work(job, pod);
    let handlers = Handlers::new().on("mail", work.clone()).on("report", work);
    let runner = JobRunner::start(&queue.jobs(), worker, handlers);
    stop.cancelled().await;
    runner.drain().await;
    scheduler.detach().await;
    queue.detach().await;
    Ok(())
}

fn say(what: String) {
    println!("{:4.1} s  {what}", BEGAN.elapsed().as_secs_f64());
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let (_, world, stop) = (*BEGAN, Arc::new(World::default()), CancellationToken::new());
    let (leader, mut pods) = (watch::Sender::default(), BTreeMap::new());
    for pod in PODS {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let queue = Queue { pod, place: Place::default(), leader: leader.clone() };
        let life = runtime.spawn(live(queue, Arc::clone(&world), stop.clone()));
        pods.insert(pod, (runtime, life));
    }

    // Somebody else, who only submits, whether anybody leads or not.
    let lanes = tenure::store::open(&settings("outside")?.store, &Default::default()).await?;
    let jobs = Jobs::of_namespace(&settings("outside")?, lanes.clone())?;
    let (mut mails, mut crash) = (0, None);
    while crash.as_ref().is_none_or(|(_, _, at)| mails < at + MAILS) {
        mails += 1;
        jobs.submit(JobSpec::new(format!("mail-{mails}"), "mail").queue("mails")).await?;
        sleep(PACE).await;
        let (pod, epoch) = *leader.borrow();
        if crash.is_none() && mails >= MAILS && !world.half_done(pod).is_empty() {
            pods.remove(pod).expect("it lives").0.shutdown_background(); // nothing goes on, and nobody is told
            let half_done = world.half_done(pod);
            say(format!("{pod} dies, with {} jobs half done", half_done.len()));
            crash = Some((half_done, epoch, mails));
        }
    }

    let (namespace, mut ended) = (Namespace::new("horizon")?, BTreeMap::new());
    let ids = (1..=TICKS).map(|n| format!("tick-{n}")).chain((1..=mails).map(|n| format!("mail-{n}")));
    for id in ids {
        let id = JobId::new(&id)?;
        while !ended.contains_key(&id) {
            match JobList::find(&lanes, &namespace, &id).await? {
                Some(job) if job.state.is_final() => drop(ended.insert(id.clone(), job)),
                _ => sleep(PACE).await,
            }
        }
    }
    say(format!("all {} jobs have ended", ended.len()));
    stop.cancel();
    for (runtime, life) in pods.into_values() {
        life.await??;
        runtime.shutdown_background();
    }

    let (begun, done) = (world.begun.lock().expect("unpoisoned"), world.done.lock().expect("unpoisoned"));
    println!("\nPod    begun  done");
    for pod in PODS {
        let began = begun.iter().filter(|(_, on)| *on == pod).count();
        println!("{pod}  {began:5}  {:4}", done.values().filter(|on| **on == pod).count());
    }
    let (half_done, epoch, _) = crash.expect("there was one");
    assert!(leader.borrow().1 > epoch, "another pod led");
    assert!(ended.values().all(|job| job.state == JobState::Succeeded), "each has one result");
    assert!(ended.keys().eq(done.keys()), "nothing was lost, and nothing done that nobody asked for");
    assert!(half_done.iter().all(|id| ended[id].begun() > 1), "what was half done was done again");
    Ok(())
}
