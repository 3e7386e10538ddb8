use super::*;
use crate::id::{NodeId, PluginName, WorkerId};

fn worker_id(text: &str) -> WorkerId {
    WorkerId::new(text).expect("valid")
}

fn listed(worker: &str, modified_ms: u64) -> Listed {
    Listed { worker: worker_id(worker), modified_ms, bytes: 200 }
}

fn details(timeout_ms: u64) -> WorkerDetails {
    WorkerDetails {
        plugin_type: PluginName::new("queue").expect("valid"),
        pod: NodeId::new("pod-x").expect("valid"),
        timeout_ms,
    }
}

fn leader(epoch: u64) -> Liveness {
    Liveness::new(LivenessConfig { retention_ms: 3_600_000 }, Epoch(epoch))
}

/// One sweep that takes no time; every requested object is read as a worker with a timeout of 20 s.
fn sweep(liveness: &mut Liveness, at: u64, entries: &[Listed]) -> SweepOutcome {
    let out = liveness.sweep(Time(at), Time(at), entries, 0, false);
    for worker in &out.read {
        liveness.read(Time(at), worker, ReadOutcome::Found(details(20_000)));
    }
    out
}

fn publish(liveness: &mut Liveness) -> Snapshot {
    assert!(liveness.is_changed());
    let snapshot = liveness.snapshot();
    liveness.published(snapshot.id);
    assert!(!liveness.is_changed());
    snapshot
}

#[test]
fn a_worker_is_read_once_and_silent_after_a_whole_timeout_without_a_change() {
    let mut liveness = leader(1);
    assert_eq!(sweep(&mut liveness, 5000, &[listed("a", 1)]).read, [worker_id("a")]);
    assert_eq!(publish(&mut liveness).active, 1);
    for (at, modified) in [(10_000, 2), (15_000, 3), (20_000, 3), (34_999, 3)] {
        assert_eq!(sweep(&mut liveness, at, &[listed("a", modified)]), SweepOutcome::default());
        assert!(!liveness.is_changed(), "at {at}");
    }
    sweep(&mut liveness, 35_000, &[listed("a", 3)]);
    let told = publish(&mut liveness);
    assert_eq!((told.active, told.inactive), (0, 1));
    assert_eq!(told.workers[0].silence, Some(SnapshotId { epoch: Epoch(1), sequence: 2 }));
    sweep(&mut liveness, 40_000, &[listed("a", 3)]);
    assert!(!liveness.is_changed(), "a silence is one change");
    // It is back, even with an earlier time stamp on the store: a change is a change. It is read again.
    assert_eq!(sweep(&mut liveness, 45_000, &[listed("a", 2)]).read, [worker_id("a")]);
    assert_eq!(publish(&mut liveness).active, 1);
    sweep(&mut liveness, 50_000, &[]);
    assert!(publish(&mut liveness).workers.is_empty());
}

#[test]
fn it_is_this_leaders_own_word_once_it_has_listed_read_and_published() {
    let (mut empty, mut liveness) = (leader(1), leader(1));
    assert_eq!(empty.has_told(), None, "nothing was listed yet");
    sweep(&mut empty, 0, &[]);
    assert_eq!(empty.has_told(), Some(true), "there are none");
    liveness.sweep(Time(0), Time(0), &[listed("a", 1), listed("b", 1)], 0, false);
    liveness.read(Time(0), &worker_id("a"), ReadOutcome::Found(details(20_000)));
    assert_eq!(liveness.has_told(), None, "not published");
    publish(&mut liveness);
    assert_eq!(liveness.has_told(), Some(false), "one was not read, and is missing");
    liveness.read(Time(10), &worker_id("b"), ReadOutcome::Found(details(20_000)));
    publish(&mut liveness);
    assert_eq!(liveness.has_told(), Some(true));
    liveness.sweep(Time(5000), Time(5000), &[listed("a", 2)], 0, true);
    assert_eq!(liveness.has_told(), Some(false), "the list was cut");
}

