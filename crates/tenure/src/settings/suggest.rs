//! "Did you mean …?"

/// Longer names are no typing mistakes, and comparing them is quadratic.
const NAME_BYTES_MAX: usize = 64;

/// The known name nearest to a wrong one, if one is near enough to be what was meant.
pub(super) fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if wrong.len() > NAME_BYTES_MAX {
        return None;
    }
    let wrong = plain(wrong);
    let (distance, name) =
        known.map(|name| (distance(&wrong, &plain(name)), name)).min_by_key(|(distance, _)| *distance)?;
    // A third of the letters wrong is another word.
    (distance * 3 <= name.len()).then_some(name)
}

/// The letters alone: `heartbeat_interval` and `heartbeatInterval` differ by convention, not by meaning.
fn plain(name: &str) -> Vec<char> {
    name.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect()
}

/// Edits (insert, delete, replace) between two words.
fn distance(from: &[char], to: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_mistakes_find_their_name_and_other_words_find_none() {
        let known = ["heartbeatInterval", "leaseTimeout", "node"];
        let nearest = |wrong| nearest(wrong, known.into_iter());
        assert_eq!(nearest("hartbeatInterval"), Some("heartbeatInterval"));
        assert_eq!(nearest("lease_timeout"), Some("leaseTimeout"));
        assert_eq!(nearest("LEASETIMEOUTS"), Some("leaseTimeout"));
        assert_eq!(nearest("colour"), None);
        assert_eq!(nearest(""), None);
        assert_eq!(nearest(&"x".repeat(1 << 20)), None);
    }
}
