use k8s_openapi::ByteString;
use kube::config::Kubeconfig;
use rstest::rstest;
use serde_json::{Value, json};

use super::{answer, kubeconfig, mocked, prod, status};
use crate::{
    Clients, ClusterRef, ClusterRefError, ConnectError, Pace, SecretRef, WorkloadSource, secret::kubeconfig_of_secret,
};

const SERVER: &str = "{server: 'https://10.0.0.1:6443', certificate-authority-data: Zm9v}";
const USER: &str = "{client-certificate-data: Zm9v, client-key-data: Zm9v}";

fn secret(key: &str, value: &[u8]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
        "metadata": {"name": "prod-kubeconfig", "namespace": "team-a"},
        "data": {key: ByteString(value.to_owned())},
    })
}

async fn read(code: u16, body: Value) -> Result<Kubeconfig, ConnectError> {
    let (client, mut handle) = mocked();
    let secret = SecretRef::of(&prod());
    let (read, path) = tokio::join!(kubeconfig_of_secret(&client, &secret), answer(&mut handle, code, &body));
    assert_eq!(path, "/api/v1/namespaces/team-a/secrets/prod-kubeconfig");
    read
}

async fn read_value(value: &str) -> Result<Kubeconfig, ConnectError> {
    read(200, secret("value", value.as_bytes())).await
}

#[tokio::test]
async fn the_kubeconfig_for_nodes_of_the_example_is_read() {
    let example = include_str!("../../../../examples/fleet/nodes-secret.yaml");
    let example: Value = serde_yaml::from_str(example).unwrap();
    let read = read_value(example["stringData"]["value"].as_str().unwrap()).await.unwrap();
    assert_eq!(read.current_context.as_deref(), Some("nodes"));
    assert!(read.auth_infos[0].auth_info.as_ref().unwrap().token.is_some());
}

#[rstest]
#[case::missing(
    404,
    status(404, "NotFound", "secrets \"prod-kubeconfig\" not found"),
    "not found: check the Cluster's"
)]
#[case::forbidden(
    403,
    status(403, "Forbidden", "User \"provider\" cannot get resource \"secrets\""),
    "forbidden: User \"provider\" cannot get resource \"secrets\": grant this program's user the verb get"
)]
#[case::server_error(
    500,
    status(500, "InternalError", "etcd is away"),
    "can't read it: etcd is away (500 InternalError)"
)]
#[case::without_the_key(200, secret("kubeconfig", b"x"), "has no key \"value\"")]
#[case::without_data(200, json!({"metadata": {"name": "prod-kubeconfig"}}), "has no key \"value\"")]
#[case::brackets(200, secret("value", "[".repeat(1_000_000).as_bytes()), "more than 1000 lists and objects in brackets")]
#[case::aliases(200, secret("value", b"a: &a [1, 1]\nb: [*a, *a]\n"), "has YAML aliases")]
#[case::not_text(200, secret("value", b"\xff\xfe\x00"), "not UTF-8")]
#[tokio::test]
async fn an_unusable_kubeconfig_secret_is_an_error_that_names_the_secret_and_the_cause(
    #[case] code: u16,
    #[case] body: Value,
    #[case] part: &str,
) {
    let message = read(code, body).await.unwrap_err().to_string();
    assert!(message.starts_with("Secret team-a/prod-kubeconfig: "), "{message}");
    assert!(message.contains(part), "{message}");
}

#[rstest]
#[case::exec(
    "{exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}}",
    "users[admin].user.exec",
    "run a program"
)]
#[case::auth_provider("{auth-provider: {name: gcp}}", "users[admin].user.auth-provider", "run a program")]
#[case::token_file("{tokenFile: /etc/shadow}", "users[admin].user.tokenFile", "read a file")]
#[case::certificate_file("{client-certificate: /etc/a.crt}", "users[admin].user.client-certificate", "read a file")]
#[case::key_file("{client-key: /etc/a.key}", "users[admin].user.client-key", "read a file")]
#[case::key_file_beside_inline(
    "{client-key: /etc/a.key, client-key-data: Zm9v}",
    "users[admin].user.client-key",
    "read a file"
)]
#[case::misspelled("{token_file: /etc/a}", "users[admin].user.token_file", "not known here")]
#[tokio::test]
async fn a_user_that_runs_or_reads_anything_is_refused(#[case] user: &str, #[case] field: &str, #[case] why: &str) {
    let message = read_value(&kubeconfig(SERVER, user)).await.unwrap_err().to_string();
    assert!(message.starts_with("Secret team-a/prod-kubeconfig: "), "{message}");
    assert!(message.contains(&format!("sets {field}, ")), "{message}");
    assert!(message.contains(why) && message.contains("name a kubeconfig file of your own"), "{message}");
    assert!(!message.contains("/etc/"), "it quotes the value: {message}");
}

#[rstest]
#[case::authority_file("{server: 'https://a', certificate-authority: /etc/ca.crt}", "certificate-authority")]
#[case::no_verification("{server: 'https://a', insecure-skip-tls-verify: true}", "insecure-skip-tls-verify")]
#[case::proxy("{server: 'https://a', proxy-url: 'http://proxy'}", "proxy-url")]
#[case::plain("{server: 'http://10.0.0.1:8080'}", "server")]
#[case::plain_name("{server: 'http://localhost.example.com'}", "server")]
#[case::no_scheme("{server: '10.0.0.1:8080'}", "server")]
#[case::unknown("{server: 'https://a', Certificate-Authority: /etc/ca.crt}", "Certificate-Authority")]
#[tokio::test]
async fn a_cluster_that_is_not_vouched_for_is_refused(#[case] cluster: &str, #[case] field: &str) {
    let message = read_value(&kubeconfig(cluster, USER)).await.unwrap_err().to_string();
    assert!(message.contains(&format!("sets clusters[prod].cluster.{field}, ")), "{message}");
}

