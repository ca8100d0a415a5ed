//! Tests of the binary as a shell runs it: exit codes, messages on standard error, the environment variables of its
//! flags, its log, and the manual pages and completions that it writes.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    process::{Command, Output, Stdio},
};

use capi_autoscaler_provider::cli::Cli;
use clap::CommandFactory as _;
use rstest::rstest;
use sandbox::{
    Sandbox, SandboxOptions,
    api::{PatchKind, Resource, Subresource},
    faults::Fault,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{Certificate, Program, get};

use crate::world::{cluster, deployment};

/// The flags of a server on free ports.
const PORTS: [&str; 3] = ["--listen=127.0.0.1:0", "--http-listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"];

/// Returns the command with nothing else in its environment.
fn command(arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capi-autoscaler-provider"));
    command.args(arguments).env_clear().envs(variables.iter().copied());
    command
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
    let here = [&["--all-clusters"], &PORTS[..]].concat();
    let no_kubeconfig = [&here[..], &["--management-kubeconfig=/nonexistent/config"]].concat();
    let calls: [(Start<'_>, i32, &str); 8] = [
        ((&[], &[]), 2, "error: no scope is chosen"),
        ((&[("CAPI_AUTOSCALER_ALL_CLUSTERS", "flase")], &[]), 2, "use true or false"),
        ((&[("CAPI_AUTOSCALER_CLUSTER", "a/b")], &["--all-clusters"]), 2, "exclude each other"),
        ((&[("CAPI_GROUP", "x.y")], &["--all-clusters", "--capi-group", "y"]), 2, "\"y\" can't be used"),
        ((&[], &["--all-clusters", &listen]), 1, "choose another address with --listen"),
        ((&[], &no_kubeconfig), 1, "kubeconfig file /nonexistent/config: can't read it: No such file"),
        ((&[("HOME", "/nonexistent")], &here), 1, "management cluster: no kubeconfig given, and none found: "),
        ((&[("CAPI_AUTOSCALER_PRICES", prices)], &here), 1, "prices.yaml: instanceTypes.m5.large: -1: a price must"),
    ];
    for ((variables, flags), code, part) in calls {
        assert_fails(&command(&[&["serve"], flags].concat(), variables).output().unwrap(), code, part);
    }
}

#[test]
fn a_json_log_is_json_to_the_last_line() {
    let flags = [&["serve", "--all-clusters", "--log-format=json"], &PORTS[..]].concat();
    let output = command(&flags, &[("KUBECONFIG", "/nonexistent/config")]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = lines.last().unwrap();
    assert_eq!(last["level"], "ERROR");
    let message = last["message"].as_str().unwrap();
    assert_eq!(message.matches("No such file").count(), 1, "the cause is said once: {message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_an_api_server_that_is_down_it_starts_is_not_ready_and_ends_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("config");
    fs::write(&kubeconfig, sandbox::kubeconfig::kubeconfig("https://127.0.0.1:1")).unwrap();
    let flags = [&["serve", "--all-clusters", "--management-kubeconfig", kubeconfig.to_str().unwrap()], &PORTS[..]];
    // Without a flag for the format and without a terminal, the log is JSON.
    let server = Program::start(&mut command(&flags.concat(), &[]));
    let http = server.address("serving HTTP").await;
    server.line("serving gRPC").await;
    let (status, answer) = get(&http, "/readyz?verbose").await;
    assert!(status == 503 && answer.contains("[-]"), "{answer}");
    server.process().signal("TERM");
    assert_eq!(server.line("asked to end").await["signal"], "SIGTERM");
    assert!(server.wait().success());
}

/// Answers each request with this code and body until the test ends.
fn server(code: u16, body: &'static str) -> SocketAddr {
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
        let server = server(code, body).to_string();
        assert_fails(&command(&["groups", "--server", &server], &[]).output().unwrap(), 1, part);
    }
}

/// A sandbox with a group, whose kubeconfig has a token.
struct Scene {
    sandbox: Sandbox,
    folder: TempDir,
    kubeconfig: String,
}

const TOKEN: &str = "t0ken-0f-the-kubeconfig";

impl Scene {
    async fn start() -> Self {
        let manifests = vec![cluster(), deployment("workers", 1, json!({}))];
        let sandbox = Sandbox::start(SandboxOptions { manifests, ..SandboxOptions::default() }).await.unwrap();
        let text = fs::read_to_string(sandbox.management_kubeconfig()).unwrap();
        let mut config: Value = serde_yaml::from_str(&text).unwrap();
        config["users"] = json!([{ "name": "operator", "user": { "token": TOKEN } }]);
        config["contexts"][0]["context"]["user"] = json!("operator");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("with-token.kubeconfig");
        fs::write(&path, serde_yaml::to_string(&config).unwrap()).unwrap();
        Self { sandbox, folder, kubeconfig: format!("--management-kubeconfig={}", path.display()) }
    }

    /// Starts a command with everything in its log.
    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Program {
        let all = ["--log-level=trace", "--log-format=json", &self.kubeconfig];
        Program::start(command(&[arguments, &all].concat(), variables).stdout(Stdio::null()))
    }
}

/// Asserts that no line holds any of the secrets.
fn assert_holds_none(said: &str, secrets: &[&str]) {
    for line in said.lines() {
        for secret in secrets {
            assert!(!line.contains(secret), "{secret} stands in {line}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_of_the_server_is_logged_at_any_level() {
    let scene = Scene::start().await;
    // The library quotes an answer that it can't parse, and this one is to a request for credentials.
    let garbled = json!({ "kind": "Secret", "data": ["dG9rZW4-0f-a-secret"] });
    let faults = scene.sandbox.management().faults();
    let quoted = faults.add(Fault::answer(200, &garbled).on_path("/secrets/").unwrap().times(1));
    let refused = faults.add(Fault::refuse(401, "Unauthorized", "who are you?").on_path("/machines").unwrap().times(3));
    let Certificate { certificate, key } = Certificate::of("localhost");
    let [certificate_flag, key_flag] = [("cert", &certificate), ("key", &key)].map(|(name, text)| {
        let path = scene.folder.path().join(name);
        fs::write(&path, text).unwrap();
        format!("--tls-{name}-file={}", path.display())
    });
    let variables = [
        ("HTTPS_PROXY", "http://me:pr0xy-passw0rd@127.0.0.1:1"),
        ("NO_PROXY", "127.0.0.1"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer 0tlp-t0ken"),
    ];
    let flags = [&["serve", "--cluster=team-a/prod", &certificate_flag, &key_flag], &PORTS[..]].concat();
    let server = scene.run(&flags, &variables);
    server.line("ready: all core kinds are in sync").await;
    let said = server.log();
    assert!(quoted.hits() > 0 && refused.hits() > 0, "what could have been quoted was: {said}");
    assert!(said.contains("\"target\":\"hyper_util::client"), "libraries are logged too: {said}");
    let key_line = key.lines().nth(1).unwrap();
    assert_holds_none(&said, &[TOKEN, "dG9rZW4-0f-a-secret", key_line, "pr0xy-passw0rd", "0tlp-t0ken", "PRIVATE KEY"]);
    drop(server);
    scene.sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_of_watch_is_logged_at_any_level() {
    let scene = Scene::start().await;
    let flags = ["watch", "machinedeployments", "-nteam-a", "--show-initial", "--webhook=env:HOOK", "--allow-http"];
    // No server listens there: a failed delivery is logged.
    let watch = scene.run(&flags, &[("HOOK", "http://127.0.0.1:1/services/T0P-S3CR3T")]);
    watch.line("informer synced").await;
    let resource = Resource::new("cluster.x-k8s.io", "v1beta2", "machinedeployments");
    let change = json!({ "metadata": { "labels": { "changed": "true" } } });
    let api = scene.sandbox.management().api();
    api.patch(&resource, "team-a", "workers", PatchKind::Merge, Subresource::Main, change).unwrap();
    watch.line("a notification can't be delivered").await;
    assert_holds_none(&watch.log(), &[TOKEN, "T0P-S3CR3T"]);
    drop(watch);
    scene.sandbox.stop().await;
}

/// A variable in the builder's environment, which must not appear in what is generated.
const BUILDERS: [(&str, &str); 1] = [("CAPI_AUTOSCALER_CLUSTER", "secret/cluster")];

fn subcommands() -> Vec<String> {
    Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

#[rstest]
#[case::bash("bash", "complete -F")]
#[case::zsh("zsh", "#compdef capi-autoscaler-provider")]
#[case::fish("fish", "complete -c capi-autoscaler-provider")]
#[case::powershell("powershell", "Register-ArgumentCompleter")]
fn completions_know_every_command(#[case] shell: &str, #[case] part: &str) {
    let output = command(&["completions", shell], &BUILDERS).output().unwrap();
    let script = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && script.contains(part), "{script}");
    for command in subcommands() {
        assert!(script.contains(&command), "{command}");
    }
    assert!(script.contains("node-group-auto-discovery") && !script.contains("secret/cluster"));
}

#[test]
fn each_command_has_a_manual_page_with_its_flags() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("new/man1");
    assert!(command(&["man", pages.to_str().unwrap()], &BUILDERS).status().unwrap().success());
    let read = |name: &str| fs::read_to_string(pages.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let overview = read("capi-autoscaler-provider.1");
    for command in subcommands() {
        assert!(overview.contains(&command.replace('-', "\\-")), "{command}");
        let page = read(&format!("capi-autoscaler-provider-{command}.1"));
        assert!(page.contains(".SH SYNOPSIS") && !page.contains("secret/cluster"), "{command}");
    }
    let serve = read("capi-autoscaler-provider-serve.1");
    assert!(serve.contains("max\\-staleness") && serve.contains("CAPI_AUTOSCALER_MAX_STALENESS"), "{serve}");
}
