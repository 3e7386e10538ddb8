use super::*;
use OutputStream::{Stderr, Stdout};
use proptest::prelude::*;

/// What is kept, with a mark where something is missing.
fn kept(transcript: &mut Transcript) -> Vec<(OutputStream, String)> {
    let left_out = transcript.left_out();
    let [first, last] = transcript
        .parts()
        .map(|part| part.into_iter().map(|(stream, text)| (stream, text.to_owned())).collect::<Vec<_>>());
    let mut all = first;
    if left_out > 0 {
        all.push((Stdout, format!("<{left_out}>")));
    }
    all.extend(last);
    all
}

fn text(transcript: &mut Transcript) -> String {
    kept(transcript).into_iter().map(|(_, text)| text).collect()
}

fn said(pieces: &[(OutputStream, &[u8])]) -> Transcript {
    let mut transcript = Transcript::keeping(100);
    pieces.iter().for_each(|(stream, bytes)| transcript.write(*stream, bytes));
    transcript.close();
    transcript
}

#[test]
fn hi1_streams_stay_in_the_order_in_which_they_came() {
    let mut transcript =
        said(&[(Stdout, b"one\n"), (Stdout, b"two\n"), (Stderr, b"oh\n"), (Stdout, b"three\n")]);
    let parts = [(Stdout, "one\ntwo\n"), (Stderr, "oh\n"), (Stdout, "three\n")];
    assert_eq!(kept(&mut transcript), parts.map(|(stream, text)| (stream, text.to_owned())));
    assert_eq!((transcript.bytes(), transcript.left_out()), (17, 0));
}

#[test]
fn hi1_the_middle_is_left_out_of_what_is_too_long() {
    let long: String = (0..100).map(|n| format!("{n:04}\n")).collect();
    for step in [1, 3, 7, 500] {
        let mut transcript = Transcript::keeping(100);
        long.as_bytes().chunks(step).for_each(|chunk| transcript.write(Stdout, chunk));
        assert_eq!(text(&mut transcript), format!("{}<300>{}", &long[..100], &long[400..]), "{step}");
    }
    // Exactly as much as is kept: nothing is missing.
    let mut whole = Transcript::new();
    whole.write(Stdout, &[b'x'; 2 * END_MAX]);
    assert_eq!((whole.left_out(), text(&mut whole).len()), (0, 256 * 1024));
    whole.write(Stdout, b"y");
    assert_eq!(whole.left_out(), 1);
}

#[test]
fn hi1_characters_that_come_in_pieces_are_whole() {
    let euro = "\u{20ac}".as_bytes();
    let mut transcript =
        said(&[(Stdout, &euro[..1]), (Stderr, b"!"), (Stdout, &euro[1..2]), (Stdout, &euro[2..])]);
    assert_eq!(kept(&mut transcript), [(Stderr, "!".to_owned()), (Stdout, "\u{20ac}".to_owned())]);
    // One whose end never comes, bytes that are no text, and one that another interrupts.
    assert_eq!(text(&mut said(&[(Stdout, b"a"), (Stdout, &euro[..2])])), "a\u{fffd}");
    assert_eq!(text(&mut said(&[(Stdout, b"\xff\xfeb\xe2\x82x")])), "\u{fffd}\u{fffd}b\u{fffd}x");
    assert_eq!(text(&mut said(&[(Stdout, &euro[..1]), (Stdout, b"x")])), "\u{fffd}x");
    // Until its end comes, it counts as nothing: whoever reads meanwhile sees it whole later.
    let mut waiting = Transcript::keeping(100);
    waiting.write(Stdout, &euro[..2]);
    assert_eq!((waiting.bytes(), text(&mut waiting)), (0, String::new()));
}

#[test]
fn hi1_a_cut_is_between_characters() {
    let mut transcript = said(&[(Stdout, "\u{20ac}".repeat(100).as_bytes())]);
    assert_eq!(text(&mut transcript), format!("{0}<102>{0}", "\u{20ac}".repeat(33)));
}

#[test]
fn many_changes_of_streams_and_control_characters_take_no_more_room_than_text() {
    let mut alternating = Transcript::new();
    (0..100_000).for_each(|_| {
        alternating.write(Stdout, b"o");
        alternating.write(Stderr, b"e");
    });
    let mut controls = Transcript::new();
    controls.write(Stdout, &[0; 500_000]);
    let mut quotes = Transcript::new();
    quotes.write(Stdout, &[b'"'; 500_000]);
    for (name, transcript) in
        [("changes", &mut alternating), ("controls", &mut controls), ("quotes", &mut quotes)]
    {
        let parts = transcript.parts().map(|part| serde_json::to_string(&part).expect("JSON"));
        let bytes: usize = parts.iter().map(String::len).sum();
        assert!((2 * END_MAX / 3..=2 * END_MAX * 2 + 1000).contains(&bytes), "{name}: {bytes} bytes");
    }
}

fn piece() -> impl Strategy<Value = (OutputStream, Vec<u8>)> {
    let bytes = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40),
        "[a-z\u{fc}\u{20ac}\u{1f980}\n\u{1b}]{0,40}".prop_map(String::into_bytes),
    ];
    (prop_oneof![Just(Stdout), Just(Stderr)], bytes)
}

proptest! {
    /// Whatever comes in whatever pieces: each stream reads as if it had come at once, beginning and end are what they were,
    /// nothing is counted twice, and there is never more than room for it.
    #[test]
    fn hi1_whatever_is_said_its_ends_are_kept(pieces in proptest::collection::vec(piece(), 0..40), most in 8..300_usize) {
        let mut transcript = Transcript::keeping(most);
        let mut whole = Transcript::keeping(1 << 20);
        for (stream, bytes) in &pieces {
            transcript.write(*stream, bytes);
            whole.write(*stream, bytes);
            prop_assert!(transcript.first.weight <= most && transcript.last.weight <= most);
        }
        transcript.close();
        whole.close();
        for stream in OutputStream::ALL {
            let all: Vec<u8> = pieces.iter().filter(|(of, _)| *of == stream).flat_map(|(_, bytes)| bytes.clone()).collect();
            let read: String = kept(&mut whole).into_iter().filter(|(of, _)| *of == stream).map(|(_, text)| text).collect();
            prop_assert_eq!(read, String::from_utf8_lossy(&all));
        }
        let all = text(&mut whole);
        let left_out = transcript.left_out();
        let [first, last] = transcript.parts().map(|part| part.into_iter().map(|(_, text)| text).collect::<String>());
        prop_assert!(all.starts_with(&first) && all.ends_with(&last));
        prop_assert_eq!(transcript.bytes(), all.len() as u64);
        prop_assert_eq!(first.len() as u64 + left_out + last.len() as u64, all.len() as u64);
        for part in [&transcript.first, &transcript.last] {
            let changes = part.runs.len().saturating_sub(1) * CHANGE_WEIGHT;
            prop_assert_eq!(part.weight, part.text.iter().map(|byte| weight(*byte)).sum::<usize>() + changes);
            prop_assert!(part.runs.iter().zip(part.runs.iter().skip(1)).all(|(a, b)| a.0 != b.0 && a.1 > 0));
        }
        // What did not fit at the beginning is one character, after a change of streams at most.
        prop_assert!(left_out == 0 || transcript.first.weight + CHANGE_WEIGHT + 6 > most);
    }
}
