//! The dashboard in a real browser, on real nodes. `cargo xtask test` installs the browser and runs these.

use crate::common::browser::Browser;
use crate::common::{Cluster, PATIENT, STEADY, Sandbox};
use rustix::process::Signal;
use serde_json::json;
use std::net::TcpListener;

/// A node with a port of its own, or with that of a former one.
fn start(cluster: &mut Cluster<'_>, node: &str, listen: &str, more: &[&str]) -> (usize, String) {
    let life =
        cluster.start_args(node, &[&["--listen", listen, "--presence-interval", "1000ms"], more].concat());
    let address = cluster.http_address(life);
    (life, format!("http://{address}"))
}

fn nodes<'a>(sandbox: &'a Sandbox, store: &str, settings: &[&str]) -> Cluster<'a> {
    Cluster::new(sandbox, store, settings).env("TENURE_NO_HTTP", "false")
}

/// What a page must never do: fail, or ask anybody else for anything.
fn innocent(browser: &Browser, but: &[&str]) {
    let complaints = browser.complaints();
    // A store that did not answer in time is told by 503 and shown by the page, and a job that wrote nothing has no output; browsers
    // log both on their own account.
    let known = |text: &String| {
        text.contains("status of 503")
            || text.contains("/output - ")
            || but.iter().any(|known| text.contains(known))
    };
    let worse: Vec<&String> = complaints.iter().filter(|text| !known(text)).collect();
    assert!(worse.is_empty(), "{worse:?}");
    let origins = browser.run(
        "return [...new Set(performance.getEntriesByType('resource').map((one) => new URL(one.name).origin))]",
    );
    assert_eq!(origins, json!([browser.run("return location.origin")]), "nothing from outside");
}

/// Nothing keeps anybody out: by axe-core, in light and in dark.
fn open_to_all(browser: &Browser) {
    for scheme in ["light", "dark"] {
        browser.prefers(scheme);
        assert_eq!(browser.barriers(), [""; 0], "{scheme}");
    }
}

/// Whether the table of terms says this of an end, to whoever asks for more than the word.
fn why(begin: &str) -> String {
    format!(
        "[...document.querySelectorAll('#terms [title]')].some((word) => word.title.startsWith({begin:?}))"
    )
}

