//! Jobs without a fault, and what the judge says when one thing changes.

use super::*;

fn run(job: &str, attempt: u32, began_ms: u64) -> Run {
    let (queue, ended_ms) = (LIMITED.to_owned(), Some(began_ms + 50));
    Run { job: job.to_owned(), queue, attempt, epoch: 1, began_ms, ended_ms, is_answered: true }
}

/// Five jobs, two of them at once. An agent is killed at 520 ms, in the midst of `d`, which then runs again; the leader at 700 ms.
fn sound() -> (Queues, Vec<Kill>, Vec<AgentKill>) {
    let cut = Run { ended_ms: Some(520), is_answered: false, ..run("d", 1, 500) };
    let runs =
        vec![run("a", 1, 100), run("b", 1, 120), run("c", 1, 150), cut, run("d", 2, 600), run("e", 1, 900)];
    let job = |(number, id): (usize, &str)| Submission {
        id: id.to_owned(),
        queue: LIMITED.to_owned(),
        sent_ms: 10 * number as u64,
        answered_ms: Some(90),
        tries: if id == "b" { 2 } else { 1 },
    };
    let standing = |(id, attempt, number): (&str, u64, usize)| {
        let (state, result) = ("succeeded".to_owned(), format!("status 200: {number}"));
        let standing = Standing { state, is_open: false, attempt, attempts: 3, result, late: 0 };
        (id.to_owned(), vec![standing])
    };
    let stands = [("a", 1, 0), ("b", 1, 1), ("c", 1, 2), ("d", 2, 4), ("e", 1, 5)];
    let queues = Queues {
        limit: 2,
        submissions: ["a", "b", "c", "d", "e"].into_iter().enumerate().map(job).collect(),
        answers: [("202".to_owned(), 5), ("none".to_owned(), 1)].into(),
        runs,
        standings: stands.into_iter().map(standing).collect(),
    };
    let leaders = vec![Kill { node: "pod-a".to_owned(), epoch: 1, killed_ms: 700, back_ms: 800 }];
    let agents = vec![AgentKill { agent: "agent-1".to_owned(), killed_ms: 520, back_ms: 560 }];
    (queues, leaders, agents)
}

fn wrong(change: impl FnOnce(&mut Queues)) -> Vec<String> {
    let (mut queues, leaders, agents) = sound();
    change(&mut queues);
    queues.judge(&leaders, &agents).1
}

#[track_caller]
fn found(what: &str, violations: Vec<String>) {
    assert!(violations.iter().any(|violation| violation.contains(what)), "{what}: {violations:?}");
}

fn standing<'a>(queues: &'a mut Queues, id: &str) -> &'a mut Vec<Standing> {
    queues.standings.get_mut(id).expect("it is there")
}

#[test]
fn sound_queues_have_their_figures_and_no_violations() {
    let (queues, leaders, agents) = sound();
    let (findings, violations) = queues.judge(&leaders, &agents);
    assert_eq!(violations, Vec::<String>::new());
    assert_eq!((findings.jobs, findings.succeeded, findings.sent_again), (5, 5, 1));
    assert_eq!((findings.runs, findings.cut_off), (6, 1));
    assert_eq!((findings.again_after_agent, findings.again_after_leader), (1, 0));
    assert_eq!(findings.most_at_once, 2, "the third begins when the first ends");
    assert_eq!((findings.start.max_ms, findings.took_ms, findings.drained_ms), (860, 950, 910));
    assert!(findings.text().contains("5.3 a second"), "{}", findings.text());
}

#[test]
fn a_lost_job_is_found() {
    found("e is lost: neither", wrong(|queues| drop(queues.standings.remove("e"))));
    found(
        "e is lost: it stands as queued",
        wrong(|queues| {
            let last = &mut standing(queues, "e")[0];
            (last.state, last.is_open) = ("queued".to_owned(), true);
        }),
    );
    found("e ended as lost", wrong(|queues| standing(queues, "e")[0].state = "lost".to_owned()));
    found("c was sent 1 times and never", wrong(|queues| queues.submissions[2].answered_ms = None));
}

#[test]
fn a_second_result_is_found() {
    found(
        "d has two results",
        wrong(|queues| {
            let all = standing(queues, "d");
            let before = Standing { result: "status 200: 3".to_owned(), attempt: 1, ..all[0].clone() };
            all.insert(0, before);
        }),
    );
    found(
        "a has two results",
        wrong(|queues| {
            let all = standing(queues, "a");
            all.insert(0, Standing { state: "lost".to_owned(), ..all[0].clone() });
        }),
    );
}

#[test]
fn a_result_that_is_not_that_of_the_last_run_is_found() {
    let result =
        |result: &'static str| wrong(move |queues| standing(queues, "d")[0].result = result.to_owned());
    found("d has a result of no run of it", result("status 200: 5"));
    found("d has a result of no run of it", result("status 200: 3"));
    found("d has a result of no run of it", result(""));
    found("d stands at attempt 3 with", wrong(|queues| standing(queues, "d")[0].attempt = 3));
    found("d stood at attempt 4 of 3", wrong(|queues| standing(queues, "d")[0].attempt = 4));
    found("e has a result of no run of it", wrong(|queues| drop(queues.runs.pop())));
}

#[test]
fn a_job_that_runs_again_for_no_reason_is_found() {
    found("nobody was killed in between", wrong(|queues| queues.runs.push(run("e", 2, 1200))));
    found("a ran as attempt 1 after attempt 1", wrong(|queues| queues.runs.push(run("a", 1, 800))));
    found("d ran twice at once", wrong(|queues| queues.runs[3].ended_ms = Some(610)));
    found("d ran twice at once", wrong(|queues| queues.runs[3].ended_ms = None));
    found("c was cut off in attempt 1", {
        let (mut queues, leaders, _) = sound();
        queues.runs[2].is_answered = false;
        queues.judge(&leaders, &[]).1
    });
    found("z ran, and nobody submitted it", wrong(|queues| queues.runs.push(run("z", 1, 1200))));
    let (queues, mut leaders, _) = sound();
    leaders[0].killed_ms = 530;
    assert_eq!(queues.judge(&leaders, &[]).0.again_after_leader, 1);
}

#[test]
fn too_many_at_once_are_found() {
    found("3 jobs of queue limited ran at 149 ms", wrong(|queues| queues.runs[2].began_ms = 149));
    found(
        "3 jobs of queue limited",
        wrong(|queues| (queues.runs[0].ended_ms, queues.runs[1].ended_ms) = (None, None)),
    );
    let elsewhere = wrong(|queues| {
        (queues.runs[2].began_ms, queues.runs[2].queue) = (149, "mail".to_owned());
    });
    assert_eq!(elsewhere, Vec::<String>::new());
}
