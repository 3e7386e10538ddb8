//! What is done for a key, and what is not done again.

use tenure_core::{OnceNext, OnceState, once_next};

const KEEP_MS: u64 = 1000;

fn next(state: OnceState, age_ms: u64, retry: bool) -> OnceNext {
    once_next(Some((state, age_ms)), KEEP_MS, retry)
}

#[test]
fn on1_it_runs_once_for_as_long_as_the_record_is_kept() {
    assert_eq!(once_next(None, KEEP_MS, false), OnceNext::Run);
    for retry in [false, true] {
        assert_eq!(next(OnceState::Ended { code: 3 }, KEEP_MS - 1, retry), OnceNext::Done(3));
        assert_eq!(next(OnceState::Ended { code: 3 }, KEEP_MS, retry), OnceNext::Run);
    }
}

#[test]
pub(crate) fn on2_what_may_have_been_begun_is_run_again_only_on_request() {
    for age_ms in [0, 5 * KEEP_MS] {
        assert_eq!(next(OnceState::Running, age_ms, false), OnceNext::Lost);
        assert_eq!(next(OnceState::Running, age_ms, true), OnceNext::Run);
    }
    assert_eq!(next(OnceState::Lost, KEEP_MS - 1, false), OnceNext::Lost);
    assert_eq!(next(OnceState::Lost, KEEP_MS - 1, true), OnceNext::Run);
    assert_eq!(next(OnceState::Lost, KEEP_MS, false), OnceNext::Run, "forgotten");
}
