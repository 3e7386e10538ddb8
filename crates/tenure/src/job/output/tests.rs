use super::codec::{Attempt, AttemptCodec};
use super::*;
use crate::documents::Codec;
use OutputPiece::{LeftOut, Text};
use OutputStream::{Stderr, Stdout};
use proptest::prelude::*;
use std::sync::OnceLock;
use tenure_core::document::Stamp;
use tenure_core::{Epoch, Incarnation, Nonce};

/// An attempt that has said this, as it is written.
fn stored(said: &[(OutputStream, &[u8])]) -> Vec<u8> {
    let transcript = Arc::new(Mutex::new(Transcript::new()));
    said.iter().for_each(|(stream, bytes)| transcript.lock().write(*stream, bytes));
    let attempt = Attempt {
        job: "report-7".parse().expect("valid"),
        attempt: 2,
        worker: "w1".parse().expect("valid"),
        started_at: 1_794_700_801_000,
        ended_at: OnceLock::new(),
        transcript,
    };
    let me = Incarnation(7);
    let stamp = Stamp { epoch: Epoch(3), owner: me, nonce: Nonce { incarnation: me, sequence: 1 } };
    AttemptCodec(Arc::new(attempt)).write(stamp, &(), &())
}

fn output(said: &[(OutputStream, &[u8])]) -> JobOutput {
    JobOutput::parse(&stored(said)).expect("readable")
}

#[test]
fn what_is_written_is_read() {
    let read = output(&[(Stdout, b"one\n"), (Stderr, b"\xfftwo\n")]);
    assert_eq!((read.job.as_str(), read.attempt, read.worker.as_str(), read.epoch), ("report-7", 2, "w1", 3));
    assert_eq!((read.bytes, read.left_out, read.ended_at), (11, 0, None));
    assert_eq!(read.pieces(), [Text(Stdout, "one\n"), Text(Stderr, "\u{fffd}two\n")]);
    let shown = serde_json::to_value(&read).expect("JSON");
    assert_eq!((&shown["job"], &shown["first"][1]["stream"]), (&"report-7".into(), &"stderr".into()));
    assert!(shown.get("endedAt").is_none() && shown.get("version").is_none(), "{shown}");
}

#[test]
fn an_object_that_is_no_output_says_what_is_wrong() {
    let good: serde_json::Value = serde_json::from_slice(&stored(&[(Stdout, b"x")])).expect("JSON");
    for (field, value, says) in [
        ("v", 2.into(), "upgrade"),
        ("job", "a/b".into(), "`job`"),
        ("worker", "".into(), "`worker`"),
        ("attempt", u32::MAX.into(), "`attempt`"),
        ("leftOut", u64::MAX.into(), "`leftOut`"),
        ("endedAt", u64::MAX.into(), "`endedAt`"),
        ("first", "x".into(), "sequence"),
        ("owner", "x".into(), "`owner`"),
    ] {
        let mut bad = good.clone();
        bad[field] = value;
        let refused = JobOutput::parse(bad.to_string().as_bytes()).expect_err(field);
        assert!(refused.detail.contains(says), "{field}: {}", refused.detail);
    }
}

#[test]
fn hi1_who_has_seen_a_part_is_shown_the_rest() {
    let half = 128 * 1024;
    let long: Vec<u8> = (0..400_000_u32).map(|n| b'a' + (n % 26) as u8).collect();
    let read = output(&[(Stdout, &long)]);
    let gap = 400_000 - 2 * half as u64;
    assert_eq!((read.bytes, read.left_out), (400_000, gap));
    let text = |from: usize, to: usize| std::str::from_utf8(&long[from..to]).expect("letters");
    let (head, tail) = (text(0, half), text(400_000 - half, 400_000));
    assert_eq!(read.pieces(), [Text(Stdout, head), LeftOut(gap), Text(Stdout, tail)]);
    assert_eq!(read.pieces_after(10)[0], Text(Stdout, &head[10..]));
    assert_eq!(read.pieces_after(half as u64), [LeftOut(gap), Text(Stdout, tail)]);
    assert_eq!(read.pieces_after(half as u64 + 1000), [LeftOut(gap - 1000), Text(Stdout, tail)]);
    assert_eq!(read.pieces_after(399_999), [Text(Stdout, &tail[half - 1..])]);
    assert_eq!(read.pieces_after(400_000), []);
    assert_eq!(read.pieces_after(u64::MAX), []);
}

proptest! {
    /// Whoever follows an output, and looks at any moments, is shown what was said, once and in order.
    #[test]
    fn hi1_who_follows_sees_everything_once(
        pieces in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 0..100)), 0..12),
    ) {
        let said: Vec<(OutputStream, &[u8])> =
            pieces.iter().map(|(error, bytes)| (if *error { Stderr } else { Stdout }, &bytes[..])).collect();
        let (mut followed, mut seen) = (Vec::new(), 0);
        for upto in 0..=said.len() {
            let now = output(&said[..upto]);
            for piece in now.pieces_after(seen) {
                let Text(stream, text) = piece else { panic!("nothing is left out of so little") };
                followed.extend(text.chars().map(|c| (stream, c)));
            }
            seen = now.bytes;
        }
        let whole = output(&said);
        let all = whole.pieces().into_iter().flat_map(|piece| match piece {
            Text(stream, text) => text.chars().map(|c| (stream, c)).collect::<Vec<_>>(),
            LeftOut(_) => Vec::new(),
        });
        prop_assert_eq!(followed, all.collect::<Vec<_>>());
    }
}
