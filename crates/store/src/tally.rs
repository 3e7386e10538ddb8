//! Counts real requests on behalf of a [`Metered`](crate::Metered) further up the same task.
//!
//! A list takes several requests, and a replace may take three while the ETag form is being learned. Only the backend knows,
//! and the trait does not say. A task-local counter carries the number past any wrappers in between.

use std::cell::Cell;

tokio::task_local! {
    static REQUESTS: Cell<u64>;
}

/// Counts one request sent to the store.
#[cfg(feature = "object")]
pub(crate) fn request() {
    let _ = REQUESTS.try_with(|requests| requests.set(requests.get() + 1));
}

/// Runs `work` and counts its requests. Zero means that the backend has no wire.
pub(crate) async fn counted<T>(work: impl Future<Output = T>) -> (T, u64) {
    let outer = REQUESTS.try_with(Cell::get).is_ok();
    let (result, requests) = REQUESTS
        .scope(Cell::new(0), async {
            let result = work.await;
            (result, REQUESTS.with(Cell::get))
        })
        .await;
    if outer {
        let _ = REQUESTS.try_with(|all| all.set(all.get() + requests));
    }
    (result, requests)
}
