//! Times as people write them: one grammar for flags, variables and files.

const SECOND_MS: u64 = 1000;

/// Reads a time with its unit: `500ms`, `30s`, `5m`, `2h`, `1d`, or several in a row: `1h30m`. Only 0 needs no unit.
///
/// ```
/// assert_eq!(tenure::settings::parse_time_ms("1h30m"), Some(5_400_000));
/// assert_eq!(tenure::settings::parse_time_ms("30"), None);
/// ```
pub fn parse_time_ms(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let (mut rest, mut total, mut last) = (text, 0_u64, u64::MAX);
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, after) = rest.split_at(digits);
        let letters = after.len() - after.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let (unit, after) = after.split_at(letters);
        let unit_ms = match unit {
            "ms" => 1,
            "s" => SECOND_MS,
            "m" => 60 * SECOND_MS,
            "h" => 3600 * SECOND_MS,
            "d" => 24 * 3600 * SECOND_MS,
            _ => return None,
        };
        if unit_ms >= last {
            return None;
        }
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(unit_ms)?)?;
        (rest, last) = (after, unit_ms);
    }
    (last != u64::MAX).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, ms) in
            [("500ms", 500), ("30s", 30_000), ("1h30m", 5_400_000), ("1d", 86_400_000), ("0s", 0), ("0", 0)]
        {
            assert_eq!(parse_time_ms(text), Some(ms), "{text}");
        }
        for text in
            ["", "30", "00", "s", "-1s", "1s1h", "1s1s", "1.5s", "30 s", "99999999999999999999s", "1w"]
        {
            assert_eq!(parse_time_ms(text), None, "{text}");
        }
    }
}
