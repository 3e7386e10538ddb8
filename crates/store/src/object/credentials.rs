//! One set of credentials for all clients of a store, renewed independently of the requests.
//!
//! object_store's providers fetch credentials inside the request that needs them, and fetch again throughout the last five
//! minutes of every lifetime. If the service is slower than the request timeout, it is cut off every time, and a node cannot
//! use its valid credentials. Here a separate task fetches them. It survives the end of any request, and the credentials
//! that are still valid are used in the meantime.

use super::wire::{self, Call, Ending, element};
use async_trait::async_trait;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use object_store::CredentialProvider;
use parking_lot::Mutex;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

/// Longest time for a credential request. Far longer than a lease request, because no lease waits for it.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to use credentials of unknown lifetime before asking their source again, which knows it.
const UNKNOWN_LIFETIME_RECHECK: Duration = Duration::from_secs(60);

/// Shortest time between the starts of two renewals.
const RENEWAL_PAUSE_MIN: Duration = Duration::from_secs(1);

/// A failed renewal is retried after a quarter of the remaining lifetime, within these bounds.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// Why there are no credentials. Contains none itself.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text}")]
pub(super) struct NoCredentials {
    text: String,
    /// The same request may well succeed later.
    pub(super) is_passing: bool,
}

impl NoCredentials {
    fn passing(text: impl Into<String>) -> NoCredentials {
        NoCredentials { text: text.into(), is_passing: true }
    }

    pub(super) fn lasting(text: impl Into<String>) -> NoCredentials {
        NoCredentials { text: text.into(), is_passing: false }
    }

    /// The [`NoCredentials`] behind an object_store error, if that is the cause.
    pub(super) fn behind(error: &object_store::Error) -> Option<&NoCredentials> {
        let mut next: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            next = error.source();
        }
        None
    }

    /// Judges a credential request by what was seen on the wire.
    fn judge(call: &Call, error: Option<&object_store::Error>, service: &str) -> NoCredentials {
        let service = if call.other_place.is_empty() { service } else { &call.other_place };
        if let Some(known) = error.and_then(NoCredentials::behind) {
            return known.clone();
        }
        match &call.other {
            Some(Ending::Answered { status: status @ 200..=299, .. }) => {
                NoCredentials::lasting(format!("{service} answered {status} without readable credentials"))
            }
            Some(Ending::Answered { status, code, .. }) => NoCredentials {
                text: format!("{service} answered {status} {code}").trim_end().to_owned(),
                is_passing: matches!(status, 408 | 429 | 500..),
            },
            Some(Ending::NotConnected { detail, timeout }) => {
                NoCredentials { text: format!("{service} did not answer: {detail}"), is_passing: *timeout }
            }
            Some(Ending::Broken { detail, .. }) => {
                NoCredentials::passing(format!("{service} did not answer: {detail}"))
            }
            Some(Ending::Open) => NoCredentials::passing(format!("{service} did not answer in time")),
            // From a file or a helper program. No request was made that the text could repeat.
            None => match error {
                Some(error) => NoCredentials::lasting(error.to_string()),
                None => NoCredentials::passing(format!("{service} did not answer in time")),
            },
        }
    }
}

impl From<NoCredentials> for object_store::Error {
    fn from(none: NoCredentials) -> object_store::Error {
        object_store::Error::Generic { store: "credentials", source: Box::new(none) }
    }
}

/// Where credentials come from. Asks one question at a time, however many requests wait.
pub(super) struct SharedCredentials<C>(Arc<Inner<C>>);

struct Inner<C> {
    source: Arc<dyn CredentialProvider<Credential = C>>,
    /// The service that is asked, for messages; at most scheme and host.
    service: String,
    /// How a message begins, before the reason, as long as there have never been credentials.
    without: &'static str,
    state: Mutex<State<C>>,
}

struct State<C> {
    held: Option<Held<C>>,
    question: Option<Question<C>>,
    /// The last renewal failed, and that has been logged.
    is_failing: bool,
}

struct Held<C> {
    credential: Arc<C>,
    /// `None` if not known; the store will refuse expired ones.
    expires: Option<Instant>,
    /// The same by the wall clock, which keeps running while the machine sleeps.
    expires_on_wall: Option<SystemTime>,
    renew_at: Instant,
}

