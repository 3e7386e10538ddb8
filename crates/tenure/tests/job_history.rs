//! Finished jobs, looked for by somebody who only has the store.

use crate::job_rig::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use tenure::id::{JobId, Namespace};
use tenure::job::{Dispatcher, DispatcherOptions, HistoryQuery, JobHistory, JobList, JobSpec, JobState};
use tenure::store::{Lanes, Meter, Metered};

const HUNDRED: usize = 100;

/// Every job that fits, page by page; each page costs at most five requests.
async fn all(lanes: &Lanes, meter: &Meter, query: &HistoryQuery) -> Vec<String> {
    let history = JobHistory::new(lanes, &Namespace::new("test").expect("valid"));
    let (mut query, mut found) = (query.clone(), Vec::new());
    loop {
        let before = meter.snapshot().requests();
        let page = history.page(&query, HUNDRED).await.expect("readable");
        let spent = meter.snapshot().requests() - before;
        assert!(spent <= 5, "{spent} requests for a page of {query:?}");
        assert!(page.jobs.len() <= HUNDRED);
        found.extend(page.jobs.iter().map(|row| row.id.to_string()));
        query.before = page.next;
        if page.next.is_none() {
            return found;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hi2_finished_jobs_are_found_by_schedule_queue_state_and_time_with_five_requests_a_page() {
    let (rig, leader, x) = two().await;
    let done = Log::default();
    let _w = runner(&x, "w1", &done, 0).await;
    known(&leader, 1).await;
    let guard = leader.node.lead().await.expect("it leads");
    // Little room, so that there are chunks with few jobs.
    let options = DispatcherOptions { keep_finished: 1, history_rows: 40, ..DispatcherOptions::default() };
    let dispatcher = Dispatcher::start_with(&leader.node.jobs(), guard, options);
    let mut updates = dispatcher.updates();
    let mut expected = BTreeSet::new();
    for round in 0..30_u64 {
        let spec = |number: u64| {
            let id = format!("j{round}-{number}");
            let (queue, series) =
                (["mail", "print"][number as usize % 2], ["daily", "hourly", "own"][number as usize % 3]);
            let kind = if number == 7 { "nobody-runs-this" } else { "echo" };
            JobSpec::new(id, kind).queue(queue).series(series)
        };
        let specs: Vec<JobSpec> = (0..40).map(spec).collect();
        let taken = dispatcher.submit_all(specs).await.expect("valid");
        assert_eq!(taken.iter().filter(|answer| answer.is_err()).count(), 0, "round {round}: {taken:?}");
        expected.extend((0..40).map(|number| format!("j{round}-{number}")));
        let odd: JobId = format!("j{round}-7").parse().expect("valid");
        dispatcher.cancel(&odd).await;
        until_final(&mut updates, 40).await;
        // The ledger forgets them once the history has them.
        crate::common::sleep_ms(6000).await;
    }
    let meter = Meter::default();
    let lanes = Lanes::same(Arc::new(Metered::new(rig.store.clone(), meter.clone())));

    let found = all(&lanes, &meter, &HistoryQuery::default()).await;
    assert_eq!((found.len(), found.iter().cloned().collect::<BTreeSet<_>>()), (1200, expected), "each once");
    assert!(found[0].starts_with("j29-"), "the newest first: {}", found[0]);
    let cancelled = HistoryQuery { state: Some(JobState::Cancelled), ..HistoryQuery::default() };
    let cancelled = all(&lanes, &meter, &cancelled).await;
    assert!(cancelled.len() == 30 && cancelled.iter().all(|id| id.ends_with("-7")), "{cancelled:?}");
    let daily = HistoryQuery { series: Some("daily".parse().expect("valid")), ..HistoryQuery::default() };
    assert_eq!(all(&lanes, &meter, &daily).await.len(), 30 * 14);
    let mail = HistoryQuery {
        queue: Some("mail".parse().expect("valid")),
        state: Some(JobState::Succeeded),
        ..HistoryQuery::default()
    };
    assert_eq!(all(&lanes, &meter, &mail).await.len(), 30 * 20);
    let (long_ago, to_come) = (Some(1), Some(wall_ms() + 1_000_000));
    let never = HistoryQuery { until_ms: long_ago, ..HistoryQuery::default() };
    assert_eq!(all(&lanes, &meter, &never).await, [""; 0]);
    let later = HistoryQuery { since_ms: to_come, ..HistoryQuery::default() };
    assert_eq!(all(&lanes, &meter, &later).await, [""; 0]);

    let namespace = Namespace::new("test").expect("valid");
    for id in ["j0-3", "j15-7", "j29-39"] {
        let before = meter.snapshot().requests();
        let id: JobId = id.parse().expect("valid");
        let record = JobList::find(&lanes, &namespace, &id).await.expect("readable").expect("it is found");
        let spent = meter.snapshot().requests() - before;
        assert!(record.id == id && record.state.is_final() && spent <= 16, "{spent} requests: {record:?}");
    }
    let runs = JobHistory::new(&lanes, &namespace).runs().await.expect("readable");
    let daily = &runs[&"daily".parse().expect("valid")];
    assert!(daily.states.len() == 30 && daily.last.id.as_str().starts_with("j29-"), "{daily:?}");
    let one = JobHistory::new(&lanes, &namespace).runs_of(&"daily".parse().expect("valid")).await;
    assert_eq!(one.expect("readable").as_ref(), Some(daily));
}