#[test]
#[ignore = "needs chromium, and playwright-core from npm"]
fn the_page_shows_a_failover_and_a_step_down_live() {
    let sandbox = Sandbox::new();
    let mut cluster = nodes(&sandbox, &sandbox.sqlite("t.db"), PATIENT);
    let (a, _) = start(&mut cluster, "pod-a", "127.0.0.1:0", &["--worker", "mail-1:queue"]);
    cluster.event(0, a, "became_leader");
    let (b, page) = start(&mut cluster, "pod-b", "127.0.0.1:0", &[]);
    start(&mut cluster, "pod-c", "127.0.0.1:0", &[]);
    let browser = Browser::start(1280, 1500);
    // By the link that `tenure run` prints on a terminal.
    let token = sandbox.http_token();
    browser.open(&format!("{page}/#token={token}"));
    browser.shows("link", "live");
    browser.until("no token in the address", "location.hash === '' && location.pathname === '/'");
    let kept =
        browser.run("return [sessionStorage.getItem('tenure-token'), document.documentElement.outerHTML]");
    assert_eq!(kept[0], json!(token));
    assert!(!kept[1].as_str().unwrap().contains(&token), "the token is nowhere in the page");
    browser.shows("leader-name", "pod-a");
    browser.shows("leader-epoch", "epoch 1");
    browser.shows("workers", "mail-1");
    browser.shows("nodes", "pod-c");
    browser.until("that nothing is wrong", "document.getElementById('state').dataset.tone === 'good'");
    browser.until("a loaded title", "document.title.startsWith('pod-a')");
    browser.until(
        "a heartbeat plot with its threshold",
        "document.querySelector('#beats .beat') && document.querySelector('#beats .limit')",
    );
    browser.picture("dashboard-before");

    // Nobody reloads the page: it hears of it.
    let mark = cluster.mark();
    cluster.kill(a);
    browser.until("that something is wrong", "document.getElementById('state').dataset.tone !== 'good'");
    browser.shows("nodes", "silent");
    browser.shows("terms", "silent");
    browser.picture("dashboard-killed");
    let next = cluster.leader(mark);
    browser.shows("leader-name", &next.node);
    browser.shows("leader-epoch", "epoch 2");
    browser.shows("terms", "pod-a");
    browser.shows("terms", "silent");
    browser.until("for how long it was silent", &why("fell silent for "));
    // `leader_down` is said by whoever noticed it first, which may be the other one.
    browser.shows("events", &format!("previousLeader pod-a, newLeader {}", next.node));
    browser.until("two terms in the picture", "document.querySelectorAll('#timeline .term').length >= 2");
    browser.until("that something is wrong", "document.getElementById('state').dataset.tone === 'warn'");
    browser.shows("reasons", "node down pod-a");
    browser.shows("counts", "1 down");
    browser.picture("dashboard-failover");

    let mark = cluster.mark();
    browser.click("#leader-act button");
    browser.until("a question", "document.getElementById('ask').open");
    browser.shows("ask-title", &format!("Ask {} to step down?", next.node));
    browser.picture("dashboard-step-down");
    browser.click("#ask [value=no]");
    browser.until("no question", "!document.getElementById('ask').open");
    browser.click("#leader-act button");
    browser.click("#ask [value=yes]");
    browser.shows("note", "was asked to step down");
    let third = cluster.leader(mark);
    assert_eq!(third.epoch(), 3);
    browser.shows("leader-name", &third.node);
    browser.shows("leader-epoch", "epoch 3");
    browser.until("who asked it to step down", &why("stepped down (asked by a client over HTTP"));
    browser.until(
        "no node that is gone and up",
        "![...document.querySelectorAll('#nodes tr')].some((row) => /\\bpod-a\\b/.test(row.innerText) && !/\\bdown\\b/.test(row.innerText))",
    );
    browser.until("links where reading takes no token", "!document.getElementById('links').hidden");
    assert_eq!(
        browser.run("return new Set([...document.querySelectorAll('#timeline .term:not(.now)')].map((term) => getComputedStyle(term).fill)).size"),
        json!(1),
        "colours are not for names"
    );
    open_to_all(&browser);

    browser.type_into("#filter-text", "became_leader nobody");
    browser.shows("events-empty", "Nothing passes the filter");
    innocent(&browser, &[]);
    browser.resize(1920, 1200);
    browser.until(
        "two cards side by side on a wide screen",
        "document.querySelector('.queues').offsetTop === document.querySelector('.schedules').offsetTop",
    );
    browser.resize(390, 844);
    browser.until("no sideways scrolling on a phone", "document.documentElement.scrollWidth <= innerWidth");
    browser.until(
        "names on one line",
        "[...document.querySelectorAll('#nodes td:first-child, #leader-name')].every((cell) => cell.getClientRects().length === 1 && cell.clientHeight < 60)",
    );
    browser.until(
        "every state beside its name",
        "[...document.querySelectorAll('td.state-cell')].filter((cell) => cell.offsetParent).every((cell) => cell.getBoundingClientRect().right <= innerWidth && cell.getBoundingClientRect().top < cell.parentElement.cells[0].getBoundingClientRect().bottom)",
    );
    open_to_all(&browser);
    browser.picture("dashboard-phone");
    cluster.signal(b, Signal::TERM);
    cluster.exit(b);
    cluster.finish();
}

