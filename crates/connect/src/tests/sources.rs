use std::{fs, path::Path};

use rstest::rstest;
use testkit::CapturedLog;

use super::kubeconfig;
use crate::{ClusterRef, NodeAccess, SecretName, Source, WorkloadSource};

fn file(text: &str) -> (tempfile::TempDir, Source) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    fs::write(&path, text).unwrap();
    (dir, Source::File(path))
}

/// No API server is there: no request is made for a client.
#[rstest]
#[case::a_token("{server: 'https://127.0.0.1:1'}", "{token: abc}")]
#[case::a_file_beside_it("{server: 'https://127.0.0.1:1'}", "{tokenFile: token}")]
#[case::a_proxy("{server: 'https://127.0.0.1:1', proxy-url: 'http://user:hunter2@p:3128'}", "{}")]
#[tokio::test]
async fn a_file_may_name_files_and_a_proxy_and_needs_no_request(#[case] cluster: &str, #[case] user: &str) {
    let (dir, source) = file(&kubeconfig(cluster, user));
    fs::write(dir.path().join("token"), "abc").unwrap();
    source.connect().await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_not_verified_is_named_once_with_the_file() {
    let cluster = |more: &str| kubeconfig(&format!("{{server: 'https://user:hunter2@a.example:6443'{more}}}"), "{}");
    let (dir, source) = file(&cluster(", insecure-skip-tls-verify: true"));
    let path = dir.path().join("config");
    let (log, _guard) = CapturedLog::begin();
    let access = source.access().await.unwrap();
    let said = log.take();
    let named =
        format!("kubeconfig file {}: the certificate of the API server a.example isn't verified", path.display());
    assert!(said.contains(&named) && !said.contains("hunter2"), "{said}");
    // Reading the same again says nothing, and neither does a configuration that verifies.
    source.load().await.unwrap();
    fs::write(path, cluster("")).unwrap();
    source.connect().await.unwrap();
    assert_eq!(log.take(), "");
    drop(access);
}

#[tokio::test]
async fn a_missing_file_is_named_with_the_remedy() {
    let error = Source::File("/nonexistent/config".into()).connect().await.err().expect("an error");
    let message = error.to_string();
    assert!(message.starts_with("kubeconfig file /nonexistent/config: can't read it: No such file"), "{message}");
    assert!(message.ends_with("give the path of a file that this program may read"), "{message}");
}

#[rstest]
#[case::not_yaml("users: [{name: a, user: {token: hunter2", "not a kubeconfig in YAML (line ")]
#[case::empty("", "it has no current-context")]
#[case::no_context("current-context: x", "its current-context \"x\" is not among its contexts")]
#[case::no_server(&kubeconfig("{}", "{token: hunter2}"), "its cluster has no server")]
#[case::no_address(&kubeconfig("{server: 'https://a b'}", "{token: hunter2}"), "cluster url")]
#[case::missing_authority(&kubeconfig("{server: 'https://a', certificate-authority: /nonexistent/ca}", "{}"), "/nonexistent/ca")]
#[case::proxy(&kubeconfig("{server: 'https://a', proxy-url: 'socks5://user:hunter2@p'}", "{}"), "proxy-url: it isn't the URL of a proxy")]
#[case::token_file_missing(&kubeconfig("{server: 'https://a'}", "{tokenFile: /nonexistent/token}"), "/nonexistent/token")]
#[tokio::test]
async fn a_broken_file_is_named_with_what_is_wrong(#[case] text: &str, #[case] part: &str) {
    let (dir, source) = file(text);
    let error = source.connect().await.err().expect("an error");
    let message = error.to_string();
    let path = dir.path().join("config");
    assert!(message.starts_with(&format!("kubeconfig file {}: ", Path::display(&path))), "{message}");
    assert!(message.contains(part), "{message}");
    assert!(!format!("{message} {error:?}").contains("hunter2"), "{error:?}");
}

#[tokio::test]
async fn a_context_replaces_the_current_one() {
    let two = "current-context: a
contexts: [{name: a, context: {cluster: a}}, {name: b, context: {cluster: b, namespace: of-b}}]
clusters: [{name: a, cluster: {}}, {name: b, cluster: {server: 'https://b'}}]
";
    let (dir, current) = file(two);
    assert!(current.connect().await.is_err(), "the current context has no server");
    let path = dir.path().join("config");
    let of = |name: &str| Source::Context { file: Some(path.clone()), name: name.to_owned() };
    let clients = of("b").connect().await.unwrap();
    assert_eq!(clients.writes.default_namespace(), "of-b");
    let message = of("c").connect().await.err().expect("an error").to_string();
    let expected = format!("kubeconfig file {}: it has no context \"c\": ", path.display());
    assert!(message.starts_with(&expected) && message.ends_with("there are: a, b"), "{message}");
}

#[test]
fn only_a_secret_needs_a_request() {
    let secret = NodeAccess::default().of(&super::prod());
    assert!(!secret.connects_at_once());
    assert!(WorkloadSource::Management.connects_at_once());
    assert!(WorkloadSource::Own(Source::Default).connects_at_once());
    assert_eq!(secret.to_string(), "Secret team-a/prod-kubeconfig");
    assert_eq!("none".parse::<NodeAccess>().unwrap().of(&super::prod()), WorkloadSource::None);
}

#[rstest]
#[case("{cluster}-kubeconfig", Some("Secret team-a/prod-kubeconfig"))]
#[case("nodes.{cluster}", Some("Secret team-a/nodes.prod"))]
#[case("{cluster}", Some("Secret team-a/prod"))]
#[case::the_same_for_all_clusters("kubeconfig", None)]
#[case::twice("{cluster}-{cluster}", None)]
#[case::another_namespace("team-b/{cluster}-kubeconfig", None)]
#[case::a_path("../../team-b/secrets/{cluster}", None)]
#[case::a_query("{cluster}?x", None)]
#[case::upper_case("{cluster}-Kubeconfig", None)]
#[case::an_end("{cluster}-", None)]
#[case::empty("", None)]
fn a_secret_is_named_by_its_cluster_and_lies_in_its_namespace(#[case] text: &str, #[case] expected: Option<&str>) {
    let name = text.parse::<SecretName>().ok();
    assert_eq!(name.as_ref().map(ToString::to_string).as_deref(), expected.map(|_| text));
    let cluster: ClusterRef = "team-a/prod".parse().unwrap();
    assert_eq!(name.map(|name| name.of(&cluster).to_string()).as_deref(), expected);
}
