//! The check of linearizability: good histories pass, bad ones do not, and it agrees with an exhaustive search.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use std::collections::HashSet;
use tenure_chaos::linearizable::{Action, Content, Operation, Outcome, check_epochs, linearize};

fn content(nonce: &str) -> Content {
    Content {
        epoch: 1,
        node: "pod-a".into(),
        incarnation: "i".into(),
        state: "held".into(),
        nonce: nonce.into(),
    }
}

fn operation(from: u64, until: u64, action: Action) -> Operation {
    Operation { node: "pod-a".into(), invoke_us: from, return_us: until, action }
}

/// Versions and nonces are the same here: `v1` is what nonce `v1` wrote.
fn write(from: u64, until: u64, replaces: &str, nonce: &str, outcome: Outcome) -> Operation {
    let replaces = (!replaces.is_empty()).then(|| replaces.to_owned());
    operation(from, until, Action::Write { replaces, content: content(nonce), outcome })
}

fn won(from: u64, until: u64, replaces: &str, nonce: &str) -> Operation {
    write(from, until, replaces, nonce, Outcome::Won(nonce.to_owned()))
}

fn saw(from: u64, until: u64, version: &str) -> Operation {
    operation(from, until, Action::Saw { version: version.to_owned(), content: content(version) })
}

fn unchanged(from: u64, until: u64, version: &str) -> Operation {
    operation(from, until, Action::SawUnchanged { version: version.to_owned() })
}

fn nothing(from: u64, until: u64) -> Operation {
    operation(from, until, Action::SawNothing)
}

#[test]
fn good_histories_pass() {
    let unknown = |from, replaces, nonce| write(from, from + 5, replaces, nonce, Outcome::Unknown);
    let lost = |from, until, replaces, nonce| write(from, until, replaces, nonce, Outcome::Lost);
    for (what, history) in [
        ("nothing at all", vec![]),
        ("one after another", vec![nothing(0, 1), won(2, 3, "", "a"), won(4, 5, "a", "b"), saw(6, 7, "b")]),
        (
            "a read beside a write sees either",
            vec![won(0, 1, "", "a"), won(2, 9, "a", "b"), saw(3, 4, "a"), saw(5, 6, "b")],
        ),
        (
            "an unknown write that was seen",
            vec![won(0, 1, "", "a"), unknown(2, "a", "b"), unchanged(3, 4, "a"), saw(90, 91, "b")],
        ),
        (
            "an unknown write that was built upon",
            vec![won(0, 1, "", "a"), unknown(2, "a", "b"), saw(10, 11, "b"), won(12, 13, "b", "c")],
        ),
        (
            "an unknown write that never landed",
            vec![won(0, 1, "", "a"), unknown(2, "a", "b"), won(20, 21, "a", "c")],
        ),
        (
            "a refusal explained by a write nobody saw",
            vec![won(0, 1, "", "a"), unknown(2, "a", "b"), lost(20, 21, "a", "c")],
        ),
        ("a refused loser of a race", vec![won(0, 9, "", "a"), lost(1, 2, "", "b")]),
        (
            "a refusal because it was not there yet",
            vec![
                won(0, 9, "", "a"),
                unknown(2, "a", "b"),
                saw(50, 51, "b"),
                lost(10, 20, "b", "c"),
                unchanged(60, 61, "b"),
            ],
        ),
        (
            "the same write spelled anew",
            vec![won(0, 1, "", "a"), lost(2, 3, "a", "b"), won(4, 5, "a", "b"), saw(6, 7, "b")],
        ),
    ] {
        linearize(&history).map_err(|broken| format!("{what}: {broken}")).unwrap();
    }
}

