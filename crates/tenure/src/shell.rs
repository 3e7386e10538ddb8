//! The one loop that feeds a machine: commands in, requests out, one wake-up, one way to die. It decides nothing.
//!
//! A machine of the core takes inputs and returns effects ([`Machine`]); a [`Host`] knows the world around it: where requests
//! go, what outputs mean, what else can happen. The [`Shell`] between them keeps these rules:
//!
//! - Every request is carried by a task of its own and answered exactly once, with [`Request::unanswered`] if that task
//!   panics.
//! - There is one wake-up at a time, asked for anew after every step.
//! - Whatever is ready is handed over before the machine is woken, so that a machine can batch; but a flood of commands
//!   cannot keep answers and a due wake-up waiting for longer than 64 inputs.
//! - Effects are carried out in order.
//! - A panic of machine or host ends that life only. What the host gave out, its `Drop` withdraws; [`restarted`] begins the
//!   next life after a pause.
//!
//! ```
//! use std::ops::ControlFlow;
//! use tenure::clock::TokioClock;
//! use tenure::machine::{Effect, In, Machine, NoRequest, Now, Out, Time};
//! use tenure::shell::{Happening, Host, Shell};
//!
//! /// Rings once, when its time has come.
//! struct Alarm(Option<Time>);
//!
//! impl Machine for Alarm {
//!     type Command = ();
//!     type Request = NoRequest;
//!     type Output = &'static str;
//!
//!     fn handle(&mut self, now: Now, _: In<Alarm>, out: &mut Vec<Out<Alarm>>) {
//!         if self.0.take_if(|at| *at <= now.at).is_some() {
//!             out.push(Effect::Output("ring"));
//!         }
//!     }
//!
//!     fn wake_at(&self) -> Option<Time> {
//!         self.0
//!     }
//! }
//!
//! struct Bedroom;
//!
//! impl Host<Alarm> for Bedroom {
//!     type End = &'static str;
//!
//!     fn carry(&self, request: NoRequest) -> impl Future<Output = NoRequest> + Send + 'static {
//!         std::future::ready(request)
//!     }
//!
//!     fn output(&mut self, _: Now, _: &Alarm, output: &'static str) -> ControlFlow<&'static str> {
//!         ControlFlow::Break(output)
//!     }
//!
//!     async fn next(&mut self) -> Happening<Alarm, &'static str> {
//!         std::future::pending().await
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let shell = Shell::new(Alarm(Some(Time(20))), Bedroom, TokioClock::new());
//! assert_eq!(shell.run().await, "ring");
//! # }
//! ```
//!
//! Not promised: that a machine is woken in time. A process that stood still learns so at its next step, from the clock.

use crate::clock::Clock;
use crate::mutant::DriverMutant;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::Time;
use tenure_core::machine::{Answer, Effect, In, Input, Machine, Now, Out, Request, RequestId};
use tokio::sync::mpsc;
use tokio::task::{Id, JoinError, JoinSet};

/// Most inputs in a row before answers and a due wake-up get their turn.
const STREAK_MAX: u32 = 64;

/// Looks at a machine between two steps.
pub type Look<M> = Box<dyn FnOnce(&M) + Send>;

/// What happens around a machine, besides time and answers.
pub enum Happening<M: Machine, E> {
    /// Something for the machine.
    Command(M::Command),
    /// Somebody wants to look at it.
    Look(Look<M>),
    /// Nothing for the machine but the host's [news](Host::news), if there is any; the host asks to be asked again.
    Nothing,
    /// The end of this life.
    End(E),
}

/// The world around a machine.
pub trait Host<M: Machine>: Send + 'static {
    /// How a life can end.
    type End: Send + 'static;

    /// Carries a request, in a task of its own. It must end by itself.
    fn carry(&self, request: M::Request) -> impl Future<Output = Answer<M>> + Send + 'static;

    /// Does what the machine says.
    fn output(&mut self, now: Now, machine: &M, output: M::Output) -> ControlFlow<Self::End>;

    /// The next thing that happens here. Must be cancel-safe.
    fn next(&mut self) -> impl Future<Output = Happening<M, Self::End>> + Send;

    /// What has changed without anybody being woken, and must be known before any other input: a deadline that moved. Asked
    /// before every step until there is nothing more.
    fn news(&mut self) -> Option<M::Command> {
        None
    }

    /// A step is about to be taken. `late_ms`: by how much a wake-up that is due comes late, because the process stood still or
    /// had too much to do.
    fn before(&mut self, _now: Now, _late_ms: u64, _machine: &M, _input: &In<M>) {}

    /// A step was taken; its effects come next.
    fn stepped(&mut self, _now: Now, _machine: &M, _effects: &[Out<M>]) {}

    /// The effects of a step were carried out.
    fn settled(&mut self, _now: Now, _machine: &M) -> ControlFlow<Self::End> {
        ControlFlow::Continue(())
    }

    /// Time has passed, and nothing is due for the machine.
    fn looked(&mut self, _now: Now, _machine: &M) {}

    /// The longest sleep between two looks at the clock: where the clock outruns the runtime's timers, as in a suspended
    /// machine, a leader must not sleep through its deadline.
    fn look_every(&self) -> Option<Duration> {
        None
    }
}

