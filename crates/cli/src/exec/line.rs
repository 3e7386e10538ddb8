//! The line between `tenure` and a keeper, from either end.

use std::io::{self, Write};
use std::os::unix::net::UnixStream as StdUnixStream;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::UnixStream;

/// One end of it. What is heard is waited for; what is said never is.
pub(super) struct Line {
    heard: Lines<BufReader<UnixStream>>,
    /// Beside the runtime's: that one takes no word before it has looked at the socket once, and the first may be the last.
    said: StdUnixStream,
}

impl Line {
    pub(super) fn new(socket: StdUnixStream) -> io::Result<Line> {
        socket.set_nonblocking(true)?;
        let said = socket.try_clone()?;
        Ok(Line { heard: BufReader::new(UnixStream::from_std(socket)?).lines(), said })
    }

    /// The next word; none once the other end is closed.
    pub(super) async fn hear(&mut self) -> Option<String> {
        self.heard.next_line().await.ok().flatten()
    }

    /// Nobody may be there to hear it, or listen.
    pub(super) fn say(&self, word: &str) {
        let _ = (&self.said).write(word.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command may have ended before its keeper gets to wait for anything, and a node may be told to stop that early.
    #[tokio::test]
    async fn what_is_said_before_anything_was_waited_for_arrives() {
        let (ours, theirs) = StdUnixStream::pair().expect("a pair");
        let near = Line::new(ours).expect("an end");
        near.say("first\n");
        drop(near);
        let mut far = Line::new(theirs).expect("the other end");
        assert_eq!(far.hear().await.as_deref(), Some("first"));
        assert_eq!(far.hear().await, None, "closed");
        far.say("nobody hears this\n");
    }
}