#[rstest]
#[case::verification_stated("{server: 'https://a', insecure-skip-tls-verify: false, tls-server-name: b}")]
#[case::empty_paths("{server: 'https://a', certificate-authority: '', proxy-url: ''}")]
#[case::plain_on_loopback("{server: 'http://127.0.0.1:8080'}")]
#[case::plain_on_loopback_v6("{server: 'http://[::1]:8080'}")]
#[case::plain_on_localhost("{server: 'http://localhost:8080'}")]
#[tokio::test]
async fn a_cluster_that_harms_nobody_is_taken(#[case] cluster: &str) {
    read_value(&kubeconfig(cluster, "{token: abc}")).await.unwrap();
}

#[tokio::test]
async fn entries_that_the_context_does_not_use_are_looked_at_too() {
    let value = kubeconfig(SERVER, USER).replace("users: [", "users: [{name: other, user: {exec: {command: sh}}}, ");
    let message = read_value(&value).await.unwrap_err().to_string();
    assert!(message.contains("users[other].user.exec"), "{message}");
}

/// The parser quotes the line that it fails at, and the message must not.
#[rstest]
#[case::syntax("users: [{name: a, user: {token: hunter2")]
#[case::type_of_a_field("users: [{name: a, user: hunter2}]")]
#[case::duplicate_key("current-context: hunter2\ncurrent-context: hunter2\n")]
#[case::wrong_list("clusters: hunter2")]
#[tokio::test]
async fn a_text_that_is_no_kubeconfig_is_not_quoted(#[case] value: &str) {
    let error = read_value(value).await.unwrap_err();
    assert!(error.to_string().contains("not a kubeconfig in YAML (line "), "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
}

#[rstest]
#[case::no_server(&kubeconfig("{certificate-authority-data: Zm9v}", USER), "its cluster has no server")]
#[case::certificate_is_not_base64(&kubeconfig("{server: 'https://a', certificate-authority-data: '*'}", USER), "certificate authority")]
#[case::a_key_that_is_none(
    &kubeconfig("{server: 'https://a'}", "{client-certificate-data: aHVudGVyMg==, client-key-data: aHVudGVyMg==}"),
    "can't build a client from it"
)]
#[tokio::test]
async fn a_kubeconfig_that_leads_nowhere_is_an_error_of_the_secret(#[case] value: &str, #[case] part: &str) {
    let (client, mut handle) = mocked();
    let management = Clients { watches: client.clone(), writes: client };
    let source = WorkloadSource::Secret(SecretRef::of(&prod()));
    let body = secret("value", value.as_bytes());
    let (connected, _) = tokio::join!(source.connect(&management), answer(&mut handle, 200, &body));
    let message = connected.err().expect("an error").to_string();
    assert!(message.starts_with("Secret team-a/prod-kubeconfig: "), "{message}");
    assert!(message.contains(part), "{message}");
    assert!(!message.contains("hunter2") && !message.contains("aHVudGVyMg"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn connecting_in_time_goes_on_until_the_secret_is_there() {
    let (client, mut handle) = mocked();
    let management = Clients { watches: client.clone(), writes: client };
    let source = WorkloadSource::Secret(SecretRef::of(&prod()));
    let mut seen = Vec::new();
    let good = kubeconfig("{server: 'https://10.0.0.1:6443'}", "{token: abc}");
    let pace = Pace::default();
    let connecting = source.access_in_time(&management, &pace, |error| seen.push(error.to_string()));
    tokio::join!(connecting, async {
        answer(&mut handle, 404, &status(404, "NotFound", "gone")).await;
        answer(&mut handle, 503, &status(503, "ServiceUnavailable", "starting")).await;
        answer(&mut handle, 200, &secret("value", good.as_bytes())).await;
    });
    assert_eq!(seen.len(), 2);
    assert!(seen[0].contains("not found") && seen[1].contains("starting"), "{seen:?}");
}

#[rstest]
#[case("team-a/prod", Ok(("team-a", "prod")))]
#[case("a/prod.eu-1", Ok(("a", "prod.eu-1")))]
#[case("prod", Err(ClusterRefError::Form("prod".into())))]
#[case("/prod", Err(ClusterRefError::Form("/prod".into())))]
#[case("a/", Err(ClusterRefError::Form("a/".into())))]
#[case("a/b/c", Err(ClusterRefError::Form("a/b/c".into())))]
#[case("a.b/c", Err(ClusterRefError::Name("a.b".into())))]
#[case("a/../c", Err(ClusterRefError::Form("a/../c".into())))]
#[case("a/..", Err(ClusterRefError::Name("..".into())))]
#[case("a/B", Err(ClusterRefError::Name("B".into())))]
fn a_cluster_is_named_by_namespace_and_name(
    #[case] text: &str,
    #[case] expected: Result<(&str, &str), ClusterRefError>,
) {
    let parsed = text.parse::<ClusterRef>();
    assert_eq!(
        parsed.as_ref().map(|cluster| (cluster.namespace(), cluster.name())),
        expected.as_ref().map(|pair| *pair)
    );
}
