//! Tests of the rules file: its content, its meaning, and its errors.

use super::*;
use crate::notify::{ActionName, parse_rules};

fn rule(fields: &str) -> Rule {
    let text = format!("rules:\n- name: one\n  to: {{form: slack, urlVariable: HOOK}}\n{fields}");
    parse_rules(&text).unwrap().remove(0)
}

fn machine(namespace: &str) -> Change {
    let state = |phase: &str| {
        let labels = json!({"app": "web"});
        snapshot(&json!({"metadata": {"labels": labels}, "spec": {"a": 1}, "status": {"phase": phase}}))
    };
    Change::modified(identity(&kind("Machine"), namespace, "a"), state("old"), state("new")).unwrap()
}

#[test]
fn a_rule_has_all_that_is_documented() {
    let text = "rules:\n- name: ops\n  kinds: [machines]\n  namespaces: [a, b]\n  labels: app=web\n  fields: spec.a=1\n  \
                types: [added, deleted]\n  paths: [/status/phase]\n  \
                to: {form: webhook, urlFile: /etc/hook, allowHttp: true}\n";
    let rule = parse_rules(text).unwrap().remove(0);
    assert_eq!((rule.name.as_str(), rule.kinds.len(), rule.namespaces.len(), rule.paths.len()), ("ops", 1, 2, 1));
    assert_eq!(rule.actions, [ActionName::Added, ActionName::Deleted]);
    let to = Destination { kind: SinkKind::Webhook, url: UrlSource::File("/etc/hook".into()), allow_http: true };
    assert_eq!(rule.to, to);
}

#[rstest::rstest]
#[case::everything("", true)]
#[case::plural("  kinds: [machines]", true)]
#[case::kind("  kinds: [MACHINE]", true)]
#[case::kind_and_group("  kinds: [Machine.cluster.x-k8s.io]", true)]
#[case::another_group("  kinds: [machines.example.io]", false)]
#[case::one_of_two("  kinds: [nodes, machines]", true)]
#[case::another_kind("  kinds: [nodes]", false)]
#[case::namespace("  namespaces: [team-a]", true)]
#[case::another_namespace("  namespaces: [team-b]", false)]
#[case::labels("  labels: app in (web)", true)]
#[case::other_labels("  labels: app!=web", false)]
#[case::fields_before_or_after("  fields: status.phase=old", true)]
#[case::other_fields("  fields: status.phase=other", false)]
#[case::what_happened("  types: [modified]", true)]
#[case::what_did_not("  types: [added, deleted]", false)]
#[case::path("  paths: [/spec, /status/phase]", true)]
#[case::another_path("  paths: [/spec]", false)]
#[case::all_must_match("  kinds: [machines]\n  namespaces: [team-b]", false)]
fn a_rule_matches_when_all_of_it_does(#[case] fields: &str, #[case] matches: bool) {
    assert_eq!(rule(fields).matches(&machine("team-a")), matches);
}

#[test]
fn an_initial_object_matches_no_rule_and_paths_narrow_only_modifications() {
    let state = snapshot(&json!({}));
    let added = |initial| Change::added(identity(&kind("Machine"), "a", "b"), Arc::clone(&state), initial);
    let rule = rule("  paths: [/status/phase]");
    assert!(!rule.matches(&added(true)));
    assert!(rule.matches(&added(false)));
    assert!(rule.matches(&Change::deleted(identity(&kind("Machine"), "a", "b"), Some(state), false)));
}

#[test]
fn a_kind_that_is_not_watched_is_found() {
    let rule = rule("  kinds: [machines, Machien]");
    assert_eq!(rule.unknown_kind(&[&kind("Machine")]), Some("Machien"));
    assert_eq!(rule.unknown_kind(&[&kind("Machine"), &kind("Machien")]), None);
}

#[rstest::rstest]
#[case::not_yaml("rules: [", "not a rules file (line")]
#[case::no_rules("rules: []", "it has no rules")]
#[case::unknown_field("rules: [{name: a, kind: x, to: {form: slack, urlFile: f}}]", "unknown field `kind`")]
#[case::unknown_form("rules: [{name: a, to: {form: mail, urlFile: f}}]", "unknown variant")]
#[case::no_name("rules: [{name: '', to: {form: slack, urlFile: f}}]", "give it a name")]
#[case::twice(
    "rules: [{name: a, to: {form: slack, urlFile: f}}, {name: a, to: {form: slack, urlFile: f}}]",
    "another rule has it too"
)]
#[case::no_url("rules: [{name: a, to: {form: slack}}]", "rule \"a\": to: give one of urlFile and urlVariable")]
#[case::two_urls("rules: [{name: a, to: {form: slack, urlFile: f, urlVariable: V}}]", "give one of")]
#[case::labels(
    "rules: [{name: a, labels: 'a b', to: {form: slack, urlFile: f}}]",
    "rule \"a\": labels: \"a b\" is none of"
)]
#[case::fields("rules: [{name: a, fields: 'a', to: {form: slack, urlFile: f}}]", "rule \"a\": fields:")]
#[case::path(
    "rules: [{name: a, paths: [status], to: {form: slack, urlFile: f}}]",
    "rule \"a\": paths: a path is a JSON pointer"
)]
#[case::unknown("rules: [{name: a, interval: 5, to: {form: slack, urlFile: f}}]", "interval")]
fn an_error_in_a_rules_file_names_the_rule_and_the_field(#[case] text: &str, #[case] part: &str) {
    let error = parse_rules(text).unwrap_err();
    assert!(error.contains(part), "{error}");
}

#[rstest::rstest]
#[case::as_a_file("rules: [{name: a, to: {form: slack, urlFile: 'https://h/T0P-S3CR3T'}}]")]
#[case::as_a_variable("rules: [{name: a, to: {form: slack, urlVariable: 'https://h/T0P-S3CR3T'}}]")]
#[case::as_the_destination("rules: [{name: a, to: 'https://h/T0P-S3CR3T'}]")]
#[case::as_the_form("rules: [{name: a, to: {form: 'https://h/T0P-S3CR3T', urlFile: f}}]")]
#[case::as_the_rules("rules: 'https://h/T0P-S3CR3T'")]
#[case::as_the_file("https://h/T0P-S3CR3T")]
#[case::as_a_name("rules: [{name: 'https://h/T0P-S3CR3T', to: {form: slack, urlFile: f}}]")]
#[case::as_a_key("rules: [{'https://h/T0P-S3CR3T': a}]")]
#[case::as_a_kind("rules: [{name: a, kinds: ['https://h/T0P-S3CR3T'], to: {form: slack, urlFile: f}}]")]
#[case::as_labels("rules: [{name: a, labels: 'https://h/T0P-S3CR3T', to: {form: slack, urlFile: f}}]")]
#[case::as_a_label("rules: [{name: a, labels: 'app=https://h/T0P-S3CR3T', to: {form: slack, urlFile: f}}]")]
#[case::as_fields("rules: [{name: a, fields: 'https://h/T0P-S3CR3T', to: {form: slack, urlFile: f}}]")]
#[case::behind_a_quote("rules: [{name: a, to: 'x\"T0P-S3CR3T'}]")]
#[case::in_upper_case("rules: [{name: a, labels: 'HTTPS://h/T0P-S3CR3T', to: {form: slack, urlFile: f}}]")]
fn a_url_that_stands_in_the_file_itself_is_refused_and_not_repeated(#[case] text: &str) {
    let error = parse_rules(text).unwrap_err();
    assert!(!format!("{error} {error:?}").contains(TOKEN), "{error}");
}
