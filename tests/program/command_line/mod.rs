//! Tests of the binary as a shell runs it: exit codes, messages on standard error, and the environment variables of its
//! flags.

mod check;
mod generated;
mod logs;

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Command, Output, Stdio},
};

fn serve(variables: &[(&str, &str)], flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_capi-autoscaler-provider"))
        .arg("serve")
        .args(flags)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn assert_fails(output: &Output, code: i32, part: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(part), "{said}");
    assert!(output.stdout.is_empty());
}

/// What each flag and variable may be is tested where they are read.
#[test]
fn a_wrong_start_ends_with_its_code_and_what_to_do() {
    /// Variables and flags.
    type Start<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);
    let dir = tempfile::tempdir().unwrap();
    let prices = dir.path().join("prices.yaml");
    fs::write(&prices, "instanceTypes:\n  m5.large: -1\n").unwrap();
    let (prices, held) = (prices.to_str().unwrap(), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let listen = format!("--listen={}", held.local_addr().unwrap());
    let served = ["--all-clusters", "--listen=127.0.0.1:0", "--http-listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"];
    let (here, nowhere) = (served.as_slice(), "--management-kubeconfig=/nonexistent/config");
    let no_kubeconfig = [here, &[nowhere]].concat();
    let calls: [(Start<'_>, i32, &str); 8] = [
        ((&[], &[]), 2, "error: no scope is chosen"),
        ((&[("CAPI_AUTOSCALER_ALL_CLUSTERS", "flase")], &[]), 2, "use true or false"),
        ((&[("CAPI_AUTOSCALER_CLUSTER", "a/b")], &["--all-clusters"]), 2, "exclude each other"),
        ((&[("CAPI_GROUP", "x.y")], &["--all-clusters", "--capi-group", "y"]), 2, "\"y\" can't be used"),
        ((&[], &["--all-clusters", &listen]), 1, "choose another address with --listen"),
        ((&[], &no_kubeconfig), 1, "kubeconfig file /nonexistent/config: can't read it: No such file"),
        ((&[("HOME", "/nonexistent")], here), 1, "management cluster: no kubeconfig given, and none found: "),
        ((&[("CAPI_AUTOSCALER_PRICES", prices)], here), 1, "prices.yaml: instanceTypes.m5.large: -1: a price must"),
    ];
    for ((variables, flags), code, part) in calls {
        assert_fails(&serve(variables, flags), code, part);
    }
}

#[test]
fn a_json_log_is_json_to_the_last_line() {
    let flags = [
        "--all-clusters",
        "--listen=127.0.0.1:0",
        "--http-listen=127.0.0.1:0",
        "--admin-listen=127.0.0.1:0",
        "--log-format=json",
    ];
    let output = serve(&[("KUBECONFIG", "/nonexistent/config")], &flags);
    let said = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<serde_json::Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = lines.last().unwrap();
    assert_eq!(last["level"], "ERROR");
    let message = last["message"].as_str().unwrap();
    assert_eq!(message.matches("No such file").count(), 1, "the cause is said once: {message}");
}

#[test]
fn with_an_api_server_that_is_down_it_starts_is_not_ready_and_ends_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("config");
    fs::write(&kubeconfig, sandbox::kubeconfig::kubeconfig("https://127.0.0.1:1")).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_capi-autoscaler-provider"))
        .args([
            "serve",
            "--all-clusters",
            "--listen=127.0.0.1:0",
            "--http-listen=127.0.0.1:0",
            "--admin-listen=127.0.0.1:0",
            "--log-format=json",
        ])
        .arg("--management-kubeconfig")
        .arg(&kubeconfig)
        .env_clear()
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut http = None;
    loop {
        let line: serde_json::Value = serde_json::from_str(&log.next().expect("it serves gRPC")).unwrap();
        match line["message"].as_str() {
            Some("serving HTTP") => http = Some(line["address"].as_str().unwrap().to_owned()),
            Some("serving gRPC") => break,
            _ => {}
        }
    }

    let mut stream = TcpStream::connect(http.unwrap()).unwrap();
    stream.write_all(b"GET /readyz?verbose HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("[-]"), "{answer}");

    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    assert!(child.wait().unwrap().success());
    let rest: Vec<_> = log.collect();
    assert!(rest.iter().any(|line| line.contains("SIGTERM")), "{rest:?}");
}

fn groups(flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capi-autoscaler-provider"));
    command.arg("groups").args(flags).env_clear();
    command
}

/// Answers each request with this code and body until the test ends.
fn server(code: u16, body: &'static str) -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            if !lines.any(|line| line.is_empty()) {
                continue;
            }
            let head = format!("HTTP/1.1 {code} .\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _ = stream.write_all((head + body).as_bytes());
        }
    });
    address
}

#[test]
fn groups_distinguishes_an_older_server_another_program_and_another_schema() {
    let cases: [(u16, &str, &str); 4] = [
        (404, "", "has no /debug/state: what answers there is an older version"),
        (200, "<html>", "is it another program?"),
        (200, "{\"schemaVersion\": 2}", "serves its state in schema version 2, and this program reads 1"),
        (
            421,
            "host \"a\" isn't\u{1b}[31m answered",
            "answered 421 Misdirected Request: host \"a\" isn't\\u{1b}[31m answered",
        ),
    ];
    for (code, body, part) in cases {
        let server = server(code, body);
        assert_fails(&groups(&["--server", &server.to_string()]).output().unwrap(), 1, part);
    }
}

fn watch(flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_capi-autoscaler-provider")).arg("watch").args(flags).env_clear().output().unwrap()
}

#[test]
fn watch_reports_a_wrong_call_in_one_line_with_exit_code_2() {
    let calls: [(&[&str], &str); 4] = [
        (&["-l", "app in x"], "error: --selector: \"app in x\" can't be used"),
        (&["--ignore", "status"], "error: --ignore: \"status\" can't be used: a path is a JSON pointer"),
        (&["-n", "Team_A"], "error: --namespace: \"Team_A\" can't be used"),
        (&["--webhook", "https://hooks.example.com/T0P-S3CR3T"], "error: --webhook: say where the URL is kept"),
    ];
    for (flags, part) in calls {
        let output = watch(flags);
        assert_fails(&output, 2, part);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.lines().count() == 1 && !said.contains("T0P"), "{said}");
    }
}
