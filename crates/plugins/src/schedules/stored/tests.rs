use super::*;
use crate::schedules::read_file;
use tenure::id::{Namespace, ScheduleId};
use tenure::store::{Condition, Faults, Faulty, MemoryStore};

const NOW: u64 = 1_794_700_800_000;

fn id(text: &str) -> ScheduleId {
    ScheduleId::new(text).expect("valid")
}

fn schedule(text: &str) -> Schedule {
    let text = format!("[{{id: web, checks: [{{name: a, kind: tcp, host: h, port: 1}}], {text}}}]");
    read_file(&text, &Rules::default()).expect("valid").pop().expect("one")
}

fn on(store: Arc<dyn Store>) -> Schedules {
    Schedules::new(store, &Namespace::new("test").expect("valid"))
}

#[tokio::test(start_paused = true)]
async fn a_schedule_is_added_once_and_changed_on_condition() {
    let schedules = on(Arc::new(MemoryStore::new()));
    let web = schedule("every: 10s");
    assert_eq!(schedules.add(&web, NOW).await, Ok(()));
    assert_eq!(schedules.add(&web, NOW).await, Err(ScheduleError::Exists("web".to_owned())));
    assert_eq!(schedules.put(&web, NOW + 9).await, Ok(Change::Unchanged));
    let slower = schedule("every: 20s");
    assert_eq!(schedules.compare(&slower).await, Ok(Change::Changed));
    assert_eq!(schedules.put(&slower, NOW + 9).await, Ok(Change::Changed));
    let there = schedules.get(&id("web")).await.expect("read").expect("there");
    assert_eq!((there.since_ms, &there.timing), (NOW, &slower.timing), "it was enabled all the time");

    assert_eq!(schedules.set_enabled(&id("web"), false, NOW + 10).await, Ok(Change::Changed));
    assert_eq!(schedules.set_enabled(&id("web"), false, NOW + 11).await, Ok(Change::Unchanged));
    assert_eq!(schedules.set_enabled(&id("web"), true, NOW + 12).await, Ok(Change::Changed));
    let there = schedules.get(&id("web")).await.expect("read").expect("there");
    assert_eq!((there.since_ms, there.enabled), (NOW + 12, true));
    assert_eq!(schedules.set_enabled(&id("no"), true, 1).await, Err(ScheduleError::Unknown("no".to_owned())));
    assert_eq!(schedules.remove(&id("web")).await, Ok(true));
    assert_eq!(schedules.remove(&id("web")).await, Ok(false));
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_for_outlives_changes_and_a_name_asks_once() {
    let schedules = on(Arc::new(MemoryStore::new()));
    schedules.add(&schedule("manual: true"), NOW).await.expect("added");
    assert_eq!(schedules.ask(&id("web"), "one", NOW).await, Ok(Change::Changed));
    assert_eq!(schedules.ask(&id("web"), "one", NOW).await, Ok(Change::Unchanged));
    assert_eq!(schedules.ask(&id("web"), "a-b", NOW).await, Err(ScheduleError::Name("a-b".to_owned())));
    schedules.put(&schedule("manual: true, priority: 9"), NOW).await.expect("changed");
    let there = schedules.get(&id("web")).await.expect("read").expect("there");
    assert_eq!(there.run_now, [RunRequest { name: "one".to_owned(), at_ms: NOW }]);

    schedules.served(&id("web"), &["one".to_owned()]).await.expect("noted");
    assert_eq!(schedules.ask(&id("web"), "one", NOW).await, Ok(Change::Unchanged), "it ran");
    for number in 0..8 {
        schedules.ask(&id("web"), &format!("n{number}"), NOW).await.expect("asked");
    }
    assert_eq!(schedules.ask(&id("web"), "n8", NOW).await, Err(ScheduleError::Asked("web".to_owned())));
    for number in 0..40 {
        let name = format!("n{number}");
        schedules.served(&id("web"), std::slice::from_ref(&name)).await.expect("noted");
        schedules.ask(&id("web"), &format!("n{}", number + 8), NOW).await.expect("asked");
    }
    let there = schedules.get(&id("web")).await.expect("read").expect("there");
    assert_eq!((there.run_now.len(), there.ran.len()), (8, 16));
    assert_eq!(schedules.served(&id("gone"), &["x".to_owned()]).await, Ok(Change::Unchanged));
}

/// Whichever answers are lost: what is reported as done is done, and nothing is done twice.
#[tokio::test(start_paused = true)]
async fn lost_answers_are_read_back() {
    for seed in 0..60 {
        let store = Arc::new(MemoryStore::new());
        let link = Faulty::new(store.clone(), seed);
        link.set(Faults { lost_answer: 0.4, lost_request: 0.2, ..Faults::default() });
        let (shaky, sound) = (on(Arc::new(link)), on(store));
        if let Ok(()) = shaky.add(&schedule("every: 10s"), NOW).await {
            assert!(sound.get(&id("web")).await.expect("read").is_some(), "{seed}");
        } else {
            sound.put(&schedule("every: 10s"), NOW).await.expect("written");
        }
        if shaky.ask(&id("web"), "one", NOW).await.is_ok() {
            let there = sound.get(&id("web")).await.expect("read").expect("there");
            assert_eq!(there.run_now.len(), 1, "{seed}");
        }
        if shaky.set_enabled(&id("web"), false, NOW).await.is_ok() {
            assert!(!sound.get(&id("web")).await.expect("read").expect("there").enabled, "{seed}");
        }
        if shaky.remove(&id("web")).await.is_ok() {
            assert_eq!(sound.get(&id("web")).await, Ok(None), "{seed}");
        }
    }
}

/// Many writers change one schedule at once: every confirmed change is there.
#[tokio::test(start_paused = true)]
async fn changes_of_others_are_not_undone() {
    let store = Arc::new(MemoryStore::new());
    let schedules = on(store);
    schedules.add(&schedule("every: 10s"), NOW).await.expect("added");
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..5 {
        let schedules = schedules.clone();
        asking.spawn(async move { schedules.ask(&id("web"), &format!("n{number}"), NOW).await });
    }
    let paused = schedules.set_enabled(&id("web"), false, NOW).await;
    let asked = asking.join_all().await.into_iter().filter(Result::is_ok).count();
    let there = schedules.get(&id("web")).await.expect("read").expect("there");
    assert_eq!(there.run_now.len(), asked);
    assert_eq!(there.enabled, paused.is_err());
    assert!(asked > 0 && paused.is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_understood_is_left_alone() {
    let store = Arc::new(MemoryStore::new());
    let key = "plg_coordinator_global/test/schedules/web.json";
    store.put(key, br#"{"v": 2, "id": "web"}"#.to_vec().into(), Condition::Any).await;
    let schedules = on(store.clone());
    let refused = schedules.put(&schedule("every: 10s"), NOW).await;
    assert!(matches!(refused, Err(ScheduleError::Refused { .. })), "{refused:?}");
    let refused = schedules.ask(&id("web"), "one", NOW).await;
    assert!(matches!(refused, Err(ScheduleError::Refused { .. })), "{refused:?}");
    let all = schedules.list().await.expect("listed");
    assert!(all[&id("web")].is_err());
    let Read::Found(object) = store.get(key, None).await else { panic!("it is gone") };
    assert_eq!(&object.body[..], br#"{"v": 2, "id": "web"}"#);
}

/// As long as every other list: thousands of schedules are many pages.
#[tokio::test(start_paused = true)]
async fn a_list_of_schedules_is_waited_for_ten_timeouts() {
    let store = Faulty::new(Arc::new(MemoryStore::new()), 1);
    store.set(Faults { lost_request: 1.0, timeout: Duration::from_secs(600), ..Faults::default() });
    let schedules = on(Arc::new(store)).request_timeout(Duration::from_secs(1));
    let began = tokio::time::Instant::now();
    assert!(schedules.list().await.is_err());
    assert_eq!(began.elapsed(), Duration::from_secs(10));
}