#[test]
fn only_a_list_asked_for_after_the_timeout_proves_a_silence() {
    let mut liveness = leader(1);
    sweep(&mut liveness, 0, &[listed("a", 1)]);
    publish(&mut liveness);
    liveness.sweep(Time(19_999), Time(60_000), &[listed("a", 1)], 0, false);
    assert!(!liveness.is_changed());
    liveness.sweep(Time(20_000), Time(60_001), &[listed("a", 1)], 0, false);
    assert!(liveness.is_changed());
}

#[test]
fn a_new_leader_is_patient_and_does_not_tell_twice() {
    let mut old = leader(1);
    sweep(&mut old, 0, &[listed("a", 1), listed("b", 1)]);
    publish(&mut old);
    sweep(&mut old, 20_000, &[listed("a", 1), listed("b", 2)]);
    let last = publish(&mut old);
    // Another machine, another clock.
    let mut new = leader(2);
    new.inherit(&last);
    let entries = [listed("a", 1), listed("b", 2)];
    sweep(&mut new, 1_000_000, &entries);
    assert_eq!(publish(&mut new), last, "nothing to tell");
    for at in [1_010_000, 1_019_999] {
        assert_eq!(sweep(&mut new, at, &entries), SweepOutcome::default(), "no read, nothing to tell");
        assert!(!new.is_changed(), "at {at}");
    }
    sweep(&mut new, 1_020_000, &entries);
    let told = publish(&mut new);
    assert_eq!(told.workers[0].silence, last.workers[0].silence, "the silence of a is the same one");
    assert_eq!(told.workers[1].silence.map(|id| id.epoch), Some(Epoch(2)));
}

#[test]
fn a_snapshot_in_the_way_is_taken_over() {
    let mut old = leader(1);
    sweep(&mut old, 0, &[listed("a", 1)]);
    let first = publish(&mut old);
    sweep(&mut old, 20_000, &[listed("a", 1)]);
    let late = publish(&mut old);
    let mut new = leader(2);
    new.inherit(&first);
    sweep(&mut new, 500_000, &[listed("a", 1)]);
    new.inherit(&late);
    sweep(&mut new, 600_000, &[listed("a", 1)]);
    assert_eq!(publish(&mut new).workers[0].silence, late.workers[0].silence, "told by the one before");
}

#[test]
fn the_dead_are_removed_after_the_retention() {
    let mut liveness = leader(1);
    sweep(&mut liveness, 0, &[listed("a", 1)]);
    sweep(&mut liveness, 20_000, &[listed("a", 1)]);
    assert!(sweep(&mut liveness, 3_619_999, &[listed("a", 1)]).remove.is_empty());
    assert_eq!(sweep(&mut liveness, 3_620_000, &[listed("a", 1)]).remove, [worker_id("a")]);
    let many: Vec<_> = (0..200).map(|n| listed(&format!("w{n}"), 1)).collect();
    let mut liveness = Liveness::new(LivenessConfig { retention_ms: 0 }, Epoch(1));
    sweep(&mut liveness, 0, &many);
    sweep(&mut liveness, 20_000, &many);
    assert_eq!(sweep(&mut liveness, 20_001, &many).remove.len(), REMOVALS_MAX);
}

#[test]
fn a_list_that_was_cut_takes_nobody_away_and_silences_nobody() {
    let mut liveness = leader(1);
    sweep(&mut liveness, 0, &[listed("a", 1), listed("b", 1)]);
    publish(&mut liveness);
    liveness.sweep(Time(90_000), Time(90_000), &[listed("a", 2)], 0, true);
    assert!(!liveness.is_changed());
    assert!(liveness.skipped().cut);
}