/// Feeds one life of a machine.
pub struct Shell<M: Machine, H: Host<M>> {
    machine: M,
    host: H,
    clock: Arc<dyn Clock>,
    requests: JoinSet<(RequestId, Answer<M>)>,
    /// What to answer if the task of a request dies.
    open: HashMap<Id, (RequestId, Answer<M>)>,
    streak: u32,
    /// The wake-up as a mutant remembers it.
    stale_wake: Option<Time>,
}

impl<M, H> Shell<M, H>
where
    M: Machine + Send + 'static,
    H: Host<M>,
    M::Request: Send + 'static,
    Answer<M>: Send + 'static,
{
    /// A machine that has not begun.
    pub fn new(machine: M, host: H, clock: Arc<dyn Clock>) -> Shell<M, H> {
        Shell {
            machine,
            host,
            clock,
            requests: JoinSet::new(),
            open: HashMap::new(),
            streak: 0,
            stale_wake: None,
        }
    }

    /// Feeds the machine until its life ends.
    pub async fn run(mut self) -> H::End {
        loop {
            match self.turn().await {
                ControlFlow::Continue(()) => {}
                ControlFlow::Break(end) => return end,
            }
        }
    }

    async fn turn(&mut self) -> ControlFlow<H::End> {
        if self.streak >= STREAK_MAX {
            self.streak = 0;
            while let Some(done) = self.requests.try_join_next_with_id() {
                self.on_done(done)?;
            }
            return self.on_time();
        }
        let sleep = self.sleep();
        let due = sleep == Some(Duration::ZERO);
        tokio::select! {
            biased;
            happening = self.host.next() => match happening {
                Happening::Command(command) => self.step(Input::Command(command)),
                Happening::Look(look) => {
                    look(&self.machine);
                    ControlFlow::Continue(())
                }
                Happening::Nothing => self.feed_news(),
                Happening::End(end) => ControlFlow::Break(end),
            },
            Some(done) = self.requests.join_next_with_id(), if !self.requests.is_empty() => self.on_done(done),
            () = std::future::ready(()), if due => self.on_time(),
            () = or_never(sleep.map(tokio::time::sleep)), if !due => self.on_time(),
        }
    }

    fn now(&self) -> Now {
        Now { at: Time(self.clock.now_ms()), wall_ms: jiff::Timestamp::now().as_millisecond() }
    }

    fn wake_at(&mut self) -> Option<Time> {
        let at = self.machine.wake_at();
        if DriverMutant::WakeNotReplaced.on() {
            self.stale_wake = self.stale_wake.or(at);
            return self.stale_wake;
        }
        at
    }

    fn is_due(&mut self) -> bool {
        let now = Time(self.clock.now_ms());
        self.wake_at().is_some_and(|at| at <= now)
    }

    fn on_time(&mut self) -> ControlFlow<H::End> {
        if self.is_due() {
            return self.step(Input::Wake);
        }
        self.host.looked(self.now(), &self.machine);
        ControlFlow::Continue(())
    }

    fn sleep(&mut self) -> Option<Duration> {
        let now = Time(self.clock.now_ms());
        let left = self.wake_at().map(|at| Duration::from_millis(at.since(now)));
        match (left, self.host.look_every()) {
            (Some(left), Some(most)) => Some(left.min(most)),
            (left, most) => left.or(most),
        }
    }

    fn on_done(&mut self, done: Result<(Id, (RequestId, Answer<M>)), JoinError>) -> ControlFlow<H::End> {
        match done {
            Ok((task, (id, answer))) => {
                let id = self.mixed_up(id);
                self.open.remove(&task);
                self.step(Input::Answer(id, answer))
            }
            // A backend that panics has not answered; its request may have taken effect.
            Err(error) => {
                let Some((id, answer)) = self.open.remove(&error.id()) else {
                    return ControlFlow::Continue(());
                };
                tracing::error!(target: "tenure", %error, "a store request crashed");
                if DriverMutant::DeadRequestForgotten.on() {
                    return ControlFlow::Continue(());
                }
                self.step(Input::Answer(id, answer))
            }
        }
    }

    /// The id itself, except where a mutant mixes ids up.
    fn mixed_up(&self, id: RequestId) -> RequestId {
        match DriverMutant::RequestIdsMixed.on() {
            true => self.open.values().map(|(id, _)| *id).min().unwrap_or(id),
            false => id,
        }
    }

    fn step(&mut self, input: In<M>) -> ControlFlow<H::End> {
        self.feed_news()?;
        self.feed(input)
    }

    fn feed_news(&mut self) -> ControlFlow<H::End> {
        while let Some(news) = self.host.news() {
            self.feed(Input::Command(news))?;
        }
        ControlFlow::Continue(())
    }

    fn feed(&mut self, input: In<M>) -> ControlFlow<H::End> {
        let now = self.now();
        let wakes = matches!(input, Input::Wake);
        // A machine does all that is due in any step.
        let late_ms = self.machine.wake_at().map_or(0, |at| now.at.since(at));
        self.streak = if wakes { 0 } else { self.streak + 1 };
        self.stale_wake = self.stale_wake.filter(|_| !wakes);
        self.host.before(now, late_ms, &self.machine, &input);
        let mut effects = Vec::new();
        self.machine.handle(now, input, &mut effects);
        self.host.stepped(now, &self.machine, &effects);
        for effect in effects {
            match effect {
                Effect::Request(id, request) => {
                    let unanswered = request.unanswered();
                    let carried = self.host.carry(request);
                    let task = self.requests.spawn(async move { (id, carried.await) });
                    self.open.insert(task.id(), (id, unanswered));
                }
                Effect::Output(output) => self.host.output(now, &self.machine, output)?,
            }
        }
        self.host.settled(now, &self.machine)
    }
}

