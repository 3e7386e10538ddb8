//! Server-sent events out of the pieces they arrive in.

use serde_json::Value;

/// No frame of a node is longer.
const FRAME_MAX: usize = 256 * 1024;

/// One event.
#[derive(Debug, PartialEq)]
pub(super) struct Frame {
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) data: Value,
}

impl Frame {
    /// It is none of the node's events: it says that some are not there.
    pub(super) fn is_missed(&self) -> bool {
        self.name.as_deref() == Some("missed")
    }
}

#[derive(Default)]
pub(super) struct Frames {
    kept: Vec<u8>,
}

impl Frames {
    /// The frames that are whole by now. What is no event, or too long for one, is left out.
    pub(super) fn take(&mut self, piece: &[u8]) -> Vec<Frame> {
        self.kept.extend_from_slice(piece);
        let mut found = Vec::new();
        while let Some(end) = self.kept.windows(2).position(|two| two == b"\n\n") {
            let frame: Vec<u8> = self.kept.drain(..end + 2).collect();
            found.extend(read(&String::from_utf8_lossy(&frame)));
        }
        if self.kept.len() > FRAME_MAX {
            self.kept.clear();
        }
        found
    }
}

fn read(text: &str) -> Option<Frame> {
    let (mut id, mut name, mut data) = (None, None, String::new());
    for line in text.lines() {
        match line.split_once(": ") {
            Some(("id", value)) => id = Some(value.to_owned()),
            Some(("event", value)) => name = Some(value.to_owned()),
            Some(("data", value)) => data.push_str(value),
            Some(_) | None => {}
        }
    }
    Some(Frame { id, name, data: serde_json::from_str(&data).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn frames_come_out_whole_however_they_arrive() {
        let text = b"retry: 2000\n: tenure\n\nid: x-1\ndata: {\"a\":1}\n\nevent: missed\ndata: {\"missed\":2}\n\n: keep-alive\n\nid: x-2\ndata: nonsense\n\n";
        let whole = Frames::default().take(text);
        let mut frames = Frames::default();
        let pieces: Vec<Frame> = text.chunks(3).flat_map(|piece| frames.take(piece)).collect();
        assert_eq!(whole, pieces);
        assert_eq!(
            whole,
            [
                Frame { id: Some("x-1".to_owned()), name: None, data: json!({"a": 1}) },
                Frame { id: None, name: Some("missed".to_owned()), data: json!({"missed": 2}) },
            ]
        );
        let mut endless = Frames::default();
        for _ in 0..100 {
            assert_eq!(endless.take(&[b'x'; 10_000]), []);
            assert!(endless.kept.len() <= FRAME_MAX + 10_000);
        }
    }
}