#[test]
fn what_is_no_worker_is_counted_and_rarely_read() {
    let mut liveness = leader(1);
    let corrupt = |liveness: &mut Liveness, at: u64, modified| {
        let out = liveness.sweep(Time(at), Time(at), &[listed("x", modified)], 3, false);
        out.read.iter().for_each(|worker| liveness.read(Time(at), worker, ReadOutcome::Corrupt));
        out.read.len()
    };
    assert_eq!(corrupt(&mut liveness, 0, 1), 1);
    let told = publish(&mut liveness);
    assert_eq!((told.workers.len(), told.skipped), (0, 4));
    assert_eq!(corrupt(&mut liveness, 200_000, 1), 0, "it has not changed");
    let reads: usize = (0..400).map(|n| corrupt(&mut liveness, 200_000 + n * 5000, 2 + n)).sum();
    assert!(reads <= 6, "{reads} reads in 2000 s of something that changes all the time");
    assert!(!liveness.is_changed() && liveness.skipped().total() == 4);
    assert_eq!(sweep(&mut liveness, 10_000_000, &[listed("x", 9)]).read.len(), 1, "mended");
    assert_eq!(publish(&mut liveness).active, 1);
}

/// One unanswered read once hid a live worker from everybody for a minute, and longer each time.
#[test]
fn a_worker_whose_read_was_not_answered_is_known_soon() {
    let mut liveness = leader(1);
    let mut known_at = None;
    for (failed, at) in (0..60).map(|n| (n, n * 5000)) {
        for worker in liveness.sweep(Time(at), Time(at), &[listed("a", at)], 0, false).read {
            let outcome = if failed < 2 { ReadOutcome::Nothing } else { ReadOutcome::Found(details(20_000)) };
            liveness.read(Time(at), &worker, outcome);
        }
        if known_at.is_none() && liveness.clone().snapshot().active == 1 {
            known_at = Some(at);
        }
    }
    assert_eq!(known_at, Some(10_000));
}

/// Found by a random schedule: everybody had reported the worker gone, and reported its old silence again when it was back.
#[test]
fn a_worker_that_was_overwritten_and_is_back_is_a_new_one() {
    let mut liveness = leader(1);
    sweep(&mut liveness, 0, &[listed("a", 1)]);
    sweep(&mut liveness, 20_000, &[listed("a", 1)]);
    assert!(publish(&mut liveness).workers[0].silence.is_some());
    let junk = Listed { bytes: 100, ..listed("a", 2) };
    let out = liveness.sweep(Time(25_000), Time(25_000), &[junk], 0, false);
    assert_eq!(out.read, [worker_id("a")]);
    liveness.read(Time(25_000), &worker_id("a"), ReadOutcome::Corrupt);
    assert!(publish(&mut liveness).workers.is_empty());
    sweep(&mut liveness, 100_000, &[listed("a", 3)]);
    let back = publish(&mut liveness).workers;
    assert_eq!((back[0].active, back[0].silence), (true, None));
}

/// Found by a random schedule: the snapshot was overwritten, and its leader continued in the same epoch and restarted its
/// count.
#[test]
fn numbers_of_an_epoch_are_not_made_again() {
    let (mut before, mut after, mut other) = (leader(1), leader(1), leader(2));
    sweep(&mut before, 0, &[listed("a", 1)]);
    let known = publish(&mut before).id;
    for (liveness, sequence) in [(&mut after, 2), (&mut other, 1)] {
        liveness.above(known);
        sweep(liveness, 0, &[listed("a", 1)]);
        assert_eq!(publish(liveness).id.sequence, sequence);
    }
}

/// Found by a random schedule: a leader's last snapshot landed after its second successor had judged the same silence but
/// not published it.
#[test]
fn a_silence_that_was_told_meanwhile_keeps_its_name() {
    let mut old = leader(1);
    sweep(&mut old, 0, &[listed("a", 1)]);
    let first = publish(&mut old);
    sweep(&mut old, 20_000, &[listed("a", 1)]);
    let late = publish(&mut old);
    let told = late.workers[0].silence;
    for (moved, same) in [(false, true), (true, false)] {
        let mut new = leader(2);
        new.inherit(&first);
        sweep(&mut new, 100_000, &[listed("a", 1)]);
        sweep(&mut new, 101_000, &[listed("a", if moved { 2 } else { 1 })]);
        sweep(&mut new, 121_000, &[listed("a", if moved { 2 } else { 1 })]);
        new.inherit(&late);
        let entry = publish(&mut new).workers.remove(0);
        // If it was back in between, it is another silence.
        assert_eq!((entry.active, entry.silence == told), (false, same), "moved: {moved}");
    }
}

