//! A store that fails on purpose, in every way a real one can, from one seed.

use crate::{
    Condition, EtagForm, List, Read, Remove, Store, StoreTime, Trouble, TroubleKind, Version, Write,
};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// How often each fault strikes, from 0.0 to 1.0, and how long things then take. All zero means no faults.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Faults {
    /// A request takes up to [`delay_max`](Faults::delay_max) longer.
    pub delay: f64,
    /// The longest extra delay.
    pub delay_max: Duration,
    /// The request never arrives; the caller waits out [`timeout`](Faults::timeout).
    pub lost_request: f64,
    /// The request takes effect, but its answer never arrives; the caller waits out the timeout.
    pub lost_answer: f64,
    /// The caller waits out the timeout. The write is applied after that, up to [`late_max`](Faults::late_max) later, when
    /// nobody expects it any more. Reads are lost instead.
    pub late_landing: f64,
    /// The longest time a write lands late.
    pub late_max: Duration,
    /// The request is refused for lack of permission.
    pub denied: f64,
    /// The request is answered "slow down". A write did not happen, but the caller cannot know.
    pub throttled: f64,
    /// How long a caller waits for an answer that does not come.
    pub timeout: Duration,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            delay: 0.0,
            delay_max: Duration::from_millis(100),
            lost_request: 0.0,
            lost_answer: 0.0,
            late_landing: 0.0,
            late_max: Duration::from_secs(5),
            denied: 0.0,
            throttled: 0.0,
            timeout: Duration::from_secs(1),
        }
    }
}

/// The path between this caller and the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// Requests and answers pass.
    Up,
    /// Packets vanish: requests never arrive, and answers to requests in flight are lost.
    Silent,
    /// Connections are refused at once, so no outcome is in doubt.
    Refused,
}

/// A store with faults. The seed alone decides them: same seed, same calls in the same order, same faults. Uses only tokio's
/// clock, so it works with paused time.
#[derive(Clone)]
pub struct Faulty {
    inner: Arc<dyn Store>,
    control: Arc<Mutex<Control>>,
}

struct Control {
    faults: Faults,
    link: Link,
    rng: ChaCha8Rng,
}

struct Plan {
    delay: Duration,
    fate: Fate,
    timeout: Duration,
}

enum Fate {
    Pass,
    LostRequest,
    LostAnswer,
    Late(Duration),
    Denied,
    Throttled,
    Refused,
}

impl Faulty {
    /// Wraps a store. It has no faults until some are [set](Faulty::set).
    pub fn new(inner: Arc<dyn Store>, seed: u64) -> Faulty {
        let control =
            Control { faults: Faults::default(), link: Link::Up, rng: ChaCha8Rng::seed_from_u64(seed) };
        Faulty { inner, control: Arc::new(Mutex::new(control)) }
    }

    /// Sets the faults, starting with the next request.
    pub fn set(&self, faults: Faults) {
        self.control.lock().faults = faults;
    }

    /// The current faults.
    pub fn faults(&self) -> Faults {
        self.control.lock().faults
    }

    /// Cuts or restores the path to the store. Requests in flight are affected too.
    pub fn link(&self, link: Link) {
        self.control.lock().link = link;
    }

    /// Cuts the path silently (`true`) or restores it.
    pub fn cut(&self, cut: bool) {
        self.link(if cut { Link::Silent } else { Link::Up });
    }

    fn is_silent(&self) -> bool {
        self.control.lock().link == Link::Silent
    }

    fn plan(&self) -> Plan {
        let mut control = self.control.lock();
        // Always draws the same number of values, so that switching one fault on does not reshuffle all the others.
        let [slow, by, fate, late] = std::array::from_fn(|_| control.rng.random::<f64>());
        let faults = control.faults;
        let delay = if slow < faults.delay { faults.delay_max.mul_f64(by) } else { Duration::ZERO };
        let plan = |fate| Plan { delay, fate, timeout: faults.timeout };
        match control.link {
            Link::Up => {}
            Link::Silent => return plan(Fate::LostRequest),
            Link::Refused => return plan(Fate::Refused),
        }
        let mut below = 0.0;
        let mut strikes = |probability: f64| {
            below += probability;
            fate < below
        };
        if strikes(faults.lost_request) {
            plan(Fate::LostRequest)
        } else if strikes(faults.lost_answer) {
            plan(Fate::LostAnswer)
        } else if strikes(faults.late_landing) {
            plan(Fate::Late(faults.late_max.mul_f64(late)))
        } else if strikes(faults.denied) {
            plan(Fate::Denied)
        } else if strikes(faults.throttled) {
            plan(Fate::Throttled)
        } else {
            plan(Fate::Pass)
        }
    }
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let control = self.control.lock();
        f.debug_struct("Faulty")
            .field("inner", &self.inner)
            .field("link", &control.link)
            .field("faults", &control.faults)
            .finish()
    }
}

