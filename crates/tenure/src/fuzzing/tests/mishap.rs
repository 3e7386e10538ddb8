//! Damage that can happen to a document. The plugins' tests use it too.

use proptest::prelude::*;

/// One kind of damage to a document.
#[derive(Clone, Debug)]
pub(crate) enum Mishap {
    Cut(prop::sample::Index),
    Flip(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, usize),
    Repeat(prop::sample::Index, usize),
    /// Replaces a number with another.
    Number(prop::sample::Index, String),
}

pub(crate) fn mishap() -> impl Strategy<Value = Mishap> {
    let at = || any::<prop::sample::Index>();
    let number = prop_oneof![
        prop::sample::select(vec![
            "0",
            "-1",
            "-0",
            "+1",
            "00",
            "1e9",
            "1e400",
            "0.1",
            "9223372036854775807",
            "9223372036854775808",
            "18446744073709551615",
            "18446744073709551616",
            "null",
            "true",
            "\"1\"",
            "[]",
            "{}",
        ])
        .prop_map(str::to_owned),
        any::<u64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_filter("JSON has no others", |x| x.is_finite()).prop_map(|x| format!("{x:?}")),
    ];
    let pieces = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..8),
        prop::sample::select(vec![
            "\"x\":0.1,",
            "\"later\":[1,2],",
            "\\u0000",
            "..",
            "//",
            "\n",
            "ü",
            "[[",
            "}"
        ])
        .prop_map(|piece| piece.as_bytes().to_vec()),
    ];
    prop_oneof![
        at().prop_map(Mishap::Cut),
        (at(), any::<u8>()).prop_map(|(at, byte)| Mishap::Flip(at, byte)),
        (at(), pieces).prop_map(|(at, piece)| Mishap::Insert(at, piece)),
        (at(), 1..20usize).prop_map(|(at, count)| Mishap::Remove(at, count)),
        (at(), 1..200usize).prop_map(|(at, count)| Mishap::Repeat(at, count)),
        (at(), number.clone()).prop_map(|(at, number)| Mishap::Number(at, number)),
        (at(), number).prop_map(|(at, number)| Mishap::Number(at, number)),
    ]
}

pub(crate) fn befall(mut body: Vec<u8>, mishap: &Mishap) -> Vec<u8> {
    if body.is_empty() {
        return body;
    }
    let length = body.len();
    let range = |at: &prop::sample::Index, count: usize| {
        let from = at.index(length);
        from..(from + count).min(length)
    };
    match mishap {
        Mishap::Cut(at) => body.truncate(at.index(body.len())),
        Mishap::Flip(at, byte) => {
            let at = at.index(body.len());
            body[at] ^= byte;
        }
        Mishap::Insert(at, piece) => {
            let at = at.index(body.len());
            body.splice(at..at, piece.iter().copied());
        }
        Mishap::Remove(at, count) => drop(body.drain(range(at, *count))),
        Mishap::Repeat(at, count) => {
            let range = range(at, *count);
            let piece = body[range.clone()].to_vec();
            body.splice(range.start..range.start, piece);
        }
        Mishap::Number(at, number) => {
            let digit = |at: &usize| body[*at].is_ascii_digit();
            let starts: Vec<usize> =
                (0..body.len()).filter(|at| digit(at) && (*at == 0 || !digit(&(at - 1)))).collect();
            if starts.is_empty() {
                return body;
            }
            let from = starts[at.index(starts.len())];
            let to = (from..body.len()).find(|at| !digit(at)).unwrap_or(body.len());
            body.splice(from..to, number.bytes());
        }
    }
    body
}