/// Found by a random schedule: the second leader's last snapshot, in which the worker had come back new, landed after the
/// third leader had read the first one's.
#[test]
fn a_silence_that_was_forgotten_meanwhile_does_not_come_back() {
    let mut first = leader(1);
    sweep(&mut first, 0, &[listed("a", 1)]);
    publish(&mut first);
    sweep(&mut first, 20_000, &[listed("a", 1)]);
    publish(&mut first);
    sweep(&mut first, 25_000, &[listed("a", 2)]);
    let early = publish(&mut first);
    assert!(early.workers[0].active && early.workers[0].silence.is_some());
    let mut second = leader(2);
    second.inherit(&early);
    sweep(&mut second, 100_000, &[]);
    sweep(&mut second, 105_000, &[listed("a", 1)]);
    let late = publish(&mut second);
    assert_eq!(late.workers[0].silence, None, "it left and came anew");
    let mut third = leader(3);
    third.inherit(&early);
    third.inherit(&late);
    sweep(&mut third, 500_000, &[listed("a", 2)]);
    assert_eq!(publish(&mut third).workers[0].silence, None);
}

/// Only a former leader's word takes a silence back, and only one that was inherited.
#[test]
fn a_silence_of_ones_own_epoch_and_one_that_a_former_life_did_not_know_are_kept() {
    let mut first = leader(1);
    sweep(&mut first, 0, &[listed("a", 1)]);
    let bare = publish(&mut first);
    sweep(&mut first, 20_000, &[listed("a", 1)]);
    publish(&mut first);
    sweep(&mut first, 25_000, &[listed("a", 2)]);
    let early = publish(&mut first);
    for (before, own) in [(&bare, true), (&early, false)] {
        let mut second = leader(2);
        second.inherit(before);
        sweep(&mut second, 100_000, &[listed("a", 2)]);
        let mut found = bare.clone();
        if own {
            sweep(&mut second, 120_000, &[listed("a", 2)]);
            publish(&mut second);
            sweep(&mut second, 125_000, &[listed("a", 3)]);
        } else {
            found.id = SnapshotId { epoch: Epoch(2), sequence: 7 };
        }
        second.inherit(&found);
        let silence = publish(&mut second).workers[0].silence.map(|id| id.epoch);
        assert_eq!(silence, Some(Epoch(if own { 2 } else { 1 })));
    }
}

/// Found by a random schedule: nothing had changed, so the new leader wrote nothing, and the previous leader's last snapshot
/// landed late and stayed.
#[test]
fn a_new_leader_writes_the_snapshot_it_found_once_more() {
    let mut old = leader(1);
    sweep(&mut old, 0, &[listed("a", 1)]);
    let found = publish(&mut old);
    let mut new = leader(2);
    new.inherit(&found);
    sweep(&mut new, 100_000, &[listed("a", 2)]);
    // Unaltered, under the name that everybody knows: nobody has to read it.
    assert_eq!(publish(&mut new), found);
    sweep(&mut new, 105_000, &[listed("a", 3), listed("b", 1)]);
    let next = publish(&mut new);
    assert_eq!((next.active, next.id), (2, SnapshotId { epoch: Epoch(2), sequence: 1 }));
    // A snapshot found in place of its own is not written again: it may lack what this leader has seen.
    let mut other = leader(3);
    other.inherit(&next);
    sweep(&mut other, 200_000, &[listed("a", 4), listed("b", 2)]);
    assert_eq!(other.snapshot(), next);
    other.inherit(&found);
    assert_eq!(publish(&mut other).active, 2, "though the one in the way has one worker");
    // If something has changed, the change is written instead.
    let mut third = leader(3);
    third.inherit(&next);
    sweep(&mut third, 200_000, &[listed("a", 4)]);
    assert_eq!(publish(&mut third).id, SnapshotId { epoch: Epoch(3), sequence: 1 });
}

