//! A real browser, driven over ChromeDriver's own protocol.

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Nothing on a page takes longer to come about.
const PATIENCE: Duration = Duration::from_secs(60);

/// One tab of a Chromium of its own; both end with it.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _home: tempfile::TempDir,
}

impl Browser {
    /// Both programs must be there; `cargo xtask test` sees to it.
    pub fn start(width: u32, height: u32) -> Browser {
        let home = tempfile::Builder::new().prefix("tenure-browser-").tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        // A browser draws with all the processor there is; the nodes it shows come first.
        let driver = Command::new("nice")
            .args(["-n", "10", "chromedriver", "--silent"])
            .arg(format!("--port={port}"))
            .env("HOME", home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("chromedriver starts");
        let mut browser = Browser { driver, port, session: String::new(), _home: home };
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < until, "chromedriver does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        let profile = browser._home.path().join("profile");
        // A test machine has no user namespaces for a sandbox, and no business with anybody's servers.
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-quic",
            &format!("--window-size={width},{height}"),
            &format!("--user-data-dir={}", profile.display()),
        ];
        let options = json!({"args": arguments});
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let made = browser.call("POST", "/session", &wanted);
        browser.session = made["sessionId"].as_str().expect("a session").to_owned();
        browser
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut text = vec![0; length];
        reader.read_exact(&mut text).unwrap();
        let answer: Value = serde_json::from_slice(&text).unwrap();
        assert!(answer["value"]["error"].is_null(), "{method} {path}: {answer}");
        answer["value"].clone()
    }

    fn of_session(&self, method: &str, path: &str, body: &Value) -> Value {
        self.call(method, &format!("/session/{}{path}", self.session), body)
    }

    pub fn open(&self, url: &str) {
        self.of_session("POST", "/url", &json!({"url": url}));
    }

    /// What a function body returns in the page.
    pub fn run(&self, script: &str) -> Value {
        self.of_session("POST", "/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Waits until an expression of the page is true.
    pub fn until(&self, what: &str, expression: &str) {
        let until = Instant::now() + PATIENCE;
        while self.run(&format!("return Boolean({expression})")) != true {
            if Instant::now() > until {
                let page = self.run("return document.body.innerText");
                panic!(
                    "the page never showed {what}:\n{}\n{:?}",
                    page.as_str().unwrap_or(""),
                    self.complaints()
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits for a text in an element.
    pub fn shows(&self, id: &str, text: &str) {
        let (id_text, wanted) = (json!(id), json!(text));
        self.until(
            &format!("{text:?} in {id}"),
            &format!("document.getElementById({id_text}).innerText.includes({wanted})"),
        );
    }

    /// As a user's mouse does it.
    pub fn click(&self, css: &str) {
        let found = self.of_session("POST", "/element", &json!({"using": "css selector", "value": css}));
        let element = found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
        self.of_session("POST", &format!("/element/{element}/click"), &json!({}));
    }

    pub fn type_into(&self, css: &str, text: &str) {
        let found = self.of_session("POST", "/element", &json!({"using": "css selector", "value": css}));
        let element = found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
        self.of_session("POST", &format!("/element/{element}/value"), &json!({"text": text}));
    }

    /// Presses a key with whatever has the focus: `\u{E004}` is Tab, `\u{E006}` Enter, `\u{E00C}` Escape.
    pub fn press(&self, key: &str) {
        let steps = [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})];
        let keys = json!({"type": "key", "id": "keyboard", "actions": steps});
        self.of_session("POST", "/actions", &json!({"actions": [keys]}));
    }

    /// As a user has it who likes it dark, or light.
    pub fn prefers(&self, scheme: &str) {
        let feature = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        let command = json!({"cmd": "Emulation.setEmulatedMedia", "params": {"features": feature}});
        self.of_session("POST", "/goog/cdp/execute", &command);
    }

    pub fn resize(&self, width: u32, height: u32) {
        self.of_session("POST", "/window/rect", &json!({"width": width, "height": height}));
    }

    /// What axe-core finds on the page that keeps people from using it with a keyboard or a screen reader. Without axe-core
    /// nothing is looked for; `cargo xtask test` sees to it, and says so if it is missing.
    pub fn barriers(&self) -> Vec<String> {
        let Some(script) = std::env::var_os("TENURE_TEST_AXE") else {
            println!("NOT LOOKED AT: axe-core is not there (TENURE_TEST_AXE)");
            return Vec::new();
        };
        self.run(&std::fs::read_to_string(script).unwrap());
        self.run(
            "window.axeFound = null;
             axe.run(document, {resultTypes: ['violations']}).then((found) => { window.axeFound = found.violations })",
        );
        self.until("an answer of axe-core", "window.axeFound");
        let found = self.run(
            "return window.axeFound.map((one) => `${one.id}: ${one.help}: ${one.nodes.map((node) => node.html).join(' ')}`)",
        );
        let text = |one: &Value| one.as_str().unwrap_or("").to_owned();
        found.as_array().into_iter().flatten().map(text).collect()
    }

    /// What the browser complains about: scripts that fail, rules of the page that are broken.
    pub fn complaints(&self) -> Vec<String> {
        let log = self.of_session("POST", "/se/log", &json!({"type": "browser"}));
        let text = |entry: &Value| entry["message"].as_str().unwrap_or("").to_owned();
        log.as_array().into_iter().flatten().map(text).collect()
    }

    /// Kept as the test's output, to be looked at, in light and in dark.
    pub fn picture(&self, name: &str) {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../screenshots");
        std::fs::create_dir_all(&folder).unwrap();
        for (scheme, end) in [("dark", "-dark"), ("light", "")] {
            self.prefers(scheme);
            let encoded = self.of_session("GET", "/screenshot", &Value::Null);
            let path = folder.join(format!("{name}{end}.png"));
            std::fs::write(path, decode(encoded.as_str().unwrap())).unwrap();
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            self.of_session("DELETE", "", &Value::Null);
        }
        // The browser is the driver's child, and must not outlive it.
        let _ = kill_process_group(Pid::from_child(&self.driver), Signal::KILL);
        let _ = self.driver.wait();
    }
}

/// Base64, as the driver sends pictures.
fn decode(text: &str) -> Vec<u8> {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut out, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for six in text.bytes().filter_map(value) {
        (bits, held) = ((bits << 6 | u32::from(six)) & 0xFF_FFFF, held + 6);
        if held >= 8 {
            held -= 8;
            out.push((bits >> held & 0xFF) as u8);
        }
    }
    out
}
