//! Tests of log filters, of lines that no filter shows, and of changes at runtime. Each test has its own log.

use std::{collections::BTreeSet, path::PathBuf};

use regex::Regex;
use rstest::rstest;
use testkit::CapturedLog;
use tracing::subscriber::with_default;
use tracing_subscriber::{Layer as _, Registry, filter::FilterExt as _, fmt, layer::SubscriberExt as _, reload};

use super::{
    LogControl, LogFormat,
    filter::{OURS, may_be_shown},
    lines::{Form, Lines},
    parse,
};
use service::listen::LogLevels as _;

/// A name of an object, or an answer to this program, must not be able to forge a line of its log.
#[test]
fn foreign_text_in_a_log_event_starts_no_line_and_keeps_no_bidi_or_control_characters() {
    let said = CapturedLog::default();
    let writer = said.clone();
    let lines = fmt::layer().without_time().with_ansi(false);
    let lines = lines.with_writer(move || Lines { form: Form::Text, to: writer.clone() });
    let theirs = "no such host\n ERROR forged: all is lost\r\u{202e}\u{2066}\u{2028}";
    with_default(tracing_subscriber::registry().with(lines), || {
        tracing::info!(field = theirs, display = %theirs, debug = ?theirs, "{theirs}");
        tracing::info!("the next one");
    });
    let said = said.take();
    assert_eq!(said.lines().count(), 2, "{said:?}");
    assert_eq!(said.matches("forged").count(), 4, "nothing is left out: {said:?}");
    let steers = |c: char| (c.is_control() && c != '\n') || ('\u{2028}'..='\u{2069}').contains(&c);
    assert!(!said.contains(steers), "{said:?}");
    assert!(said.lines().nth(1).is_some_and(|line| line.ends_with("the next one")), "{said:?}");
}

/// Returns a log with this filter, its captured text, and its control.
fn log(filter: &str) -> (impl tracing::Subscriber + Send + Sync, CapturedLog, LogControl) {
    let said = CapturedLog::default();
    let (layer, handle) = reload::Layer::<_, Registry>::new(parse(filter).unwrap());
    let writer = said.clone();
    let lines = fmt::layer().without_time().with_ansi(false).with_writer(move || writer.clone());
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(layer.and(may_be_shown())));
    let control =
        LogControl::new(filter.to_owned(), move |filter| handle.reload(filter).map_err(|error| error.to_string()));
    (subscriber, said, control)
}

#[test]
fn no_filter_shows_what_libraries_send_or_get() {
    let (subscriber, said, _control) = log("trace");
    with_default(subscriber, || {
        tracing::trace!("of this program");
        tracing::trace!(target: "h2::codec", "a header");
        tracing::warn!(target: "kube_client::client", "the body of a Secret");
        tracing::debug!(target: "kube_client::client::builder", "a request");
        tracing::warn!(target: "kube_client::client::tls::rustls_tls", "without a name");
        tracing::warn!(target: "kube_client::client::tls::rustls_tls", path = "ca.crt", "a file");
        tracing::error!(target: "opentelemetry", "a header");
        tracing::error!(target: "opentelemetry_sdk", "a header");
        tracing::debug!(target: "opentelemetry-otlp", "a header");
        tracing::info!(target: "opentelemetry_otlp::exporter::tonic", "a header");
        tracing::trace!(target: "capi_autoscaler_provider_of_somebody_else", "a header");
    });
    let said = said.take();
    let shown: Vec<_> = said.lines().filter_map(|line| line.split_once(": ")).map(|(_, text)| text).collect();
    assert_eq!(shown, ["of this program", "a request", "a file path=\"ca.crt\""], "{said}");
}

#[rstest]
#[case::a_person(LogFormat::Auto, true, true)]
#[case::a_cluster(LogFormat::Auto, false, false)]
#[case::text_in_a_file(LogFormat::Text, false, true)]
#[case::json_on_a_terminal(LogFormat::Json, true, false)]
fn people_read_text_and_programs_json(#[case] format: LogFormat, #[case] terminal: bool, #[case] text: bool) {
    assert_eq!(format.is_text(terminal), text);
}

#[test]
fn a_change_is_in_force_at_once_and_is_said() {
    let (subscriber, said, control) = log("info");
    let _default = tracing::subscriber::set_default(subscriber);
    tracing::debug!("before");
    control.change("debug").unwrap();
    tracing::debug!("after");
    let text = said.take();
    assert!(!text.contains("before"), "{text}");
    assert!(text.contains("the log level changes from=\"info\" to=\"debug\""), "{text}");
    assert!(text.contains("after"), "{text}");

    control.change(" error ").unwrap();
    tracing::info!("quiet");
    let text = said.take();
    assert!(text.contains("to=\"error\""), "the end of the lines is said too: {text}");
    assert!(!text.contains("quiet"), "{text}");
    control.change("info").unwrap();
    assert!(said.take().contains("from=\"error\" to=\"info\""));
    assert_eq!(control.level().filter, "info");
}

#[rstest]
#[case::a_typing_error("inof", "\"inof\" is no level")]
#[case::nothing(" ", "there is no filter")]
fn a_change_that_makes_no_sense_changes_nothing(#[case] filter: &str, #[case] part: &str) {
    let (_, _, control) = log("info");
    let why = control.change(filter).unwrap_err();
    assert!(why.contains(part), "{why}");
    assert_eq!(control.level().filter, "info");
}

/// The crates whose sources log, by folder.
fn crates_that_log() -> BTreeSet<String> {
    let call = Regex::new(r"\b(?:trace|debug|info|warn|error)!\(").unwrap();
    let files = walkdir::WalkDir::new(concat!(env!("CARGO_MANIFEST_DIR"), "/crates")).into_iter();
    let files = files.map(|entry| entry.unwrap().into_path());
    let sources = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let sources = sources.filter(|path| !path.components().any(|part| part.as_os_str() == "tests"));
    let logging = sources.filter(|path| call.is_match(&std::fs::read_to_string(path).unwrap()));
    let name = |path: PathBuf| path.ancestors().find(|folder| folder.join("Cargo.toml").exists()).unwrap().to_owned();
    logging.map(|path| name(path).file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn the_lines_of_each_crate_that_logs_are_shown_at_every_level_and_no_library_has_its_name() {
    let mut logging = crates_that_log();
    // A library by itself, whose lines are shown as those of other libraries.
    assert!(logging.remove("shared-informer"));
    let own: BTreeSet<_> = OURS.into_iter().map(|name| name.replace('_', "-")).collect();
    logging.insert(env!("CARGO_PKG_NAME").to_owned());
    assert_eq!(own, logging);

    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.lock")).unwrap();
    let libraries = lock.split("\n[[package]]\n").filter(|package| package.contains("\nsource = "));
    let names: BTreeSet<_> = libraries.map(|package| package.split('"').nth(1).unwrap()).collect();
    assert!(names.contains("tracing") && own.iter().all(|name| !names.contains(name.as_str())));
}