#[test]
fn reads_workers_and_records_are_bounded_and_a_failed_read_is_tried_again() {
    let mut liveness = leader(1);
    let crowd: Vec<_> = (0..RECORDS_MAX + 5).map(|n| listed(&format!("w{n}"), 1)).collect();
    let first = liveness.sweep(Time(0), Time(0), &crowd, 0, false).read;
    assert_eq!((first.len(), liveness.known(), liveness.skipped().beyond), (READS_MAX, RECORDS_MAX, 5));
    first.iter().for_each(|worker| liveness.read(Time(0), worker, ReadOutcome::Nothing));
    let second = liveness.sweep(Time(5000), Time(5000), &crowd, 0, false).read;
    assert!(second.iter().all(|worker| !first.contains(worker)), "others come first");
    let mut left = liveness.clone();
    left.sweep(Time(60_000), Time(60_000), &crowd[..300], 0, false);
    assert_eq!(left.known(), 300);
    for at in 0..90 {
        sweep(&mut liveness, 100_000 + at, &crowd);
    }
    let told = publish(&mut liveness);
    assert_eq!(told.workers.len(), WORKERS_MAX);
    assert!(told.skipped >= 5 + 2000, "one too many is counted: {}", told.skipped);
    sweep(&mut liveness, 200_000, &crowd[..10]);
    assert_eq!(publish(&mut liveness).workers.len(), 10);
}

#[test]
fn a_read_whose_answer_never_came_is_made_again_once_the_worker_has_written() {
    let mut liveness = leader(1);
    let asked = |liveness: &mut Liveness, at, modified| {
        liveness.sweep(Time(at), Time(at), &[listed("a", modified)], 0, false).read.len()
    };
    assert_eq!(asked(&mut liveness, 0, 1), 1);
    assert_eq!(asked(&mut liveness, 5000, 1), 0);
    assert_eq!(asked(&mut liveness, 10_000, 2), 1);
}

#[test]
fn a_snapshot_of_unknown_fate_leaves_nothing_untold() {
    let mut liveness = leader(1);
    sweep(&mut liveness, 0, &[listed("a", 1)]);
    let first = liveness.snapshot();
    sweep(&mut liveness, 5000, &[listed("a", 2), listed("b", 1)]);
    liveness.published(first.id);
    assert!(liveness.is_changed(), "b came after it was made");
    let second = liveness.snapshot();
    assert!(second.id > first.id);
    liveness.published(first.id);
    assert!(liveness.is_changed(), "an earlier one");
    liveness.published(second.id);
    assert!(!liveness.is_changed());
}

#[test]
fn unanswered_reads_are_made_less_and_less_often_up_to_a_limit() {
    let mut liveness = leader(1);
    let mut at = 0;
    for pause in [10_000, 20_000, 40_000, 80_000, 80_000] {
        let asked = liveness.sweep(Time(at), Time(at), &[listed("a", 1)], 0, false).read;
        assert_eq!(asked, [worker_id("a")], "at {at}");
        liveness.read(Time(at), &worker_id("a"), ReadOutcome::Nothing);
        let early = at + pause - 1;
        assert_eq!(liveness.sweep(Time(early), Time(early), &[listed("a", 1)], 0, false).read, []);
        at += pause;
    }
}

/// A snapshot of `count` active workers.
fn crowd(count: usize) -> Snapshot {
    let entry = |n| SnapshotEntry {
        worker: worker_id(&format!("w{n:05}")),
        details: details(20_000),
        active: true,
        silence: None,
    };
    Snapshot { workers: (0..count).map(entry).collect(), ..Snapshot::default() }
}

