use std::{fs, path::Path};

use rstest::rstest;

use super::kubeconfig;
use crate::{Source, WorkloadSource};

fn file(text: &str) -> (tempfile::TempDir, Source) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    fs::write(&path, text).unwrap();
    (dir, Source::File(path))
}

#[tokio::test]
async fn a_file_may_name_other_files_beside_it() {
    let (dir, source) = file(&kubeconfig("{server: 'https://a'}", "{tokenFile: token}"));
    fs::write(dir.path().join("token"), "abc").unwrap();
    source.connect().await.unwrap();
}

#[tokio::test]
async fn a_file_may_name_a_proxy() {
    let (_dir, source) = file(&kubeconfig("{server: 'https://a', proxy-url: 'http://user:hunter2@p:3128'}", "{}"));
    source.connect().await.unwrap();
}

#[tokio::test]
async fn no_request_is_made_for_a_client() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (_dir, source) = file(&kubeconfig(&format!("{{server: 'https://{address}'}}"), "{token: abc}"));
    source.connect().await.unwrap();
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

#[test]
fn only_a_secret_needs_a_request() {
    assert!(WorkloadSource::Secret(super::prod()).needs_request());
    assert!(!WorkloadSource::Management.needs_request());
    assert!(!WorkloadSource::Own(Source::Default).needs_request());
    assert_eq!(WorkloadSource::Secret(super::prod()).to_string(), "Secret team-a/prod-kubeconfig");
}
