//! Tests of the lines of the log, and of those that no filter shows. Each test has its own log.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{collections::BTreeSet, path::PathBuf};

use regex::Regex;
use rstest::rstest;
use testkit::CapturedLog;
use tracing::subscriber::with_default;
use tracing_subscriber::registry;

use super::*;

/// A name of an object, or an answer to this program, must not be able to forge a line of its log.
#[test]
fn foreign_text_in_a_log_event_starts_no_line_and_keeps_no_bidi_or_control_characters() {
    let said = CapturedLog::default();
    let writer = said.clone();
    let lines = fmt::layer().without_time().with_ansi(false);
    let lines = lines.with_writer(move || Lines { form: Form::Text, to: writer.clone() });
    let theirs = "no such host\n ERROR forged: all is lost\r\u{202e}\u{2066}\u{2028}";
    with_default(registry().with(lines), || {
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

#[rstest]
#[case::as_it_is("INFO x: Größe a=\"b\"\n", "INFO x: Größe a=\"b\"\n")]
#[case::a_forged_line("a\n2026 INFO x: forged\n", "a\\n2026 INFO x: forged\n")]
#[case::only_newlines("\n\n\n", "\\n\\n\n")]
#[case::colours_of_the_log(
    "\u{1b}[32m INFO\u{1b}[0m \u{1b}[1;2mx\u{1b}[m\n",
    "\u{1b}[32m INFO\u{1b}[0m \u{1b}[1;2mx\u{1b}[m\n"
)]
#[case::what_clears_the_screen("a\u{1b}[2Jb\n", "a\\u{1b}[2Jb\n")]
#[case::a_title("a\u{1b}]0;title\u{7}\n", "a\\u{1b}]0;title\\u{7}\n")]
#[case::half_a_colour("a\u{1b}[32", "a\\u{1b}[32")]
fn an_event_is_one_line(#[case] event: &str, #[case] expected: &str) {
    assert_eq!(one_line(event), expected);
}

#[test]
fn json_stays_the_same_value() {
    let event = serde_json::to_string(&["a\u{202e}b\nc"]).unwrap() + "\n";
    let mut lines = Lines { form: Form::Json, to: Vec::new() };
    lines.write_all(event.as_bytes()).unwrap();
    let written = String::from_utf8(lines.to).unwrap();
    assert_eq!(written, "[\"a\\u202eb\\nc\"]\n");
    assert_eq!(serde_json::from_str::<Vec<String>>(&written).unwrap(), ["a\u{202e}b\nc"]);
}

#[test]
fn no_filter_shows_what_libraries_send_or_get() {
    let said = CapturedLog::default();
    let writer = said.clone();
    let lines = fmt::layer().without_time().with_ansi(false).with_writer(move || writer.clone());
    with_default(registry().with(lines.with_filter(parse("trace").unwrap().and(may_be_shown()))), || {
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
