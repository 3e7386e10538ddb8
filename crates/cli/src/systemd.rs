//! What systemd is told of a service with `Type=notify`: that it is ready, what it does, that it stops, and, with `WatchdogSec`,
//! that it still runs. Elsewhere nothing is sent.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;
use tenure::event::EventKind;
use tenure::{Event, Leadership};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

/// Sends one message, if somebody wants it. It may get lost: nothing depends on it but what systemd shows and does.
pub(crate) fn notify(message: &str) {
    let Some(address) = std::env::var_os("NOTIFY_SOCKET").as_deref().and_then(address) else { return };
    if let Ok(socket) = UnixDatagram::unbound() {
        // systemd may be slow; the node is not.
        let _ = socket.set_nonblocking(true);
        let _ = socket.send_to_addr(message.as_bytes(), &address);
    }
}

/// A path, or `@` and a name that is no path.
fn address(socket: &OsStr) -> Option<SocketAddr> {
    match socket.as_bytes() {
        #[cfg(target_os = "linux")]
        [b'@', name @ ..] => {
            use std::os::linux::net::SocketAddrExt;
            SocketAddr::from_abstract_name(name).ok()
        }
        [b'/', ..] => SocketAddr::from_pathname(socket).ok(),
        _ => None,
    }
}

/// Ready once the node has joined; after that, who leads.
pub(crate) async fn follow_node(
    mut events: broadcast::Receiver<Event>,
    mut known: watch::Receiver<Leadership>,
) {
    loop {
        match events.recv().await {
            Ok(Event { kind: EventKind::Joined, .. }) => break,
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
    notify("READY=1");
    loop {
        let status = {
            let known = known.borrow_and_update();
            match (known.is_leader(), &known.leader) {
                (true, _) => format!("STATUS=leads in epoch {}", known.epoch),
                (false, Some(leader)) => format!("STATUS=stands by; {leader} leads in epoch {}", known.epoch),
                (false, None) => "STATUS=stands by; nobody leads".to_owned(),
            }
        };
        notify(&status);
        if known.changed().await.is_err() {
            return;
        }
    }
}

/// Shows that this runtime gets to run, twice in every interval that systemd allows.
pub(crate) fn keep_watchdog() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let Some(micros) = number("WATCHDOG_USEC").filter(|micros| *micros > 0) else { return };
    // Meant for the process that systemd started, not for one that inherited its environment.
    if number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id())) {
        return;
    }
    let mut tick = tokio::time::interval(Duration::from_micros(micros) / 2);
    tokio::spawn(async move {
        loop {
            tick.tick().await;
            notify("WATCHDOG=1");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_path_or_an_abstract_name() {
        assert_eq!(
            address("/run/n".as_ref()).and_then(|a| a.as_pathname().map(|p| p.display().to_string())),
            Some("/run/n".to_owned())
        );
        assert!(address("@name".as_ref()).is_some_and(|address| address.as_pathname().is_none()));
        assert!(address("vsock:2:1".as_ref()).is_none() && address("".as_ref()).is_none());
    }
}
