//! SQL that makes a database refuse a former leader: one table, and one statement in the transaction that does the work.
//!
//! The database keeps the newest epoch of each resource. [`FENCE`] raises it, and **fails** if it is newer already: then the
//! transaction cannot commit, in PostgreSQL even if nobody looks at the error. Both texts are the same for PostgreSQL and
//! SQLite, and parameters are `$1`, the resource, and `$2`, the epoch.
//!
//! ```
//! use tenure::fence::sql;
//! use tenure::{Node, Settings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let settings = Settings::builder().store("memory:").node("pod-a").startup_jitter_max(std::time::Duration::ZERO).build()?;
//! # let node = Node::start(settings).await?;
//! # let guard = node.lead().await.ok_or("the node was stopped")?;
//! # let mut database = rusqlite::Connection::open_in_memory()?;
//! # database.execute("create table reports (text)", ())?;
//! database.execute(sql::CREATE, ())?; // once
//!
//! let transaction = database.transaction()?;
//! match transaction.execute(sql::FENCE, ("reports", sql::epoch(&guard))) {
//!     Ok(_) => {} // no newer leader was here, and none will be until this transaction ends
//!     Err(error) if sql::is_refused(&error) => return Ok(()), // somebody else leads: stop
//!     Err(error) => return Err(error.into()),
//! }
//! transaction.execute("insert into reports values ('all is well')", ())?;
//! transaction.commit()?;
//! # drop(guard);
//! # node.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! The statement locks the row of its resource until the transaction ends, so a former leader's transaction comes wholly
//! before the new leader's first one, or fails:
//!
//! - It reached the statement first: the new leader waits for its end, and goes on from what it left.
//! - The new leader reached it first: it waits for the new leader's commit, and fails.
//!
//! Make it the first statement of the transaction: whatever the transaction reads afterwards is then of after the wait.
//! Under `repeatable read` and `serializable`, PostgreSQL may answer a wait with a serialization failure instead. As always,
//! repeat the transaction then; it gets the answer the second time.
//!
//! Not promised: that a former leader which is frozen in the middle of its transaction lets go of the row. In PostgreSQL,
//! set `idle_in_transaction_session_timeout`. Transactions of one resource run one after another; use several resources
//! where that is too slow. A resource belongs to one election: epochs of two cannot be compared.

use crate::guard::LeaderGuard;
use std::error::Error;

/// Creates the table, unless it is there.
pub const CREATE: &str = "\
create table if not exists tenure_fence (
  resource text not null primary key,
  epoch bigint not null constraint epoch_of_a_former_leader check (epoch > 0)
)";

/// Raises the epoch of resource `$1` to `$2`, and fails if it is higher already.
// A condition (`where`) would leave the row alone and succeed, and whoever forgets to count rows would write all the same. A
// failed check needs no reader, and PostgreSQL shows both: the constraint's name and, negated, the epoch that stands there.
pub const FENCE: &str = "\
insert into tenure_fence as seen (resource, epoch) values ($1, $2)
on conflict (resource) do update
set epoch = case when excluded.epoch >= seen.epoch then excluded.epoch else -seen.epoch end";

/// What both databases say when it fails, in any language.
const REFUSED: &str = "epoch_of_a_former_leader";

/// The epoch of this guard as a `bigint`, for [`FENCE`].
pub fn epoch(guard: &LeaderGuard) -> i64 {
    // At most `EPOCH_MAX`.
    guard.epoch().cast_signed()
}

/// Whether this error, of whatever client, says that a newer leader was there. Then stop: trying again does not help.
pub fn is_refused(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.to_string().contains(REFUSED) {
            return true;
        }
        cause = error.source();
    }
    false
}
