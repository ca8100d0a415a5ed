//! Tests of the running program's log: it never holds a secret, and its level can be changed.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use sandbox::{Sandbox, SandboxOptions, faults::Fault};
use serde_json::{Value, json};
use testkit::{Certificate, Program};

use super::*;

/// Starts the program with nothing else in its environment.
fn start(arguments: &[String], variables: &[(&str, &str)]) -> Program {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capi-autoscaler-provider"));
    Program::start(command.args(arguments).env_clear().envs(variables.iter().copied()).stdout(Stdio::null()))
}

fn workers() -> Vec<Value> {
    let metadata = |name: &str| json!({ "name": name, "namespace": "team-a" });
    let cluster = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": metadata("prod"), "spec": {},
    });
    let workers = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "metadata": metadata("workers"),
        "spec": {
            "clusterName": "prod", "replicas": 1, "template": { "spec": { "clusterName": "prod" } },
        },
    });
    vec![cluster, workers]
}

/// Writes a copy of a kubeconfig file whose user has this token.
fn with_token(kubeconfig: &Path, token: &str, folder: &Path) -> PathBuf {
    let mut config: Value = serde_yaml::from_str(&fs::read_to_string(kubeconfig).unwrap()).unwrap();
    config["users"] = json!([{ "name": "operator", "user": { "token": token } }]);
    config["contexts"][0]["context"]["user"] = json!("operator");
    let path = folder.join("with-token.kubeconfig");
    fs::write(&path, serde_yaml::to_string(&config).unwrap()).unwrap();
    path
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
    let sandbox = Sandbox::start(SandboxOptions { manifests: workers(), ..SandboxOptions::default() }).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = with_token(&sandbox.management_kubeconfig(), "t0ken-0f-the-kubeconfig", folder.path());
    // The library quotes an answer that it can't parse, and this one is to a request for credentials.
    let garbled = json!({ "kind": "Secret", "data": ["dG9rZW4-0f-a-secret"] });
    let faults = sandbox.management().faults();
    let quoted = faults.add(Fault::answer(200, &garbled).on_path("/secrets/").unwrap().times(1));
    let refused = faults.add(Fault::refuse(401, "Unauthorized", "who are you?").on_path("/machines").unwrap().times(3));
    let Certificate { certificate, key } = Certificate::of("localhost");
    let (certificate_file, key_file) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    fs::write(&certificate_file, certificate).unwrap();
    fs::write(&key_file, &key).unwrap();
    let arguments = [
        "serve --cluster=team-a/prod --log-level=trace --log-format=json --listen=127.0.0.1:0 --http-listen=127.0.0.1:0 \
         --admin-listen=none"
            .to_owned(),
        format!("--management-kubeconfig={}", kubeconfig.display()),
        format!("--tls-cert-file={} --tls-key-file={}", certificate_file.display(), key_file.display()),
    ];
    let arguments: Vec<_> = arguments.iter().flat_map(|some| some.split_whitespace()).map(ToOwned::to_owned).collect();
    let variables = [
        ("HTTPS_PROXY", "http://me:pr0xy-passw0rd@127.0.0.1:1"),
        ("NO_PROXY", "127.0.0.1"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer 0tlp-t0ken"),
    ];
    let server = start(&arguments, &variables);
    server.line("ready: all core kinds are in sync").await;
    let said = server.log();
    assert!(quoted.hits() > 0 && refused.hits() > 0, "what could have been quoted was: {said}");
    assert!(said.contains("\"target\":\"hyper_util::client"), "libraries are logged too: {said}");
    let key_line = key.lines().nth(1).unwrap();
    let secrets =
        ["t0ken-0f-the-kubeconfig", "dG9rZW4-0f-a-secret", key_line, "pr0xy-passw0rd", "0tlp-t0ken", "PRIVATE KEY"];
    assert_holds_none(&said, &secrets);
    drop(server);
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_of_watch_is_logged_at_any_level() {
    let sandbox = Sandbox::start(SandboxOptions { manifests: workers(), ..SandboxOptions::default() }).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = with_token(&sandbox.management_kubeconfig(), "t0ken-0f-the-kubeconfig", folder.path());
    let arguments = [
        "watch machinedeployments -n team-a --show-initial --log-level=trace --log-format=json --webhook=env:HOOK"
            .to_owned(),
        format!("--allow-http --management-kubeconfig={}", kubeconfig.display()),
    ];
    let arguments: Vec<_> = arguments.iter().flat_map(|some| some.split_whitespace()).map(ToOwned::to_owned).collect();
    // No server listens there: a failed delivery is logged.
    let hook = [("HOOK", "http://127.0.0.1:1/services/T0P-S3CR3T")];
    let watch = start(&arguments, &hook);
    watch.line("informer synced").await;
    let resource = sandbox::api::Resource::new("cluster.x-k8s.io", "v1beta2", "machinedeployments");
    let (main, merge) = (sandbox::api::Subresource::Main, sandbox::api::PatchKind::Merge);
    let change = json!({ "metadata": { "labels": { "changed": "true" } } });
    sandbox.management().api().patch(&resource, "team-a", "workers", merge, main, change).unwrap();
    watch.line("a notification can't be delivered").await;
    assert_holds_none(&watch.log(), &["t0ken-0f-the-kubeconfig", "T0P-S3CR3T"]);
    drop(watch);
    sandbox.stop().await;
}

fn log_level(server: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_capi-autoscaler-provider"))
        .args(["log-level", "--server", server])
        .args(arguments)
        .env_clear()
        .output()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_level_command_shows_and_changes_the_filter_of_a_running_server() {
    let sandbox = Sandbox::start(SandboxOptions { manifests: workers(), ..SandboxOptions::default() }).await.unwrap();
    let arguments =
        "serve --cluster=team-a/prod --listen=127.0.0.1:0 --http-listen=127.0.0.1:0 --admin-listen=127.0.0.1:0";
    let mut arguments: Vec<_> = arguments.split_whitespace().map(ToOwned::to_owned).collect();
    arguments.push(format!("--management-kubeconfig={}", sandbox.management_kubeconfig().display()));
    // Without a flag for the format and without a terminal it is JSON.
    let server = start(&arguments, &[]);
    let admin = server.address("serving the status page and the debug state").await;
    for resource in ["machines", "nodes"] {
        let line = format!("\"resource\":\"{resource}");
        server.line("ready: all core kinds").await;
        assert!(server.log().lines().any(|it| it.contains(&line) && it.contains("the first list is complete")));
    }
    let shown = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();

    assert_eq!(shown(&log_level(&admin, &[])), "info\n");
    let changed = shown(&log_level(&admin, &["info,capi_autoscaler_provider=debug"]));
    assert!(changed.starts_with("info,capi_autoscaler_provider=debug (until the next start"), "{changed}");
    let line = server.line("the log level changes").await;
    assert_eq!(
        (line["from"].as_str(), line["to"].as_str()),
        (Some("info"), Some("info,capi_autoscaler_provider=debug"))
    );
    assert_eq!(shown(&log_level(&admin, &["info"])), "info\n");

    let refused = log_level(&admin, &["loud"]);
    assert_fails(&refused, 1, "the log level stays as it is: \"loud\" is no level: use off, error, warn");
    drop(server);
    sandbox.stop().await;
}
