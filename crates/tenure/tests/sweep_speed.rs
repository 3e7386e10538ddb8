//! A measurement: what a sweep over ten thousand workers costs a leader, list and snapshot included.
//! `cargo test --release -p tenure --test sweep_speed -- --ignored --nocapture`
#![allow(clippy::print_stdout, reason = "the figure is the point")]

use crate::common::{Rig, sleep_ms};
use tenure::store::{Condition, Store};

#[tokio::test(start_paused = true)]
#[ignore = "a measurement"]
async fn measures_a_sweep_over_ten_thousand_workers() {
    let rig = Rig::new();
    let write = async |beats: u64| {
        for n in 0..10_000 {
            let id = format!("plugin-7-worker-{n:05}");
            let pod = n % 50;
            let body = format!(
                r#"{{"v":1,"workerId":"{id}","pluginType":"queue","pod":"pod-{pod}","timeout":20000,"incarnation":"00000000000000ab","nonce":"00000000000000ab-{beats}"}}"#
            );
            let key = format!("plg_coordinator_global/test/workers/{id}.json");
            rig.store.put(&key, body.into(), Condition::Any).await;
        }
    };
    write(100).await;
    let mut a = rig.join("pod-a").await;
    a.became_leader().await;
    for beats in 0..45 {
        write(101 + beats).await;
        sleep_ms(5000).await;
    }
    assert_eq!(a.node.workers().borrow().active, 10_000);
    let mut cpu_ms = Vec::new();
    for beats in 0..5 {
        write(200 + beats).await;
        let before = std::time::Instant::now();
        sleep_ms(5000).await;
        cpu_ms.push(before.elapsed().as_secs_f64() * 1000.0);
    }
    println!("5 s of a leader with a sweep, nothing changed: {cpu_ms:.1?} ms");
    // Everybody falls silent at once: judged, published, told.
    let before = std::time::Instant::now();
    sleep_ms(30_000).await;
    let all_ms = before.elapsed().as_secs_f64() * 1000.0;
    println!("30 s with 6 sweeps in which all fall silent, 10,000 events included: {all_ms:.1} ms");
    assert_eq!(a.node.workers().borrow().inactive, 10_000);
}
