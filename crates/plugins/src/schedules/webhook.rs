//! Tells somebody outside what went wrong with jobs: a JSON POST for each notice.

use super::read::{has_credentials, is_url};
use super::schedule::CHECKS_KIND;
use crate::checks::{HttpCheck, LinkLocal};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tenure::async_trait;
use tenure::id::{Namespace, ScheduleId};
use tenure::job::{Notice, NoticeSender};

/// Why a job of checks failed: its result is not for people.
pub(super) const NO_CHECK_PASSED: &str = "no check passed";

const ADDRESS_MAX_BYTES: usize = 2048;

/// An address that is told of jobs that failed, expired, were missed or began late. It may contain a secret, so only its host is
/// shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook(String);

impl Webhook {
    /// An `http://` or `https://` address, without user name and password. The error is the rule that it breaks; it does not repeat the
    /// address.
    pub fn new(url: &str) -> Result<Webhook, &'static str> {
        match url {
            url if !is_url(url) => Err("must be an http:// or https:// URL"),
            url if has_credentials(url) => Err("must not contain a user name or password"),
            url if url.len() > ADDRESS_MAX_BYTES => Err("must be at most 2,048 bytes"),
            url if url.ends_with('…') => Err("is masked; give the whole address"),
            url => Ok(Webhook(url.to_owned())),
        }
    }

    pub(super) fn address(&self) -> &str {
        &self.0
    }
}

/// The address without what may be a secret.
impl std::fmt::Display for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let url = reqwest::Url::parse(&self.0).ok();
        match url.as_ref().and_then(|url| Some((url.scheme(), url.host_str()?))) {
            Some((scheme, host)) => write!(f, "{scheme}://{host}/…"),
            None => f.write_str("…"),
        }
    }
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// Delivers notices: to the webhook of the schedule, or else to that of the namespace.
pub(super) struct Webhooks {
    client: Result<HttpCheck, String>,
    namespace: Namespace,
    all: Option<Webhook>,
    /// The addresses of schedules, while this node leads and knows them.
    schedules: Mutex<Option<BTreeMap<ScheduleId, Webhook>>>,
}

impl Webhooks {
    pub(super) fn new(namespace: &Namespace, all: Option<Webhook>) -> Webhooks {
        // Whoever may write a schedule must not get at the credentials of the leader's machine.
        let client = HttpCheck::new(LinkLocal::Denied);
        Webhooks { client, namespace: namespace.clone(), all, schedules: Mutex::new(None) }
    }

    /// Whether somebody is told what goes wrong with jobs of a schedule.
    pub(super) fn has_receiver(&self, own: Option<&Webhook>) -> bool {
        own.is_some() || self.all.is_some()
    }

    /// The addresses of all schedules that have one; `None` once this node leads no more.
    pub(super) fn know(&self, schedules: Option<BTreeMap<ScheduleId, Webhook>>) {
        *self.schedules.lock() = schedules;
    }

    fn receiver(&self, notice: &Notice) -> Result<Option<Webhook>, String> {
        let schedules = self.schedules.lock();
        let known = schedules.as_ref().ok_or("the schedules are not known yet")?;
        let own = known.get(&notice.series.schedule()).cloned();
        Ok(own.or_else(|| self.all.clone()))
    }
}

#[async_trait]
impl NoticeSender for Webhooks {
    fn wants_all(&self) -> bool {
        self.all.is_some()
    }

    async fn send(&self, notice: &Notice) -> Result<(), String> {
        let Some(webhook) = self.receiver(notice)? else { return Ok(()) };
        let client = self.client.as_ref().map_err(Clone::clone)?;
        let request = client.post(webhook.address())?.header("Content-Type", "application/json");
        let request =
            request.header("Tenure-Notice", &*notice.id).body(body(&self.namespace, notice).to_string());
        match client.answer(request).await {
            Ok(answer) if answer.status().is_success() => Ok(()),
            Ok(answer) => Err(format!("{webhook}: status {}", answer.status().as_u16())),
            Err(why) => Err(format!("{webhook}: {why}")),
        }
    }
}

/// What a receiver gets.
fn body(namespace: &Namespace, notice: &Notice) -> Value {
    let (attempt, attempts) = notice.attempts;
    let is_report = notice.job_kind.as_str() == CHECKS_KIND && notice.reason.starts_with('{');
    let reason = if is_report { NO_CHECK_PASSED } else { &*notice.reason };
    let time = |ms: i64| jiff::Timestamp::from_millisecond(ms).map(|time| format!("{time:.3}")).ok();
    json!({
        "id": &*notice.id, "event": notice.kind.as_str(), "namespace": namespace.as_str(),
        "schedule": super::job::scheduled_by(&notice.series, &notice.job).map(|schedule| schedule.to_string()),
        "job": notice.job.as_str(), "queue": notice.queue.as_str(), "kind": notice.job_kind.as_str(),
        "due": (notice.due_ms > 0).then(|| time(i64::try_from(notice.due_ms).unwrap_or(0))),
        "time": time(notice.at_ms), "attempt": attempt, "attempts": attempts,
        "worker": notice.worker.as_ref().map(ToString::to_string), "reason": reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_host_of_a_webhook_is_shown() {
        let webhook = Webhook::new("https://hooks.example.org/T0/secret?key=1").expect("valid");
        assert_eq!(
            format!("{webhook:?} {webhook}"),
            "https://hooks.example.org/… https://hooks.example.org/…"
        );
        for (url, rule) in [
            ("ftp://x", "must be an http:// or https:// URL"),
            ("https://", "must be an http:// or https:// URL"),
            ("https://me:pw@example.org/", "must not contain a user name or password"),
        ] {
            assert_eq!(Webhook::new(url).expect_err("wrong"), rule, "{url}");
        }
    }
}
