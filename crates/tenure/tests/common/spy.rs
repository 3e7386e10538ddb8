//! A store that writes down when it was asked, and plays tricks on writes.

use async_trait::async_trait;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tenure::store::{
    Condition, List, MemoryStore, Read, Remove, Store, Trouble, TroubleKind, Version, Write,
};
use tokio::time::Instant;

/// What becomes of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trick {
    /// It happens, and nobody hears of it.
    LoseAnswer,
    /// It does not happen, and nobody can know.
    LoseRequest,
    /// Refused, as if somebody had been faster.
    Lose,
    /// Refused for lack of permission.
    Deny,
    /// It takes this many milliseconds to arrive.
    Delay(u64),
}

#[derive(Debug)]
pub struct Spy {
    inner: Arc<MemoryStore>,
    tricks: Mutex<VecDeque<Trick>>,
    asked: Mutex<Vec<Instant>>,
    puts: Mutex<usize>,
}

impl Spy {
    pub fn new(inner: &Arc<MemoryStore>, tricks: &[Trick]) -> Arc<Spy> {
        let tricks = Mutex::new(tricks.iter().copied().collect());
        Arc::new(Spy { inner: Arc::clone(inner), tricks, asked: Mutex::default(), puts: Mutex::default() })
    }

    /// When the first request came.
    pub fn first(&self) -> Option<Instant> {
        self.asked.lock().expect("no panic").first().copied()
    }

    pub fn requests(&self) -> usize {
        self.asked.lock().expect("no panic").len()
    }

    pub fn puts(&self) -> usize {
        *self.puts.lock().expect("no panic")
    }

    fn note(&self) {
        self.asked.lock().expect("no panic").push(Instant::now());
    }
}

#[async_trait]
impl Store for Spy {
    async fn get(&self, key: &str, unless: Option<&Version>) -> Read {
        self.note();
        self.inner.get(key, unless).await
    }

    async fn put(&self, key: &str, body: Bytes, condition: Condition) -> Write {
        self.note();
        *self.puts.lock().expect("no panic") += 1;
        let trick = self.tricks.lock().expect("no panic").pop_front();
        let unknown = || Write::Unknown(Trouble::new(TroubleKind::Timeout, "a trick"));
        match trick {
            None => self.inner.put(key, body, condition).await,
            Some(Trick::LoseAnswer) => {
                self.inner.put(key, body, condition).await;
                unknown()
            }
            Some(Trick::Delay(ms)) => {
                super::sleep_ms(ms).await;
                self.inner.put(key, body, condition).await
            }
            Some(Trick::LoseRequest) => unknown(),
            Some(Trick::Lose) => Write::Lost,
            Some(Trick::Deny) => Write::Denied(Trouble::new(TroubleKind::Permission, "a trick")),
        }
    }

    async fn remove(&self, key: &str) -> Remove {
        self.note();
        self.inner.remove(key).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> List {
        self.note();
        self.inner.list(prefix, limit).await
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}