#[test]
fn bad_histories_do_not() {
    let lost = |from, until, replaces, nonce| write(from, until, replaces, nonce, Outcome::Lost);
    for (crime, history) in [
        ("lost update", vec![won(0, 1, "", "a"), won(2, 3, "a", "b"), won(4, 5, "a", "c")]),
        ("lost update", vec![won(0, 1, "", "a"), won(0, 1, "", "b")]),
        ("nobody wrote", vec![won(0, 1, "", "a"), saw(2, 3, "x")]),
        ("never was", vec![won(0, 1, "", "a"), won(2, 3, "x", "b")]),
        ("no order", vec![won(0, 1, "", "a"), won(2, 3, "a", "b"), saw(4, 5, "a")]),
        ("no order", vec![won(0, 1, "", "a"), nothing(2, 3)]),
        ("no order", vec![won(0, 1, "", "a"), won(2, 9, "a", "b"), saw(3, 4, "b"), unchanged(5, 6, "a")]),
        ("no order", vec![won(0, 1, "", "a"), saw(4, 5, "b"), won(6, 7, "a", "b")]),
        ("took effect", vec![won(0, 1, "", "a"), lost(2, 3, "a", "b"), saw(4, 5, "b")]),
        ("no order", vec![won(0, 1, "", "a"), lost(2, 3, "a", "b"), saw(4, 5, "a")]),
        ("nothing yet", vec![lost(0, 1, "", "a"), nothing(2, 3)]),
        ("twice", vec![won(0, 1, "", "a"), won(2, 3, "a", "b"), won(4, 5, "b", "b")]),
    ] {
        let broken = linearize(&history).expect_err(crime);
        assert!(broken.contains(crime), "{crime:?} expected: {broken}");
    }
}

#[test]
fn epochs_along_the_chain_are_held_to_their_rules() {
    let seat = |epoch, node: &str, state: &str, nonce: &str| Content {
        epoch,
        node: node.into(),
        incarnation: format!("{node}-1"),
        state: state.into(),
        nonce: nonce.into(),
    };
    let broken = |contents: &[Content]| {
        let mut history = Vec::new();
        for (index, content) in contents.iter().enumerate() {
            let at = 10 * index as u64;
            let replaces = index.checked_sub(1).map(|before| contents[before].nonce.clone());
            let outcome = Outcome::Won(content.nonce.clone());
            history.push(operation(
                at,
                at + 1,
                Action::Write { replaces, content: content.clone(), outcome },
            ));
        }
        check_epochs(&linearize(&history).unwrap()).err().unwrap_or_default()
    };
    let (held, vacant) = (seat(1, "a", "held", "1"), seat(1, "a", "vacant", "2"));
    assert_eq!(broken(&[held.clone(), vacant.clone(), seat(2, "b", "held", "3")]), "");
    assert!(broken(&[held.clone(), seat(1, "b", "held", "2")]).contains("two holders"));
    assert!(broken(&[seat(2, "a", "held", "1"), seat(1, "a", "held", "2")]).contains("went down"));
    assert!(broken(&[held, vacant, seat(1, "a", "held", "3")]).contains("written again"));
}

/// The definition itself: some order of all operations, each at a moment of its own interval, that one register could
/// have answered. Unknown writes may stand anywhere behind their beginning, or nowhere.
fn exhaustive(history: &[Operation]) -> bool {
    fn returns(operation: &Operation) -> u64 {
        match &operation.action {
            Action::Write { outcome: Outcome::Unknown, .. } => u64::MAX,
            Action::Write { .. } | Action::Saw { .. } | Action::SawNothing | Action::SawUnchanged { .. } => {
                operation.return_us
            }
        }
    }
    fn step(operation: &Operation, value: &Option<String>) -> Option<Option<String>> {
        let same = |holds: bool| holds.then(|| value.clone());
        match &operation.action {
            Action::SawNothing => same(value.is_none()),
            Action::Saw { version, .. } | Action::SawUnchanged { version } => {
                same(value.as_ref() == Some(version))
            }
            Action::Write { replaces, content, outcome } => match outcome {
                Outcome::Lost => same(value != replaces),
                Outcome::Won(_) => (value == replaces).then(|| Some(content.nonce.clone())),
                // If its condition does not hold it changes nothing, which is as good as nowhere.
                Outcome::Unknown if value == replaces => Some(Some(content.nonce.clone())),
                Outcome::Unknown => Some(value.clone()),
            },
        }
    }
    fn search(
        history: &[Operation],
        done: u32,
        value: &Option<String>,
        failed: &mut HashSet<(u32, Option<String>)>,
    ) -> bool {
        let open: Vec<usize> = (0..history.len()).filter(|index| done & (1 << index) == 0).collect();
        // What is left may all be nowhere if it is all unknown.
        if open.iter().all(|&index| returns(&history[index]) == u64::MAX) {
            return true;
        }
        if !failed.insert((done, value.clone())) {
            return false;
        }
        let first_end = open.iter().map(|&index| returns(&history[index])).min().unwrap();
        open.iter().filter(|&&index| history[index].invoke_us <= first_end).any(|&index| {
            step(&history[index], value).is_some_and(|next| search(history, done | 1 << index, &next, failed))
        })
    }
    search(history, 0, &None, &mut HashSet::new())
}

