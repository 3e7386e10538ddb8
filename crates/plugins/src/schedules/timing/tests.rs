use super::*;
use proptest::prelude::*;

fn at(text: &str) -> u64 {
    u64::try_from(text.parse::<Timestamp>().expect("a time").as_millisecond()).expect("after 1970")
}

fn dates(times: &[u64]) -> Vec<String> {
    let time = |ms: &u64| Timestamp::from_millisecond(i64::try_from(*ms).expect("small")).expect("a time");
    times.iter().map(|ms| time(ms).to_string()).collect()
}

fn cron(expression: &str, zone: &str) -> Timing {
    Timing::Cron(Box::new(CronTimes::new(expression, zone).expect("valid")))
}

fn all(timing: &Timing, after: &str, until: &str) -> Vec<String> {
    dates(&timing.newest(at(after), at(until), 1000))
}

#[test]
fn where_clocks_are_put_forward_a_fixed_time_runs_right_after_the_gap() {
    // 2026-03-29 in Berlin: 02:00 CET becomes 03:00 CEST, so there is no 02:30.
    let timing = cron("30 2 * * *", "Europe/Berlin");
    let expected = ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"];
    assert_eq!(all(&timing, "2026-03-28T00:00:00Z", "2026-03-30T12:00:00Z"), expected);
}

#[test]
fn where_clocks_are_put_back_a_fixed_time_runs_once() {
    // 2026-10-25 in Berlin: 03:00 CEST becomes 02:00 CET, so 02:30 occurs twice.
    let timing = cron("30 2 * * *", "Europe/Berlin");
    let expected = ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"];
    assert_eq!(all(&timing, "2026-10-24T00:00:00Z", "2026-10-26T12:00:00Z"), expected);
}

#[test]
fn every_half_hour_follows_elapsed_time_through_both_changes() {
    let timing = cron("*/30 * * * *", "Europe/Berlin");
    for (after, until) in
        [("2026-03-28T22:00:00Z", "2026-03-29T04:00:00Z"), ("2026-10-24T22:00:00Z", "2026-10-25T04:00:00Z")]
    {
        let half_hours: Vec<u64> = (1..=12).map(|n| at(after) + n * 1_800_000).collect();
        assert_eq!(all(&timing, after, until), dates(&half_hours));
    }
}

#[test]
fn what_never_fires_and_what_nobody_knows_is_refused() {
    for (cron, zone, field, words) in [
        ("0 0 30 2 *", "UTC", CronField::Cron, "never fires"),
        ("0 25 * * *", "UTC", CronField::Cron, ""),
        ("* * *", "UTC", CronField::Cron, ""),
        ("", "UTC", CronField::Cron, ""),
        ("0 0 * * *", "Europe/Atlantis", CronField::Zone, "not a known time zone"),
        ("0 0 1 1 * 2020", "UTC", CronField::Cron, ""),
    ] {
        let (which, rule) = CronTimes::new(cron, zone).expect_err(cron);
        assert_eq!(which, field, "{cron} {zone}: {rule}");
        assert!(rule.contains(words), "{cron} {zone}: {rule}");
    }
    assert!(CronTimes::new("0 0 29 2 *", "UTC").is_ok(), "every four years is not never");
}

fn timings() -> impl Strategy<Value = Timing> {
    let interval =
        (1_000..100_000_u64, 0..100_000_u64, 0..100_000_u64).prop_map(|(every_ms, offset, jitter)| {
            Timing::Interval(Interval {
                every_ms,
                offset_ms: offset % every_ms,
                jitter_ms: jitter % every_ms,
            })
        });
    let expressions =
        ["*/7 * * * *", "30 2 * * *", "15,45 1-3 * * *", "0 0 * * SUN", "*/20 30 2 * * *", "0 */2 * * *"];
    let zones = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"];
    let crons = (prop::sample::select(expressions.to_vec()), prop::sample::select(zones.to_vec()))
        .prop_map(|(expression, zone)| cron(expression, zone));
    prop_oneof![interval, crons]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Every way of asking gives the same due times.
    #[test]
    fn newest_next_and_count_agree(
        timing in timings(),
        // Around the clock changes of 2026.
        start in prop::sample::select(vec!["2026-03-28T20:00:00Z", "2026-10-24T20:00:00Z", "2026-11-01T00:00:00Z", "2026-04-04T00:00:00Z"]),
        length_ms in 0..20 * 3_600_000_u64,
        count in 1..40_usize,
    ) {
        let (after, until) = (at(start), at(start) + length_ms);
        let mut walked = Vec::new();
        let mut next = timing.next(after);
        while let Some(due) = next.filter(|due| *due <= until) {
            prop_assert!(walked.last().is_none_or(|last| *last < due), "it goes on");
            walked.push(due);
            next = timing.next(due);
        }
        let newest = walked[walked.len().saturating_sub(count)..].to_vec();
        prop_assert_eq!(dates(&timing.newest(after, until, count)), dates(&newest));
        prop_assert_eq!(timing.count(after, until, u64::MAX), walked.len() as u64);
        // From any moment between two due times, the next is the same.
        for pair in walked.windows(2) {
            let between = pair[0] + (pair[1] - pair[0]) / 2;
            prop_assert_eq!(timing.next(between), Some(pair[1]));
        }
        // Jitter never changes the order.
        let begins: Vec<u64> = walked.iter().map(|due| timing.begins_ms("web", *due)).collect();
        prop_assert!(begins.windows(2).all(|pair| pair[0] <= pair[1]));
    }
}