fn no_answer() -> Trouble {
    Trouble::new(TroubleKind::Timeout, "injected: no answer")
}

fn denied() -> Trouble {
    Trouble::new(TroubleKind::Permission, "injected: denied")
}

fn throttled() -> Trouble {
    Trouble::new(TroubleKind::Throttled, "injected: slow down")
}

fn refused() -> Trouble {
    Trouble::new(TroubleKind::Connection, "injected: connection refused")
}

#[async_trait]
impl Store for Faulty {
    async fn get(&self, key: &str, unless: Option<&Version>) -> Read {
        let plan = self.plan();
        sleep(plan.delay).await;
        match plan.fate {
            Fate::Pass => {
                let read = self.inner.get(key, unless).await;
                if !self.is_silent() {
                    return read;
                }
            }
            Fate::LostRequest | Fate::LostAnswer | Fate::Late(_) => {}
            Fate::Denied => return Read::Denied(denied()),
            Fate::Throttled => return Read::Unavailable(throttled()),
            Fate::Refused => return Read::Unavailable(refused()),
        }
        sleep(plan.timeout).await;
        Read::Unavailable(no_answer())
    }

    async fn put(&self, key: &str, body: Bytes, condition: Condition) -> Write {
        let plan = self.plan();
        sleep(plan.delay).await;
        match plan.fate {
            Fate::Pass => {
                let write = self.inner.put(key, body, condition).await;
                if !self.is_silent() {
                    return write;
                }
            }
            Fate::LostRequest => {}
            Fate::LostAnswer => {
                self.inner.put(key, body, condition).await;
            }
            Fate::Late(late) => {
                let (inner, key) = (Arc::clone(&self.inner), key.to_owned());
                let after = plan.timeout + late;
                tokio::spawn(async move {
                    sleep(after).await;
                    inner.put(&key, body, condition).await;
                });
            }
            Fate::Denied => return Write::Denied(denied()),
            Fate::Throttled => return Write::Unknown(throttled()),
            Fate::Refused => return Write::Unavailable(refused()),
        }
        sleep(plan.timeout).await;
        Write::Unknown(no_answer())
    }

    async fn remove(&self, key: &str) -> Remove {
        let plan = self.plan();
        sleep(plan.delay).await;
        match plan.fate {
            Fate::Pass => {
                let remove = self.inner.remove(key).await;
                if !self.is_silent() {
                    return remove;
                }
            }
            Fate::LostRequest => {}
            Fate::LostAnswer => {
                self.inner.remove(key).await;
            }
            Fate::Late(late) => {
                let (inner, key) = (Arc::clone(&self.inner), key.to_owned());
                let after = plan.timeout + late;
                tokio::spawn(async move {
                    sleep(after).await;
                    inner.remove(&key).await;
                });
            }
            Fate::Denied => return Remove::Denied(denied()),
            Fate::Throttled => return Remove::Unknown(throttled()),
            Fate::Refused => return Remove::Unavailable(refused()),
        }
        sleep(plan.timeout).await;
        Remove::Unknown(no_answer())
    }

    async fn list(&self, prefix: &str, limit: usize) -> List {
        let plan = self.plan();
        sleep(plan.delay).await;
        match plan.fate {
            Fate::Pass => {
                let list = self.inner.list(prefix, limit).await;
                if !self.is_silent() {
                    return list;
                }
            }
            Fate::LostRequest | Fate::LostAnswer | Fate::Late(_) => {}
            Fate::Denied => return List::Denied(denied()),
            Fate::Throttled => return List::Unavailable(throttled()),
            Fate::Refused => return List::Unavailable(refused()),
        }
        sleep(plan.timeout).await;
        List::Unavailable(no_answer())
    }

    fn at_once(&self) -> usize {
        self.inner.at_once()
    }

    fn now(&self) -> Option<StoreTime> {
        self.inner.now()
    }

    fn describe(&self) -> String {
        format!("{} (with injected faults)", self.inner.describe())
    }

    fn etag_form(&self) -> Option<EtagForm> {
        self.inner.etag_form()
    }
}