#[test]
#[ignore = "needs chromium, and playwright-core from npm"]
fn the_page_survives_a_restart_of_its_node_and_says_how_old_it_is_meanwhile() {
    let sandbox = Sandbox::new();
    let mut cluster = nodes(&sandbox, &sandbox.sqlite("t.db"), PATIENT);
    let (a, page) = start(&mut cluster, "pod-a", "127.0.0.1:0", &[]);
    cluster.event(0, a, "became_leader");
    let browser = Browser::start(1280, 1200);
    browser.open(&page);
    browser.shows("link", "live");
    browser.shows("leader-name", "pod-a");
    browser.shows("workers-empty", "No worker has registered");
    browser.shows("jobs-empty", "There are no jobs");
    browser.picture("dashboard-empty");
    cluster.kill(a);
    browser.shows("link", "not connected");
    browser.shows("headline", "old; the page goes on trying");
    browser.until(
        "nothing to press",
        "[...document.querySelectorAll('[data-act]')].every((button) => button.disabled)",
    );
    browser.picture("dashboard-disconnected");
    let listen = page.trim_start_matches("http://").to_owned();
    let mark = cluster.mark();
    let (a, _) = start(&mut cluster, "pod-a", &listen, &[]);
    browser.shows("link", "live");
    browser.until("no such headline", "!document.getElementById('headline').innerText.includes('trying')");
    cluster.event(mark, a, "became_leader");
    browser.shows("leader-epoch", "epoch 2");
    // What was missed is said, not hidden.
    browser.shows("events", "events are missing here");
    innocent(
        &browser,
        &[
            "ERR_CONNECTION_REFUSED",
            "ERR_INCOMPLETE_CHUNKED_ENCODING",
            "ERR_CONNECTION_RESET",
            "ERR_EMPTY_RESPONSE",
        ],
    );
    cluster.finish();
}

/// Whoever may write to the bucket chooses texts; none of them is ever markup.
#[test]
#[ignore = "needs chromium, and playwright-core from npm"]
fn hostile_texts_stay_texts() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let mut cluster = nodes(&sandbox, &store, STEADY);
    let hostile = "<img src=x onerror=window.bitten=1>";
    let (a, page) = start(&mut cluster, "pod-a", "127.0.0.1:0", &[]);
    cluster.event(0, a, "became_leader");
    // Ids are bound to a few letters; everything else that somebody else writes is not.
    let document = json!({"v": 1, "id": "evil", "every": 60_000, "checks": [], "note": hostile});
    let database = rusqlite::Connection::open(sandbox.path("t.db")).unwrap();
    database.busy_timeout(crate::common::PATIENCE).unwrap();
    let put = "INSERT INTO object (key, body, version, modified_ms, boot)
               VALUES (?1, ?2, (SELECT value + 1 FROM meta WHERE name = 'sequence'), 0, 'x')";
    let keys = database
        .prepare("SELECT key FROM object LIMIT 1")
        .unwrap()
        .query_row([], |row| row.get::<_, String>(0))
        .unwrap();
    let root = keys.split('/').take(2).collect::<Vec<_>>().join("/");
    database.execute("UPDATE meta SET value = value + 1 WHERE name = 'sequence'", []).unwrap();
    database
        .execute(put, (format!("{root}/schedules/evil.json"), document.to_string().into_bytes()))
        .unwrap();
    database
        .execute(put, (format!("{root}/schedules/{hostile}.json"), document.to_string().into_bytes()))
        .unwrap();
    let browser = Browser::start(1280, 1200);
    browser.open(&page);
    browser.shows("link", "live");
    browser.shows("schedules", "evil");
    browser.until("it is not bitten", "window.bitten === undefined && !document.querySelector('img')");
    browser.picture("dashboard-hostile");
    innocent(&browser, &[]);
    cluster.finish();
}

