//! Replays the transcripts under `testdata/`. `TENURE_RECORD=1 cargo test -p tenure-core-tests transcripts::` writes them
//! anew; then read the difference, every line of it.

use crate::world::script::Script;
use std::path::{Path, PathBuf};

/// A transcript is a list of blocks: comment and command lines, `----`, what they print, an empty line.
fn replay(path: &Path) -> (String, String) {
    let text = std::fs::read_to_string(path).expect("a readable transcript");
    let mut script = Script::new();
    let (mut replayed, mut said) = (String::new(), String::new());
    let mut in_output = false;
    for line in text.lines() {
        if in_output {
            in_output = !line.is_empty();
            if line.is_empty() {
                replayed += "\n";
            }
            continue;
        }
        replayed += line;
        replayed += "\n";
        if line == "----" {
            replayed += &std::mem::take(&mut said);
            in_output = true;
        } else if !line.is_empty() && !line.starts_with('#') {
            said += &script.command(line);
        }
    }
    assert!(said.is_empty(), "{}: commands after the last ---- printed {said}", path.display());
    (text, replayed.trim_end().to_owned() + "\n")
}

fn check(name: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../testdata").join(name);
    let (recorded, replayed) = replay(&path);
    assert!(!replayed.contains("VIOLATION"), "{name}:\n{replayed}");
    if std::env::var_os("TENURE_RECORD").is_some() {
        std::fs::write(&path, &replayed).expect("a writable transcript");
    } else if recorded != replayed {
        let differing = recorded.lines().zip(replayed.lines()).position(|(a, b)| a != b);
        let line = differing.unwrap_or(recorded.lines().count().min(replayed.lines().count())) + 1;
        panic!("{name}:{line}: the protocol now says otherwise. Replayed:\n{replayed}");
    }
}

macro_rules! transcripts {
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() { check(concat!(stringify!($name), ".txt")); })*

        /// A transcript that no test replays would rot unseen.
        #[test]
        fn every_transcript_is_replayed() {
            let known = [$(concat!(stringify!($name), ".txt")),*];
            let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../testdata");
            for entry in std::fs::read_dir(folder).expect("testdata") {
                let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
                assert!(!name.ends_with(".txt") || known.contains(&name.as_str()), "{name} is never replayed");
            }
        }
    };
}

transcripts! {
    ce1_eligible_tries, ce2_ineligible_takes_no_part, ob1_ineligible_watches, ce3_no_leader_leads, ce4_standby_watches,
    sb1_all_at_once, sb2_partition_heals, sb3_paused_leader_stops,
    fo1_crash, fo2_graceful, fo3_no_fail_back, fo4_leader_changed,
    sl1_slow_writes, sl4_told_once,
    gd5_terms_of_the_leader, td1_leader_back_in_time, td2_delay_is_configurable,
    te2_reasons, ex3_stuck_work_keeps_the_seat,
    ji1_default_range, ji2_custom_range, ji3_no_jitter, ji4_fixed_jitter,
    js1_exact_heartbeats, js2_renewal_at_80_percent, js3_jitter_again, jb2_same_leader_with_jitter,
    hazard_lost_answer_of_claim, hazard_lost_answer_of_renewal, hazard_late_claim_adopted, hazard_late_claim_vacated,
    hazard_late_renewal_vacated, hazard_lost_request, hazard_late_vacate, hazard_superseded, hazard_vacate_refused, hazard_echo,
    hazard_denied,
    hazard_corrupt_seat, hazard_newer_seat, hazard_last_epoch, hazard_seat_deleted, hazard_seat_restored, hazard_seat_restored_twice, hazard_same_node_twice,
    hazard_lease_at_risk_recovers, hazard_step_down, hazard_stuck_processes, hazard_stuck_step_down,
    hazard_stuck_at_risk, hazard_stop_while_claiming, hazard_cold_start_dead_seat, hazard_unsafe_store,
    hazard_store_away, hazard_rank_back_off, hazard_list_denied, hazard_slow_store, cost_steady_state,
    hazard_mark, hazard_mark_unknown_renewal, hazard_mark_unknown_claim, hazard_mark_while_draining,
    hazard_mark_dead_leader, hazard_mark_too_late, hazard_stand_aside,
}
