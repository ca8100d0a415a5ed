//! Tests of the sources of URLs, of refused URLs, and that no URL is ever visible.

use rstest::rstest;
use testkit::CapturedLog;

use super::*;
use crate::notify::delivery::retry_after;

fn source(folder: &TempDir, url: &str) -> UrlSource {
    let path = folder.path().join("url");
    std::fs::write(&path, url).unwrap();
    UrlSource::File(path)
}

#[rstest]
#[case::https("https://hooks.example.com/services/T0P-S3CR3T", false, true)]
#[case::space_around(" https://hooks.example.com/T0P-S3CR3T\n", false, true)]
#[case::first_line_counts("https://hooks.example.com/T0P-S3CR3T\n# T0P-S3CR3T of team a\n", false, true)]
#[case::http("http://hooks.example.com/T0P-S3CR3T", false, false)]
#[case::http_allowed("http://hooks.example.com/T0P-S3CR3T", true, true)]
#[case::loopback("http://127.0.0.1:8080/T0P-S3CR3T", false, true)]
#[case::loopback_of_ipv6("http://[::1]:8080/T0P-S3CR3T", false, true)]
#[case::loopback_by_name("http://localhost/T0P-S3CR3T", false, true)]
#[case::almost_loopback("http://127.0.0.1.example.com/T0P-S3CR3T", false, false)]
#[case::another_scheme("ftp://hooks.example.com/T0P-S3CR3T", true, false)]
#[case::no_scheme("hooks.example.com/T0P-S3CR3T", true, false)]
#[case::no_host("/T0P-S3CR3T", true, false)]
#[case::password("https://user:T0P-S3CR3T@example.com/", true, false)]
#[case::no_url("T0P-S3CR3T T0P", true, false)]
#[case::empty("", true, false)]
fn only_https_is_posted_to_unless_it_stays_here_or_is_allowed(
    #[case] url: &str,
    #[case] allow_http: bool,
    #[case] good: bool,
) {
    let folder = tempfile::tempdir().unwrap();
    let read = source(&folder, url).read(allow_http);
    assert_eq!(read.is_ok(), good, "{read:?}");
    let shown = match &read {
        Ok(url) => format!("{url:?}"),
        Err(error) => format!("{error} {error:?}"),
    };
    assert!(!shown.contains(TOKEN), "{shown}");
}

#[rstest]
#[case::url("https://hooks.example.com/T0P-S3CR3T")]
#[case::url_as_a_file("file:https://hooks.example.com/T0P-S3CR3T")]
#[case::url_as_a_variable("env:https://hooks.example.com/T0P-S3CR3T")]
#[case::nothing("")]
#[case::plain("hook")]
#[case::no_path("file:")]
fn a_source_is_a_file_or_a_variable_and_no_url(#[case] text: &str) {
    let error = text.parse::<UrlSource>().unwrap_err();
    assert!(!format!("{error} {error:?}").contains(TOKEN), "{error}");
    assert!(error.to_string().contains("file:PATH or env:NAME"), "{error}");
}

#[tokio::test]
async fn a_source_without_a_url_ends_the_start() {
    let folder = tempfile::tempdir().unwrap();
    for (url, part) in [
        (UrlSource::File(folder.path().join("none")), "can't read it: No such file"),
        (UrlSource::Variable("A_VARIABLE_THAT_IS_NOT_SET".into()), "A_VARIABLE_THAT_IS_NOT_SET: not set"),
    ] {
        let rule = Rule::everything("one", Destination { kind: SinkKind::Slack, url, allow_http: false });
        let error = Notifier::start(vec![rule], Limits::default(), quick(), &Handle::current()).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[rstest]
#[case::seconds("7", Some(7))]
#[case::date("Thu, 01 Jan 1970 00:01:00 GMT", Some(60))]
#[case::past("Wed, 31 Dec 1969 23:59:00 GMT", Some(0))]
#[case::odd("soon", None)]
fn retry_after_is_seconds_or_a_date(#[case] text: &str, #[case] seconds: Option<u64>) {
    let headers = [(http::header::RETRY_AFTER, text.parse().unwrap())].into_iter().collect();
    assert_eq!(retry_after(&headers, Timestamp::UNIX_EPOCH), seconds.map(Duration::from_secs));
}

#[rstest]
#[case::delivered(&[])]
#[case::failing(&[Answer::Status(500), Answer::RetryAfter(429, "0")])]
#[case::refused(&[Answer::Status(404)])]
#[case::hanging(&[Answer::Never])]
#[tokio::test]
async fn no_log_line_at_any_level_shows_the_url(#[case] answers: &[Answer]) {
    let log = CapturedLog::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone()).finish();
    // On a current-thread runtime, the tasks of the notifier log here too.
    let _guard = tracing::subscriber::set_default(subscriber);
    let shown = {
        let receiver = Receiver::start(answers.to_vec()).await;
        let pace = Pace { timeout: Duration::from_millis(200), ..quick() };
        let notifier = receiver.notifier(SinkKind::Webhook, Limits::default(), pace);
        notifier.offer(&modified("a"));
        receiver.messages(answers.len().max(1)).await;
        // This URL can't be connected to.
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        std::fs::write(receiver.file(), format!("http://{closed}/{TOKEN}")).unwrap();
        notifier.offer(&modified("b"));
        format!("{:?} {notifier:?}", notifier.drain(Duration::from_millis(300)).await)
    };
    let log = log.take();
    assert!(log.contains("be delivered") && log.contains("connection: connection refused"), "{log}");
    assert!(!log.contains(TOKEN) && !shown.contains(TOKEN), "{log}{shown}");
}