/// Pauses between the lives of something that must not stay dead.
#[derive(Clone, Copy, Debug)]
pub struct Restarts {
    /// The first pause; it doubles with every death in a row …
    pub first: Duration,
    /// … up to this,
    pub most: Duration,
    /// and the count starts over after a life of this length.
    pub forgiven_after: Duration,
}

impl Restarts {
    /// How long to wait after so many deaths in a row.
    pub fn pause(&self, deaths: u32) -> Duration {
        self.first.saturating_mul(1 << deaths.saturating_sub(1).min(16)).min(self.most)
    }
}

/// Lives one life after the other until one ends by itself. If a life panics, `died` is told the number of deaths in a row and
/// the pause that is due; it waits that long, or decides that there is no next life.
pub async fn restarted<E, L, P>(
    restarts: Restarts,
    mut life: impl FnMut() -> L,
    mut died: impl FnMut(u32, Duration) -> P,
) -> Option<E>
where
    E: Send + 'static,
    L: Future<Output = E> + Send + 'static,
    P: Future<Output = ControlFlow<E>>,
{
    let mut deaths = 0u32;
    loop {
        let born = tokio::time::Instant::now();
        // A separate task, so that a panic ends there and not here.
        match tokio::spawn(life()).await {
            Ok(end) => return Some(end),
            Err(error) if error.is_cancelled() => return None,
            Err(_) => {}
        }
        deaths = if born.elapsed() >= restarts.forgiven_after { 1 } else { deaths.saturating_add(1) };
        if let ControlFlow::Break(end) = died(deaths, restarts.pause(deaths)).await {
            return Some(end);
        }
    }
}

/// Waits for a pause before the next life.
pub async fn rest<E>(pause: Duration) -> ControlFlow<E> {
    tokio::time::sleep(pause).await;
    ControlFlow::Continue(())
}

/// The receiving end of a handle. Says once that the handle is gone, and then nothing more: a closed channel is always ready.
#[derive(Debug)]
pub struct Commands<C> {
    receiver: mpsc::Receiver<C>,
    closed: bool,
}

impl<C> Commands<C> {
    /// Around the receiver of a handle's channel.
    pub fn new(receiver: mpsc::Receiver<C>) -> Commands<C> {
        Commands { receiver, closed: false }
    }

    /// The next command; `None`, once, if nobody holds the handle any more. Cancel-safe.
    pub async fn next(&mut self) -> Option<C> {
        if self.closed {
            return std::future::pending().await;
        }
        let command = self.receiver.recv().await;
        self.closed = command.is_none();
        command
    }

    /// Says once more that the handle is gone: to the next life, which does not know it yet.
    pub fn repeat_end(&mut self) {
        self.closed = false;
    }
}