/// A task that asks for credentials. A caller may stop waiting for its answer; the task continues.
struct Question<C> {
    task: AbortHandle,
    answer: Shared<BoxFuture<'static, Result<Arc<C>, NoCredentials>>>,
}

impl<C: Send + Sync + 'static> SharedCredentials<C> {
    pub(super) fn new(
        source: Arc<dyn CredentialProvider<Credential = C>>,
        service: impl Into<String>,
        without: &'static str,
    ) -> SharedCredentials<C> {
        let state = Mutex::new(State { held: None, question: None, is_failing: false });
        SharedCredentials(Arc::new(Inner { source, service: service.into(), without, state }))
    }
}

impl<C: Send + Sync + 'static> Inner<C> {
    /// The question in progress, or a new one.
    fn ask(
        self: &Arc<Self>,
        state: &mut State<C>,
    ) -> Shared<BoxFuture<'static, Result<Arc<C>, NoCredentials>>> {
        if let Some(question) = state.question.as_ref().filter(|question| !question.task.is_finished()) {
            return question.answer.clone();
        }
        let asked = tokio::spawn(Arc::clone(self).fetch());
        let task = asked.abort_handle();
        let service = self.service.clone();
        let answer = asked.map(move |end| match end {
            Ok(answer) => answer,
            Err(_) => Err(NoCredentials::passing(format!("asking {service} was broken off"))),
        });
        let answer = answer.boxed().shared();
        state.question = Some(Question { task, answer: answer.clone() });
        answer
    }

    async fn fetch(self: Arc<Self>) -> Result<Arc<C>, NoCredentials> {
        let (answer, call) = wire::observe(timeout(ANSWER_TIMEOUT, self.source.get_credential())).await;
        let now = Instant::now();
        let mut state = self.state.lock();
        let reason = match answer {
            Ok(Ok(credential)) => {
                if std::mem::take(&mut state.is_failing) {
                    tracing::info!(service = %self.service, "credentials are renewed again");
                }
                let held = Held::new(Arc::clone(&credential), call.lifetime, state.held.as_ref(), now);
                state.held = Some(held);
                return Ok(credential);
            }
            Ok(Err(error)) => NoCredentials::judge(&call, Some(&error), &self.service),
            Err(_) => NoCredentials::judge(&call, None, &self.service),
        };
        let State { held: Some(held), is_failing, .. } = &mut *state else {
            return Err(NoCredentials { text: format!("{}{reason}", self.without), ..reason });
        };
        let left = held.left(now);
        held.renew_at = now + (left / 4).clamp(RETRY_PAUSE.0, RETRY_PAUSE.1);
        if !std::mem::replace(is_failing, true) {
            tracing::warn!(
                "credentials could not be renewed, they are valid for {}: {reason}",
                seconds(left)
            );
        }
        Err(NoCredentials::passing(format!("{}, and {reason}", held.end(now))))
    }
}

impl<C> Held<C> {
    fn new(
        credential: Arc<C>,
        lifetime: Option<Duration>,
        before: Option<&Held<C>>,
        now: Instant,
    ) -> Held<C> {
        // A source may answer from its own cache; then the known expiry still applies.
        let same = before.filter(|before| Arc::ptr_eq(&before.credential, &credential));
        let expires = match lifetime {
            Some(lifetime) => now.checked_add(lifetime),
            None => same.and_then(|before| before.expires),
        };
        let expires_on_wall = match lifetime {
            Some(lifetime) => SystemTime::now().checked_add(lifetime),
            None => same.and_then(|before| before.expires_on_wall),
        };
        let pause = match expires {
            Some(expires) => expires.saturating_duration_since(now) / 2,
            None => UNKNOWN_LIFETIME_RECHECK,
        };
        Held { credential, expires, expires_on_wall, renew_at: now + pause.max(RENEWAL_PAUSE_MIN) }
    }

    fn left(&self, now: Instant) -> Duration {
        let awake = self.expires.map_or(Duration::MAX, |expires| expires.saturating_duration_since(now));
        let on_wall = self
            .expires_on_wall
            .map_or(Duration::MAX, |expires| expires.duration_since(SystemTime::now()).unwrap_or_default());
        awake.min(on_wall)
    }

