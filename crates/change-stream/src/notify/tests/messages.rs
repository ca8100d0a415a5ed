//! Tests of the messages for people and programs.

use super::*;
use crate::notify::{queue::Batch, sink::SLACK_LIMIT};

fn slack(changes: &[Change], lost: u64) -> String {
    let changes = changes.iter().map(|change| SinkKind::Slack.render(change)).collect();
    let body: Value = serde_json::from_slice(&SinkKind::Slack.body(&Batch { changes, lost })).unwrap();
    body["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_slack_like_receiver_gets_a_readable_message() {
    let receiver = Receiver::start([]).await;
    let notifier = receiver.notifier(SinkKind::Slack, Limits::default(), quick());
    notifier.offer(&modified("a"));
    let (_, message) = receiver.messages(1).await.remove(0);
    let text = "*Machine team-a/a* changed\n```\n  status.phase: \"Pending\" → \"Running\"\n```";
    assert_eq!(message, json!({ "text": text }));
}

#[test]
fn one_that_wrote_the_object_and_its_status_is_named_once() {
    let by = |manager: &str, subresource: &str| json!({"manager": manager, "operation": "Update", "subresource": subresource, "time": "2026-01-01T00:00:00Z"});
    let by = json!([by("capi", ""), by("capi", "status"), by("kubectl", "scale")]);
    let change = changed("a", &json!({}), &json!({"metadata": {"managedFields": by}, "spec": 1}));
    assert_eq!(change.changed_by.len(), 3);
    assert!(slack(&[change], 0).starts_with("*Machine team-a/a* changed by capi, kubectl\n"));
}

#[test]
fn of_new_and_deleted_objects_the_name_says_enough() {
    let state = snapshot(&json!({"spec": {"a": 1}}));
    let added = Change::added(identity(&kind("Machine"), "", "a"), Arc::clone(&state), false);
    let deleted = Change::deleted(identity(&kind("Machine"), "ns", "b"), Some(state), false);
    assert_eq!(slack(&[added, deleted], 0), "*Machine a* added\n*Machine ns/b* deleted");
}

#[rstest::rstest]
#[case::mention("<!channel> & <@U1>", "&lt;!channel&gt; &amp; &lt;@U1&gt;")]
#[case::end_of_the_block("```*bold*", "'''∗bold∗")]
#[case::control("\u{1b}[31m\u{202e}", "\\u001b[31m\\u{202e}")]
fn texts_of_the_cluster_are_shown_as_they_are(#[case] value: &str, #[case] shown: &str) {
    let text = slack(&[changed("a", &json!({}), &json!({"spec": {"x": value}}))], 0);
    assert!(text.contains(shown), "{text}");
    assert_eq!(text.matches("```").count(), 2, "{text}");
}

/// Receivers that are compatible with Slack's also treat a bare `@channel` as a mention, and any URL as a link.
#[rstest::rstest]
#[case::mention("@channel", "by ＠channel\n")]
#[case::link("https://evil.example", "by https:∕∕evil.example\n")]
fn outside_of_a_code_block_no_name_mentions_or_links(#[case] manager: &str, #[case] shown: &str) {
    let by = json!([{"manager": manager, "operation": "Update", "time": "2026-01-01T00:00:00Z"}]);
    let change = changed("a", &json!({}), &json!({"metadata": {"managedFields": by}, "spec": 1}));
    let text = slack(&[change], 0);
    assert!(text.contains(shown), "{text}");
}

#[test]
fn a_long_change_is_cut() {
    let many: serde_json::Map<_, _> = (0..100).map(|n| (format!("k{n}"), Value::from("x".repeat(500)))).collect();
    let text = slack(&[changed("a", &json!({"spec": {}}), &json!({"spec": many}))], 0);
    assert!(text.chars().count() < 2000, "{}", text.chars().count());
    assert!(text.contains("more lines") && text.ends_with("```"), "{text}");
}

#[test]
fn the_output_counts_the_changes_or_lines_that_do_not_fit() {
    let changes: Vec<_> = (0..500).map(|n| modified(&format!("machine-{n}"))).collect();
    let text = slack(&changes, 7);
    assert!(text.chars().count() <= SLACK_LIMIT, "{}", text.chars().count());
    assert!(text.starts_with(":warning: 7 changes before these were not sent\n"), "{text}");
    let shown = text.matches("changed\n").count();
    assert!(shown > 10 && text.ends_with(&format!("_… and {} more changes_", 500 - shown)), "{text}");
}

#[test]
fn a_change_that_is_too_long_for_a_program_goes_without_its_patch() {
    let change = changed("a", &json!({}), &json!({"spec": "x".repeat(300 << 10)}));
    let rendered: Value = serde_json::from_str(&SinkKind::Webhook.render(&change)).unwrap();
    assert_eq!((&rendered["name"], &rendered["patch"]), (&json!("a"), &json!([])));
}
