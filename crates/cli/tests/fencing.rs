//! The guide about resources that refuse a former leader: its receivers are started as they stand there.
#![cfg(target_os = "linux")]

use crate::common::Sandbox;
use crate::epoch_requests::EPOCH_REQUESTS;
use crate::page::{Terminal, sections};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

const FENCING: &str = include_str!("../../../docs/guide/fencing.md");

/// Status and body.
fn ask(address: &str, epochs: &[&str]) -> (u16, String) {
    let epochs: String = epochs.iter().map(|epoch| format!("Tenure-Epoch: {epoch}\r\n")).collect();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "PUT / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{epochs}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    (head.split(' ').nth(1).expect("a status").parse().unwrap(), body.to_owned())
}

fn a_receiver_refuses(heading: &str, programs: &[&str]) {
    let is_there = |program: &&&str| Command::new(program).arg("--version").output().is_ok();
    if let Some(missing) = programs.iter().find(|program| !is_there(program)) {
        eprintln!("NOT RUN: {missing} is not there, so `{heading}` was not tried");
        return;
    }
    let (_, text) = sections(FENCING).into_iter().find(|(found, _)| *found == heading).expect("a section");
    let sandbox = Sandbox::new();
    // A port that was free a moment ago: the usual one may be in use.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut terminal = Terminal::open(&sandbox, &[]);
    terminal.play(&sandbox, &text.replace("8080", &port));
    let address = format!("127.0.0.1:{port}");
    for (epochs, status, newest) in EPOCH_REQUESTS {
        let (answered, body) = ask(&address, epochs);
        assert_eq!(answered, status, "{epochs:?}: {body}");
        if status != 200 {
            // Node's answer comes in chunks.
            let body = &body[body.find('{').unwrap()..=body.rfind('}').unwrap()];
            let problem: Value = serde_json::from_str(body).unwrap();
            let stale: u64 = if status == 412 { epochs[0].parse().unwrap() } else { 0 };
            assert_eq!((&problem["epoch"], &problem["newest"]), (&Value::from(stale), &Value::from(newest)));
        }
    }
}

#[test]
fn fr3_ten_lines_of_python_refuse_a_former_leader() {
    a_receiver_refuses("HTTP: Python", &["python3", "curl"]);
}

#[test]
fn fr3_ten_lines_of_javascript_refuse_a_former_leader() {
    a_receiver_refuses("HTTP: JavaScript", &["node", "curl"]);
}