#[test]
#[ignore = "needs chromium, and playwright-core from npm"]
fn a_page_of_a_node_with_a_token_asks_for_it() {
    let sandbox = Sandbox::new();
    let mut cluster = nodes(&sandbox, &sandbox.sqlite("t.db"), STEADY);
    let file = sandbox.secret("token", "correct-horse-battery-staple-4711\n");
    let reader = sandbox.secret("reader", "only-looking-battery-staple-4711\n");
    let tokens = ["--http-token-file", &file, "--http-read-token-file", &reader];
    let (a, page) = start(&mut cluster, "pod-a", "127.0.0.1:0", &tokens);
    cluster.event(0, a, "became_leader");
    let browser = Browser::start(1280, 900);
    browser.open(&page);
    browser.until("a question", "document.getElementById('token').open");
    browser.picture("dashboard-token");
    browser.type_into("#token-text", "correct-horse-battery-staple-4712");
    browser.click("#token button");
    browser.until(
        "that it was wrong",
        "document.getElementById('token').open && !document.getElementById('token-wrong').hidden",
    );
    // The token that may only read shows everything, and does nothing.
    browser.type_into("#token-text", "only-looking-battery-staple-4711");
    browser.click("#token button");
    browser.shows("link", "live");
    browser.shows("leader-name", "pod-a");
    browser.click("#leader-act button");
    browser.click("#ask [value=yes]");
    browser.until("a question", "document.getElementById('token').open");
    browser.click("#token [value=no]");
    browser.shows("note", "Nothing was done: it wants a token");
    assert_eq!(browser.run("return document.getElementById('leader-epoch').innerText"), json!("epoch 1"));
    browser.click("#leader-act button");
    browser.click("#ask [value=yes]");
    browser.until("the question again", "document.getElementById('token').open");
    browser.type_into("#token-text", "correct-horse-battery-staple-4711");
    browser.click("#token [value=yes]");
    let page = browser.run("return document.documentElement.outerHTML");
    assert!(!page.as_str().unwrap().contains("correct-horse"), "the token is nowhere in the page");
    browser.until("no links that carry no token", "document.getElementById('links').hidden");
    // Alone, it steps down: until it leads again nobody does.
    browser.shows("leader-name", "nobody leads");
    browser.picture("dashboard-vacant");
    browser.shows("leader-epoch", "epoch 2");
    browser.shows("leader-name", "pod-a");
    innocent(&browser, &["401", "403"]);
    cluster.finish();
}

#[test]
#[ignore = "needs chromium, and playwright-core from npm"]
fn failing_checks_are_red_and_a_job_that_gave_up_is_found_and_tried_again() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let check = format!("{{name: port, kind: tcp, host: 127.0.0.1, port: {closed}}}");
    let file = format!("- {{id: down, every: 1s, attempts: 1, failAfter: 1, checks: [{check}]}}\n");
    let file = sandbox.write("polls.yaml", &file);
    sandbox.tenure(["apply", "-f", &file, "--store", &store]).assert_code(0);
    let gives_up =
        ["job", "submit", "--id", "mail-1", "--queue", "mail", "--attempts", "1", "--", "/bin/false"];
    sandbox.tenure_on(&store, &gives_up).assert_code(0);
    let mut cluster = nodes(&sandbox, &store, STEADY);
    let (a, page) = start(&mut cluster, "pod-a", "127.0.0.1:0", &[]);
    cluster.event(0, a, "became_leader");
    cluster.start_agent(&["--id", "agent-1", "--allow-command", "/bin/false"]);
    let browser = Browser::start(1280, 1500);
    browser.open(&format!("{page}/#token={}", sandbox.http_token()));
    browser.shows("link", "live");
    browser.shows("schedules", "1 of 1 check failing");
    browser.shows("counts", "1 schedule failing");
    browser.until("a button for more jobs", "!document.getElementById('jobs-more').hidden");
    let rows = "document.querySelectorAll('#jobs tbody tr').length";
    assert_eq!(browser.run(&format!("return {rows}")), json!(15));
    browser.click("#jobs-more");
    browser.until("all of them", &format!("{rows} > 15"));
    browser.shows("jobs-more", "Show 15");
    assert_eq!(
        browser.run(
            "return [...document.querySelectorAll('#nodes tbody tr, #schedules tbody tr, #jobs tbody tr, #workers tbody tr, #terms tbody tr, #events li:not(.gap)')]
             .filter((row) => !/\\d\\d:\\d\\d:\\d\\d [A-Z]/.test(row.querySelector('time')?.innerText)).map((row) => row.innerText)"
        ),
        json!([]),
        "every row has a time, and every time its zone"
    );

    // By the keyboard alone: from what is wrong to the job, and a second try. What is redrawn meanwhile keeps the focus.
    let focus = |css: &str| browser.run(&format!("document.querySelector(\"{css}\").focus()"));
    focus("#counts [href='#jobs-dead']");
    browser.press("Enter");
    browser.until("the choice", "document.querySelector('[data-which=dead]').ariaPressed === 'true'");
    focus("#queues [href='#jobs-dead?queue=mail']");
    browser.press("Enter");
    browser.until("only what failed", &format!("{rows} === 1"));
    focus("#jobs [href='#job/mail-1']");
    browser.press("Enter");
    browser.shows("job-state", "failed");
    browser.shows("job-facts", "1 of 1");
    assert_eq!(browser.run("return document.activeElement.id"), json!("job-id"));
    open_to_all(&browser);
    browser.picture("dashboard-job");
    focus("#job-acts button");
    browser.press("Enter");
    browser.until("a question, and the way out first", "document.activeElement.id === 'ask-no'");
    open_to_all(&browser);
    browser.press("Escape");
    browser.until("the button again", "document.activeElement.parentElement.id === 'job-acts'");
    browser.press("Enter");
    browser.press("Tab");
    browser.press("Enter");
    browser.shows("note", "asked to try job mail-1 again");
    browser.shows("job-facts", "2 of 2");
    browser.shows("job-state", "failed");

    browser.run("location.hash = ''");
    browser.click("[data-act='pause-queue mail']");
    browser.shows("ask-title", "Pause queue mail?");
    browser.click("#ask-yes");
    browser.shows("queues", "paused");
    browser.click("[data-act='resume-queue mail']");
    browser.click("#ask-yes");
    browser.until("no pause", "!document.getElementById('queues').innerText.includes('paused')");

    browser.shows("events", "became_leader");
    assert_eq!(browser.run("return document.getElementById('events').innerText.includes('renewed')"), false);
    let choose = |level: &str| {
        browser.run(&format!(
            "const box = document.getElementById('filter-level'); box.value = '{level}'; box.dispatchEvent(new Event('input', {{bubbles: true}}))"
        ))
    };
    choose("0");
    browser.shows("events", "lease_renewed");
    choose("1");
    browser.until("renewals gone", "!document.getElementById('events').innerText.includes('renewed')");
    browser.shows("events", "became_leader");
    browser.picture("dashboard-jobs");
    innocent(&browser, &[]);
    cluster.finish();
}