#[test]
fn no_more_workers_are_inherited_than_are_kept() {
    let mut liveness = leader(1);
    liveness.inherit(&crowd(WORKERS_MAX + 1));
    assert_eq!(liveness.known(), WORKERS_MAX);
    // One worker leaves, or stops being one: there is room for exactly one more.
    let listed_of = |liveness: &mut Liveness, from: usize, more: &[&str]| {
        let mut list: Vec<_> = (from..WORKERS_MAX).map(|n| listed(&format!("w{n:05}"), 1)).collect();
        list.extend(more.iter().map(|name| listed(name, 1)));
        sweep(liveness, 0, &list).read.len()
    };
    assert_eq!(listed_of(&mut liveness, 1, &["x", "y"]), 2);
    assert_eq!(liveness.snapshot().workers.len(), WORKERS_MAX, "one of the two");
    liveness.read(Time(0), &worker_id("w00001"), ReadOutcome::Corrupt);
    assert_eq!(listed_of(&mut liveness, 1, &["x", "y", "z"]), 1);
    assert_eq!(liveness.snapshot().workers.len(), WORKERS_MAX, "z in its place");
}

#[test]
fn where_there_is_no_room_those_that_are_known_are_inherited_all_the_same() {
    let mut liveness = leader(2);
    let junk: Vec<_> = (0..RECORDS_MAX).map(|n| listed(&format!("w{n:05}"), 1)).collect();
    liveness.sweep(Time(0), Time(0), &junk, 0, false);
    let id = SnapshotId { epoch: Epoch(1), sequence: 4 };
    let mut found = crowd(1);
    found.id = id;
    (found.workers[0].active, found.workers[0].silence) = (false, Some(id));
    let stranger = SnapshotEntry { worker: worker_id("stranger"), ..found.workers[0].clone() };
    found.workers.push(stranger);
    liveness.inherit(&found);
    assert_eq!(liveness.known(), RECORDS_MAX, "nobody new");
    liveness.read(Time(0), &worker_id("w00000"), ReadOutcome::Found(details(20_000)));
    let told = liveness.snapshot();
    assert_eq!((told.active, told.inactive), (0, 1));
    assert_eq!(told.workers[0].silence, Some(id));
}

#[test]
fn an_older_snapshot_of_ones_own_epoch_renames_no_silence() {
    let snapshot_id = |sequence| SnapshotId { epoch: Epoch(1), sequence };
    let mut liveness = leader(1);
    liveness.above(snapshot_id(5));
    sweep(&mut liveness, 0, &[listed("w00000", 1)]);
    sweep(&mut liveness, 20_000, &[listed("w00000", 1)]);
    let mut old = Snapshot { id: snapshot_id(4), ..crowd(1) };
    (old.workers[0].active, old.workers[0].silence) = (false, Some(snapshot_id(2)));
    liveness.inherit(&old);
    assert_eq!(publish(&mut liveness).workers[0].silence, Some(snapshot_id(6)));
}

#[test]
fn a_worker_that_is_back_stays_so_whatever_snapshot_is_found() {
    let id = SnapshotId { epoch: Epoch(1), sequence: 4 };
    let mut found = Snapshot { id, ..crowd(2) };
    (found.workers[0].active, found.workers[0].silence) = (false, Some(id));
    let mut liveness = leader(2);
    liveness.inherit(&found);
    let list = |modified| ["w00000", "w00001", "x"].map(|name| listed(name, modified));
    sweep(&mut liveness, 0, &list(1));
    let inherited = liveness.clone().snapshot();
    assert_eq!((inherited.active, inherited.inactive), (2, 1));
    sweep(&mut liveness, 5000, &list(2));
    liveness.inherit(&found);
    let told = publish(&mut liveness);
    assert_eq!((told.active, told.inactive), (3, 0));
}

/// Nobody knows how long the previous leader kept it, so the retention starts with the first list.
#[test]
fn the_inherited_dead_are_kept_for_a_whole_retention() {
    let id = SnapshotId { epoch: Epoch(1), sequence: 4 };
    let mut found = Snapshot { id, ..crowd(1) };
    (found.workers[0].active, found.workers[0].silence) = (false, Some(id));
    let mut liveness = leader(2);
    liveness.inherit(&found);
    for (at, removed) in [(10_000_000, 0), (13_599_999, 0), (13_600_000, 1)] {
        assert_eq!(sweep(&mut liveness, at, &[listed("w00000", 1)]).remove.len(), removed, "at {at}");
    }
}

