//! The channel between `tenure` and a keeper, from either end.

use std::io::{self, Write};
use std::os::unix::net::UnixStream as StdUnixStream;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::UnixStream;

/// One end of it. Receiving waits; sending never does.
pub(super) struct Channel {
    received: Lines<BufReader<UnixStream>>,
    /// Beside the runtime's: that one sends nothing before it has looked at the socket once, and the first line may be the last.
    sender: StdUnixStream,
}

impl Channel {
    pub(super) fn new(socket: StdUnixStream) -> io::Result<Channel> {
        socket.set_nonblocking(true)?;
        let sender = socket.try_clone()?;
        Ok(Channel { received: BufReader::new(UnixStream::from_std(socket)?).lines(), sender })
    }

    /// The next line; none once the other end is closed.
    pub(super) async fn receive(&mut self) -> Option<String> {
        self.received.next_line().await.ok().flatten()
    }

    /// Nobody may be there to receive it.
    pub(super) fn send(&self, line: &str) {
        let _ = (&self.sender).write(line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command may have ended before its keeper gets to wait for anything, and a node may be told to stop that early.
    #[tokio::test]
    async fn what_is_said_before_anything_was_waited_for_arrives() {
        let (ours, theirs) = StdUnixStream::pair().expect("a pair");
        let near = Channel::new(ours).expect("an end");
        near.send("first\n");
        drop(near);
        let mut far = Channel::new(theirs).expect("the other end");
        assert_eq!(far.receive().await.as_deref(), Some("first"));
        assert_eq!(far.receive().await, None, "closed");
        far.send("nobody hears this\n");
    }
}