#[test]
#[ignore = "needs chromium, and playwright-core from npm"]
fn a_busy_cluster_shows_what_runs_and_what_waits_for_how_long() {
    let sandbox = Sandbox::new();
    let store = sandbox.sqlite("t.db");
    let submit = |queue: &str, id: &str, seconds: &str| {
        let job = ["job", "submit", "--id", id, "--queue", queue, "--", "/bin/sleep", seconds];
        sandbox.tenure_on(&store, &job).assert_code(0);
    };
    let mut cluster = nodes(&sandbox, &store, STEADY);
    let (a, page) = start(&mut cluster, "pod-a", "127.0.0.1:0", &[]);
    cluster.event(0, a, "became_leader");
    start(&mut cluster, "pod-b", "127.0.0.1:0", &[]);
    for agent in ["agent-1", "agent-2"] {
        cluster.start_agent(&["--id", agent, "--allow-command", "/bin/sleep *", "--slots", "2"]);
    }
    // Four run for longer than this test; the others wait.
    (0..4).for_each(|number| submit("reports", &format!("report-{number}"), "300"));
    (0..12).for_each(|number| submit("mail", &format!("mail-{number}"), "1"));
    let browser = Browser::start(1280, 1500);
    browser.open(&page);
    browser.shows("counts", "4 jobs running");
    browser.shows("counts", "12 jobs waiting");
    browser.shows("jobs", "every worker that could run it is busy");
    browser.until(
        "how many run and wait in each queue",
        "[...document.querySelectorAll('#queues tbody tr')].map((row) => row.innerText.replace(/\\s+/g, ' ')).join('|').match(/mail.* 12 .*\\|.*reports/)",
    );
    open_to_all(&browser);
    browser.picture("dashboard-busy");
    innocent(&browser, &[]);
    cluster.finish();
}