    fn end(&self, now: Instant) -> String {
        let ago = self.expires.map_or(Duration::ZERO, |expires| now.saturating_duration_since(expires));
        format!("the credentials expired {} ago", seconds(ago))
    }
}

fn seconds(time: Duration) -> String {
    match time {
        Duration::MAX => "an unknown time".to_owned(),
        time => format!("{} s", time.as_secs()),
    }
}

#[async_trait]
impl<C: Send + Sync + 'static> CredentialProvider for SharedCredentials<C> {
    type Credential = C;

    async fn get_credential(&self) -> object_store::Result<Arc<C>> {
        let answer = {
            let (now, mut state) = (Instant::now(), self.0.state.lock());
            match state
                .held
                .as_ref()
                .map(|held| (Arc::clone(&held.credential), held.left(now), held.renew_at))
            {
                Some((credential, left, renew_at)) if !left.is_zero() => {
                    if now >= renew_at {
                        // Not awaited: the current credentials are good for this request.
                        drop(self.0.ask(&mut state));
                    }
                    return Ok(credential);
                }
                Some(_) | None => {}
            }
            let waiting = match &state.held {
                Some(held) => format!("{}; waiting for new ones from {}", held.end(now), self.0.service),
                None => format!("waiting for the first credentials from {}", self.0.service),
            };
            wire::note_waiting(waiting);
            self.0.ask(&mut state)
        };
        Ok(answer.await?)
    }
}

impl<C> fmt::Debug for SharedCredentials<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedCredentials").field(&self.0.service).finish()
    }
}

