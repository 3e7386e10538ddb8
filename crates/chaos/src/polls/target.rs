//! The target of the checks: an HTTP server that notes who asked for what, and when.

use crate::clock::boot_ms;
use anyhow::{Context, Result};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// The largest request of an agent.
const REQUEST_MAX_BYTES: usize = 4096;

/// One request: a check was run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hit {
    /// The job id: schedule and due time.
    pub job: String,
    pub attempt: u32,
    /// The epoch of the leader that assigned the job.
    pub epoch: u64,
    /// When it arrived, on the boot-time clock.
    pub at_ms: u64,
}

impl Hit {
    /// The schedule and the due time in ms, if the job's name has both.
    pub fn due(&self) -> Option<(&str, u64)> {
        let (schedule, due) = self.job.rsplit_once('-')?;
        Some((schedule, due.parse().ok()?))
    }
}

/// The server. It ends with the process.
#[derive(Clone, Debug)]
pub struct Target {
    address: SocketAddr,
    hits: Arc<Mutex<Vec<Hit>>>,
}

impl Target {
    /// Listens on a free loopback port.
    pub fn start() -> Result<Target> {
        let listener = TcpListener::bind("127.0.0.1:0").context("a port for the target")?;
        let target = Target { address: listener.local_addr()?, hits: Arc::default() };
        let serving = target.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                // One thread each: there are a few dozen a second, and each ends at once.
                std::thread::spawn(move || serving.serve(stream));
            }
        });
        Ok(target)
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Hit>> {
        self.hits.lock()
    }

    pub fn hits(&self) -> Vec<Hit> {
        self.lock().clone()
    }

    fn serve(&self, mut stream: TcpStream) {
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let mut request = Vec::new();
        let mut buffer = [0; 1024];
        while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST_MAX_BYTES {
            match stream.read(&mut buffer) {
                Ok(read @ 1..) => request.extend_from_slice(&buffer[..read]),
                Ok(_) | Err(_) => return,
            }
        }
        if let Some(hit) = hit(&String::from_utf8_lossy(&request)) {
            self.lock().push(hit);
        }
        // The client may be dead by now.
        let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    }
}

fn hit(request: &str) -> Option<Hit> {
    let header = |name: &str| {
        let lines = request.lines().filter_map(|line| line.split_once(':'));
        let mut found = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.trim().to_owned())
    };
    Some(Hit {
        job: header("Tenure-Job")?,
        attempt: header("Tenure-Attempt")?.parse().ok()?,
        epoch: header("Tenure-Epoch")?.parse().ok()?,
        at_ms: boot_ms(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_to_its_job_attempt_and_epoch() {
        let request = "GET / HTTP/1.1\r\nhost: x\r\ntenure-job: web-a-5000\r\nTenure-Attempt: 2\r\ntenure-epoch: 7\r\n\r\n";
        let hit = hit(request).expect("complete");
        assert_eq!((hit.due(), hit.attempt, hit.epoch), (Some(("web-a", 5000)), 2, 7));
        assert!(super::hit("GET / HTTP/1.1\r\ntenure-job: web-5000\r\n\r\n").is_none());
    }
}
