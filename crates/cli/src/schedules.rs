//! Schedules from the command line: `tenure apply` and `tenure schedule`, and what they share with `jobs`. Nothing here
//! decides anything.

mod apply;
mod inline;
mod run_now;
mod schedule;

pub(crate) use apply::apply;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use inline::schedule as schedule_of;
pub(crate) use schedule::schedule;

use crate::args::SettingsArgs;
use crate::exit::Failure;
use crate::status::existing;
use serde_json::Value;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tenure::id::IdError;
use tenure::id::{Namespace, ScheduleId};
use tenure::store::{Lanes, OpenOptions};

use tenure_plugins::schedules::{ScheduleError, Schedules};

/// A command is not lease traffic: a request may take longer than a renewal may.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a command looks and writes.
pub(crate) struct Place {
    pub(crate) lanes: Lanes,
    pub(crate) namespace: Namespace,
}

impl Place {
    /// For looking; `None` in place of the store if there is none yet.
    pub(crate) async fn existing(args: &SettingsArgs) -> Result<(Namespace, Option<Place>), Failure> {
        let settings = args.load()?.settings;
        let namespace = Namespace::new(&settings.namespace).map_err(Failure::usage)?;
        let place = existing(&settings).await?.map(|lanes| Place { lanes, namespace: namespace.clone() });
        Ok((namespace, place))
    }

    /// For writing: an embedded store is made if there is none yet.
    pub(crate) async fn open(args: &SettingsArgs) -> Result<Place, Failure> {
        let resolved = args.load()?;
        let namespace = Namespace::new(&resolved.settings.namespace).map_err(Failure::usage)?;
        SettingsArgs::prepare_store(&resolved)?;
        let options = OpenOptions::with_request_timeout(REQUEST_TIMEOUT);
        let lanes = tenure::store::open(&resolved.settings.store, &options).await?;
        Ok(Place { lanes, namespace })
    }

    pub(crate) fn schedules(&self) -> Schedules {
        Schedules::new(Arc::clone(&self.lanes.bulk), &self.namespace)
    }
}

pub(crate) fn now_ms() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)
}

/// An id of the command line; `what` names it in the error.
pub(crate) fn id<T: FromStr<Err = IdError>>(what: &str, text: &str) -> Result<T, Failure> {
    text.parse()
        .map_err(|error: IdError| Failure::usage(format!("{what} = {:?}: {}", error.value, error.rule)))
}

/// A moment for people: in UTC, to the second.
pub(crate) fn moment(ms: u64) -> String {
    let stamp = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    stamp.map_or_else(|| "-".to_owned(), |stamp| stamp.strftime("%Y-%m-%d %H:%M:%SZ").to_string())
}

/// How long, for people.
pub(crate) fn span(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{:.1} s", ms as f64 / 1000.0),
        10_000..120_000 => format!("{} s", ms / 1000),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        7_200_000..172_800_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} d", ms / 86_400_000),
    }
}

pub(crate) fn pretty(value: &Value) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).map_err(Failure::other)
}

fn no_schedule(id: &ScheduleId, namespace: &Namespace) -> Failure {
    Failure::missing(format!("there is no schedule {:?} in {namespace}", id.as_str()))
}

impl From<ScheduleError> for Failure {
    fn from(error: ScheduleError) -> Failure {
        tenure::Error::new(error.kind(), error).into()
    }
}