/// How long the credentials in an answer are valid from `now` on, if the answer says so: `Expiration` (Amazon, JSON or XML),
/// `expires_in` or `expires_on` (Google, Microsoft; numbers or text).
pub(super) fn lifetime(body: &[u8], now: jiff::Timestamp) -> Option<Duration> {
    let until = |end: jiff::Timestamp| Duration::try_from(end.duration_since(now)).unwrap_or_default();
    let text = std::str::from_utf8(body).ok()?;
    if let Some(end) = element(text, "Expiration") {
        return end.parse().ok().map(until);
    }
    let answer: serde_json::Value = serde_json::from_str(text).ok()?;
    if let Some(end) = answer.get("Expiration").and_then(|end| end.as_str()) {
        return end.parse().ok().map(until);
    }
    let number = |name: &str| {
        let value = answer.get(name)?;
        value.as_i64().or_else(|| value.as_str()?.parse().ok())
    };
    match number("expires_in") {
        Some(seconds) => Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
        None => jiff::Timestamp::from_second(number("expires_on")?).ok().map(until),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use tokio::sync::Semaphore;

    /// Gives scripted answers, each after `delay`.
    struct Script {
        answers: Mutex<VecDeque<Option<u64>>>,
        delay: Duration,
        asked: Semaphore,
    }

    impl fmt::Debug for Script {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Script")
        }
    }

    #[async_trait]
    impl CredentialProvider for Script {
        type Credential = usize;

        /// Answers with the number of the question, valid for as many seconds as the script says; fails if the script has no
        /// number.
        async fn get_credential(&self) -> object_store::Result<Arc<usize>> {
            self.asked.add_permits(1);
            let number = self.asked.available_permits();
            tokio::time::sleep(self.delay).await;
            match self.answers.lock().pop_front().flatten() {
                Some(seconds) => {
                    wire::note_lifetime(Some(Duration::from_secs(seconds)));
                    Ok(Arc::new(number))
                }
                None => Err(NoCredentials::lasting("the service is away").into()),
            }
        }
    }

    fn shared(
        delay_ms: u64,
        answers: impl Into<VecDeque<Option<u64>>>,
    ) -> (Arc<Script>, SharedCredentials<usize>) {
        let script = Arc::new(Script {
            answers: Mutex::new(answers.into()),
            delay: Duration::from_millis(delay_ms),
            asked: Semaphore::new(0),
        });
        let source: Arc<dyn CredentialProvider<Credential = usize>> = script.clone();
        (script, SharedCredentials::new(source, "the service", "no credentials: "))
    }

    /// What a request with a 750 ms timeout gets; `None` if it gets nothing in time.
    async fn request(credentials: &SharedCredentials<usize>) -> Option<Result<usize, String>> {
        let answer = timeout(Duration::from_millis(750), credentials.get_credential()).await.ok()?;
        Some(answer.map(|number| *number).map_err(|error| {
            NoCredentials::behind(&error).unwrap_or(&NoCredentials::lasting("something else")).to_string()
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn sl3_a_slow_answer_outlives_the_request_that_asked() {
        let (script, credentials) = shared(900, [Some(290)]);
        assert_eq!(request(&credentials).await, None);
        assert_eq!(request(&credentials).await, Some(Ok(1)));
        assert_eq!(script.asked.available_permits(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn sl3_no_request_waits_for_a_renewal() {
        let (script, credentials) = shared(900, vec![Some(290); 100]);
        request(&credentials).await;
        request(&credentials).await;
        for _ in 0..10_000 {
            let began = Instant::now();
            assert!(matches!(request(&credentials).await, Some(Ok(_))));
            assert_eq!(began.elapsed(), Duration::ZERO);
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        // 1,000 s in steps of half a lifetime.
        assert_eq!(script.asked.available_permits(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn sl3_only_the_end_of_the_credentials_stops_requests() {
        let (script, credentials) = shared(0, [Some(290)]);
        assert_eq!(request(&credentials).await, Some(Ok(1)));
        for _ in 0..289 {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(request(&credentials).await, Some(Ok(1)));
        }
        tokio::time::advance(Duration::from_secs(3)).await;
        // This request may hear of a renewal that began while the credentials were still valid.
        request(&credentials).await;
        let expected = "the credentials expired 2 s ago, and the service is away";
        assert_eq!(request(&credentials).await, Some(Err(expected.to_owned())));
        let tries = script.asked.available_permits();
        assert!((20..60).contains(&tries), "{tries} tries in half of the lifetime");
    }

    #[tokio::test(start_paused = true)]
    async fn what_never_was_is_not_called_expired() {
        let (_, credentials) = shared(0, []);
        let expected = "no credentials: the service is away";
        assert_eq!(request(&credentials).await, Some(Err(expected.to_owned())));
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_that_ended_while_the_machine_slept_are_over() {
        let (_, credentials) = shared(0, [Some(3_600), Some(3_600)]);
        assert_eq!(request(&credentials).await, Some(Ok(1)));
        let wall = SystemTime::now() - Duration::from_secs(1);
        credentials.0.state.lock().held.as_mut().expect("held").expires_on_wall = Some(wall);
        assert_eq!(request(&credentials).await, Some(Ok(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_that_are_over_when_they_come_are_used_once() {
        // This machine's clock may be wrong; the store knows.
        let (_, credentials) = shared(0, [Some(0), Some(0)]);
        assert_eq!(request(&credentials).await, Some(Ok(1)));
        assert_eq!(request(&credentials).await, Some(Ok(2)));
    }

    #[test]
    fn lifetimes_are_read_from_every_kind_of_answer() {
        let now: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap_or_default();
        let seconds = |text: &str| lifetime(text.as_bytes(), now).map(|lifetime| lifetime.as_secs());
        assert_eq!(seconds("{\"Expiration\" : \"2026-01-01T00:04:50Z\"}"), Some(290));
        assert_eq!(seconds("<a><Expiration>2026-01-01T01:00:00.123Z</Expiration></a>"), Some(3_600));
        assert_eq!(seconds("{\"Expiration\":\"2025-01-01T00:00:00Z\"}"), Some(0));
        assert_eq!(seconds("{\"expires_in\":3599}"), Some(3_599));
        assert_eq!(seconds("{\"expires_in\":\"3599\",\"expires_on\":\"7\"}"), Some(3_599));
        assert_eq!(seconds(&format!("{{\"expires_on\":\"{}\"}}", now.as_second() + 60)), Some(60));
        assert_eq!(seconds("a-role-name"), None);
        assert_eq!(seconds("{\"Expiration\":\"soon\"}"), None);
    }
}