/// What a register answered to a handful of operations at random moments, and then, most of the time, a lie or two.
fn any_history(random: &mut ChaCha8Rng) -> Vec<Operation> {
    let mut moments: Vec<u64> = (0..random.random_range(1..9)).map(|_| random.random_range(0..40)).collect();
    moments.sort_unstable();
    let (mut value, mut known, mut history) = (None::<String>, vec![String::new()], Vec::new());
    for (number, at) in moments.into_iter().enumerate() {
        let from = at - random.random_range(0..6).min(at);
        let until = at + random.random_range(0..6);
        let current = value.clone().unwrap_or_default();
        if random.random_bool(0.4) {
            history.push(match &value {
                None => nothing(from, until),
                Some(version) if known.contains(version) && random.random_bool(0.5) => {
                    unchanged(from, until, version)
                }
                Some(version) => saw(from, until, version),
            });
            known.push(current);
            continue;
        }
        let right = random.random_bool(0.7) && known.contains(&current);
        let replaces =
            if right { current.clone() } else { known[random.random_range(0..known.len())].clone() };
        let (nonce, lands) = (format!("v{number}"), replaces == current && random.random_bool(0.9));
        let outcome = match lands {
            _ if random.random_bool(0.3) => Outcome::Unknown,
            true => Outcome::Won(nonce.clone()),
            false if replaces == current => Outcome::Unknown,
            false => Outcome::Lost,
        };
        history.push(write(from, until, &replaces, &nonce, outcome.clone()));
        if lands {
            value = Some(nonce.clone());
        }
        if let Outcome::Won(_) = outcome {
            known.push(nonce);
        }
    }
    for _ in 0..random.random_range(0..3) {
        let index = random.random_range(0..history.len());
        let operation = &mut history[index];
        match (&mut operation.action, random.random_range(0..3)) {
            (Action::Write { outcome, .. }, 0) if *outcome != Outcome::Unknown => *outcome = Outcome::Lost,
            (Action::Write { outcome, .. }, 1) => *outcome = Outcome::Unknown,
            (Action::Write { replaces, .. }, 2) => {
                *replaces = known.get(random.random_range(1..=known.len())).cloned();
            }
            (
                Action::Write { .. } | Action::Saw { .. } | Action::SawUnchanged { .. } | Action::SawNothing,
                _,
            ) => {
                let length = operation.return_us - operation.invoke_us;
                operation.invoke_us = random.random_range(0..40);
                operation.return_us = operation.invoke_us + length;
            }
        }
    }
    history
}

/// A version can only be named by who saw it: an unknown write that nobody saw is replaced by nobody.
fn names_only_what_was_seen(history: &[Operation]) -> bool {
    let seen: HashSet<&str> = history
        .iter()
        .filter_map(|operation| match &operation.action {
            Action::Saw { version, .. } => Some(version.as_str()),
            Action::Write { outcome: Outcome::Won(version), .. } => Some(version.as_str()),
            Action::Write { .. } | Action::SawNothing | Action::SawUnchanged { .. } => None,
        })
        .collect();
    history.iter().all(|operation| match &operation.action {
        Action::Write { replaces: Some(version), .. } | Action::SawUnchanged { version } => {
            seen.contains(version.as_str())
        }
        Action::Write { .. } | Action::Saw { .. } | Action::SawNothing => true,
    })
}

#[test]
fn the_fast_check_and_the_exhaustive_search_agree() {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let (mut good, mut bad) = (0, 0);
    for number in 0..200_000 {
        let history = any_history(&mut random);
        if !names_only_what_was_seen(&history) {
            continue;
        }
        let (found, truth) = (linearize(&history), exhaustive(&history));
        assert_eq!(found.is_ok(), truth, "history {number}: {:?}\n{history:#?}", found.err());
        *if truth { &mut good } else { &mut bad } += 1;
    }
    assert!(good > 20_000 && bad > 20_000, "{good} good and {bad} bad ones");
}
