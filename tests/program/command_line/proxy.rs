//! Tests of the proxy in the environment, as a Pod has it.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    process::{Command, Output},
    sync::mpsc,
    thread,
    time::Duration,
};

/// Starts a proxy that refuses every request. Returns its port and the heads of the requests.
fn proxy() -> (u16, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, heads) = mpsc::channel();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                connection.read_exact(&mut byte).unwrap();
                head.extend(byte);
            }
            let _ = connection.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n");
            if sender.send(String::from_utf8(head).unwrap()).is_err() {
                return;
            }
        }
    });
    (port, heads)
}

fn check(server: &str, variables: &[(&str, &str)]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    fs::write(&path, sandbox::kubeconfig::kubeconfig(server)).unwrap();
    Command::new(env!("CARGO_BIN_EXE_capi-autoscaler-provider"))
        .args(["check", "--all-clusters", "--management-kubeconfig", path.to_str().unwrap()])
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_cluster_is_asked_for_from_the_proxy_of_the_environment() {
    let (port, heads) = proxy();
    let url = format!("http://user:hunter2@127.0.0.1:{port}");
    let output = check("https://api.cluster.example:6443", &[("HTTPS_PROXY", &url)]);
    let head = heads.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(head.starts_with("CONNECT api.cluster.example:6443 HTTP/1.1\r\n"), "{head}");
    // user:hunter2
    assert!(head.contains("Proxy-Authorization: Basic dXNlcjpodW50ZXIy\r\n"), "{head}");
    let text = printed(&output);
    assert!(text.contains(&format!("through the proxy http://127.0.0.1:{port}: tunnel error: unsuccessful")), "{text}");
    assert!(!text.contains("hunter2") && !text.contains("dXNlcjpodW50ZXIy"), "{text}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn servers_in_no_proxy_and_on_loopback_are_reached_without_the_proxy() {
    let (port, heads) = proxy();
    let url = format!("http://127.0.0.1:{port}");
    let variables = [("HTTPS_PROXY", url.as_str()), ("NO_PROXY", "10.0.0.0/8,.invalid")];
    for server in ["https://api.invalid:6443", "https://127.0.0.1:1", "https://localhost:1"] {
        let text = printed(&check(server, &variables));
        assert!(!text.contains("through the proxy"), "{server}: {text}");
    }
    assert!(heads.try_recv().is_err());
}

#[test]
fn a_proxy_that_can_not_be_used_is_named_by_its_variable() {
    let output = check("https://api.invalid", &[("https_proxy", "socks5://user:hunter2@p:1080")]);
    let text = printed(&output);
    assert!(text.contains("https_proxy: it isn't the URL of a proxy that can be used"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}