#[test]
fn a_worker_that_was_overwritten_is_told_at_once() {
    let mut liveness = leader(1);
    sweep(&mut liveness, 0, &[listed("a", 1)]);
    publish(&mut liveness);
    let out = liveness.sweep(Time(5000), Time(5000), &[Listed { bytes: 100, ..listed("a", 2) }], 0, false);
    assert_eq!(out.read, [worker_id("a")]);
    assert!(!liveness.is_changed(), "it has not been read yet");
    liveness.read(Time(5000), &worker_id("a"), ReadOutcome::Corrupt);
    let told = publish(&mut liveness);
    assert_eq!((told.workers.len(), told.skipped), (0, 1));
}

#[test]
fn what_was_inherited_first_is_published_over_another_that_was_found_before_the_first_sweep() {
    let mut old = leader(1);
    sweep(&mut old, 5000, &[listed("a", 1)]);
    let first = publish(&mut old);
    // The leader in between: its snapshot lands late, after its successor has read the previous one but before it could
    // list.
    let late = Snapshot { id: SnapshotId { epoch: Epoch(2), sequence: 1 }, ..Snapshot::default() };
    let mut new = leader(3);
    new.inherit(&first);
    assert_eq!(new.snapshot(), first, "as it was found");
    new.inherit(&late);
    sweep(&mut new, 9000, &[listed("a", 2)]);
    let told = publish(&mut new);
    assert_eq!((told.id.epoch, told.active), (Epoch(3), 1), "{told:?}");
}

#[test]
fn a_recovery_that_was_told_meanwhile_is_not_taken_back() {
    let mut old = leader(1);
    sweep(&mut old, 5000, &[listed("a", 1)]);
    sweep(&mut old, 30_000, &[listed("a", 1)]);
    let first = publish(&mut old);
    let silence = first.workers[0].silence;
    assert_eq!((first.inactive, silence.is_some()), (1, true));
    // The leader in between saw it come back; that lands after its successor has taken over the silence.
    let back = SnapshotEntry { active: true, ..first.workers[0].clone() };
    let id = SnapshotId { epoch: Epoch(2), sequence: 1 };
    let late = Snapshot { id, workers: vec![back], active: 1, ..Snapshot::default() };
    for swept in [false, true] {
        let mut new = leader(3);
        new.inherit(&first);
        if swept {
            sweep(&mut new, 9000, &[listed("a", 2)]);
        }
        new.inherit(&late);
        sweep(&mut new, 10_000, &[listed("a", 2)]);
        let told = publish(&mut new);
        assert_eq!((told.active, told.workers[0].silence), (1, silence), "swept {swept}: {told:?}");
        sweep(&mut new, 29_999, &[listed("a", 2)]);
        assert!(!new.is_changed(), "it has a whole timeout");
        sweep(&mut new, 30_000, &[listed("a", 2)]);
        let told = publish(&mut new);
        assert!(told.inactive == 1 && told.workers[0].silence > silence, "another silence: {told:?}");
    }
}

/// Nodes that had read the previous snapshot show its workers until there is another.
#[test]
fn a_spoiled_snapshot_is_made_anew_once_everybody_was_read_even_if_that_is_nobody() {
    let mut nobody = leader(2);
    nobody.found_spoiled();
    assert!(!nobody.is_changed(), "nothing was listed yet");
    nobody.sweep(Time(0), Time(0), &[], 0, true);
    let cut = nobody.snapshot();
    nobody.published(cut.id);
    nobody.found_spoiled();
    assert!(!nobody.is_changed(), "nor all of it");
    nobody.sweep(Time(5000), Time(5000), &[], 0, false);
    assert!(publish(&mut nobody).workers.is_empty());

    let mut unread = leader(2);
    unread.found_spoiled();
    unread.sweep(Time(0), Time(0), &[listed("a", 1)], 0, false);
    assert!(!unread.is_changed(), "nobody is hidden");
    unread.read(Time(0), &worker_id("a"), ReadOutcome::Found(details(20_000)));
    assert_eq!(publish(&mut unread).active, 1);
}