/// Waits for this, or for ever if there is nothing to wait for.
pub async fn or_never<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TokioClock;
    use parking_lot::Mutex;

    /// Asks for every number it is given, and notes how many inputs it had each time it was woken.
    struct Asker {
        inputs: u64,
        woken: Vec<u64>,
        wake: Option<Time>,
    }

    struct Ask(u64);

    impl Request for Ask {
        type Answer = Option<u64>;

        fn unanswered(&self) -> Option<u64> {
            None
        }
    }

    impl Machine for Asker {
        type Command = u64;
        type Request = Ask;
        type Output = Option<u64>;

        fn handle(&mut self, now: Now, input: In<Asker>, out: &mut Vec<Out<Asker>>) {
            match input {
                Input::Wake => {
                    self.woken.push(self.inputs);
                    self.wake = Some(now.at + 10);
                }
                Input::Command(number) => {
                    self.inputs += 1;
                    out.push(Effect::Request(RequestId(number), Ask(number)));
                }
                Input::Answer(_, answer) => out.push(Effect::Output(answer)),
            }
        }

        fn wake_at(&self) -> Option<Time> {
            self.wake
        }
    }

    type Answers = Arc<Mutex<Vec<Option<u64>>>>;

    struct AskerHost {
        commands: Commands<u64>,
        answers: Answers,
        wanted: usize,
        closed: u32,
    }

    impl Host<Asker> for AskerHost {
        type End = Vec<u64>;

        #[expect(clippy::manual_async_fn, reason = "an async fn would borrow the host")]
        fn carry(&self, Ask(number): Ask) -> impl Future<Output = Option<u64>> + Send + 'static {
            async move {
                assert!(number != 13, "the backend's own code panics");
                Some(number)
            }
        }

        fn output(&mut self, _: Now, machine: &Asker, answer: Option<u64>) -> ControlFlow<Vec<u64>> {
            let mut answers = self.answers.lock();
            answers.push(answer);
            match answers.len() == self.wanted {
                true => ControlFlow::Break(machine.woken.clone()),
                false => ControlFlow::Continue(()),
            }
        }

        async fn next(&mut self) -> Happening<Asker, Vec<u64>> {
            match self.commands.next().await {
                Some(number) => Happening::Command(number),
                None => {
                    self.closed += 1;
                    assert_eq!(self.closed, 1, "said once");
                    Happening::Nothing
                }
            }
        }
    }

    fn shell(numbers: u64, wake: Option<Time>) -> (Shell<Asker, AskerHost>, Answers) {
        let wanted = usize::try_from(numbers).expect("small");
        let (sender, receiver) = mpsc::channel(wanted);
        (1..=numbers).for_each(|number| sender.try_send(number).expect("room"));
        let answers = Answers::default();
        let host =
            AskerHost { commands: Commands::new(receiver), answers: Arc::clone(&answers), wanted, closed: 0 };
        let machine = Asker { inputs: 0, woken: Vec::new(), wake };
        (Shell::new(machine, host, TokioClock::new()), answers)
    }

    #[tokio::test(start_paused = true)]
    async fn every_request_is_answered_once_even_if_its_task_panics() {
        let (shell, answers) = shell(20, None);
        shell.run().await;
        let mut answers = answers.lock().clone();
        answers.sort_unstable();
        let wanted: Vec<Option<u64>> =
            std::iter::once(None).chain((1..=20).filter(|n| *n != 13).map(Some)).collect();
        assert_eq!(answers, wanted);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_ready_comes_before_the_wake_up() {
        let (shell, _) = shell(20, Some(Time(0)));
        assert_eq!(shell.run().await.first(), Some(&20), "all commands first");
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_does_not_keep_a_due_wake_up_waiting() {
        let (shell, _) = shell(1_000, Some(Time(0)));
        assert_eq!(shell.run().await.first(), Some(&u64::from(STREAK_MAX)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_life_that_panics_is_followed_by_another_after_a_growing_pause() {
        let second = Duration::from_secs(1);
        let restarts = Restarts { first: second, most: 4 * second, forgiven_after: 60 * second };
        let (mut lives, mut deaths) = (0, Vec::new());
        let life = || {
            lives += 1;
            let calm = lives == 5;
            let last = lives == 6;
            async move {
                if calm {
                    tokio::time::sleep(Duration::from_secs(61)).await;
                }
                assert!(last, "it dies");
                "done"
            }
        };
        let died = |count, pause: Duration| {
            deaths.push((count, pause.as_secs()));
            rest(pause)
        };
        let end = restarted(restarts, life, died).await;
        assert_eq!(end, Some("done"));
        assert_eq!(deaths, [(1, 1), (2, 2), (3, 4), (4, 4), (1, 1)], "a calm minute is forgiven");
    }
}
