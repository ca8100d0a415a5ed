//! Checks the rules and the output lines of `watch`.

use change_stream::notify::{SinkKind, UrlSource, parse_rules};
use serde_json::Value;

use super::{first_cells, read};

#[test]
fn the_rules_of_watch_are_rules() {
    let rules = parse_rules(&read("examples/watch/rules.yaml")).unwrap();
    assert_eq!(rules.iter().map(|rule| rule.name.as_str()).collect::<Vec<_>>(), ["machines-going", "sizes"]);
    let slack = UrlSource::File("/etc/capi-autoscaler-provider/hooks/slack".into());
    assert_eq!((rules[0].to.kind, &rules[0].to.url), (SinkKind::Slack, &slack));
    assert_eq!(rules[1].to.kind, SinkKind::Webhook);
}

#[test]
fn every_field_of_a_rule_is_documented() {
    let documented = first_cells(&read("docs/reference/watch.md"));
    let error = parse_rules("rules: [{unknown: 1}]").unwrap_err();
    let (_, known) = error.split_once("expected one of ").unwrap();
    let fields: Vec<_> = known.split('`').skip(1).step_by(2).filter(|field| *field != "to").collect();
    assert!(fields.len() > 5, "{error}");
    for field in fields {
        assert!(documented.contains(field), "{field} is not documented");
    }
}

#[test]
fn the_documented_line_of_watch_has_the_documented_fields() {
    let document = read("docs/reference/watch.md");
    let line = document.lines().find(|line| line.starts_with("{\"schemaVersion\":1,\"time\"")).unwrap();
    let line: serde_json::Map<String, Value> = serde_json::from_str(line).unwrap();
    let (_, table) = document.split_once("## JSON lines").unwrap();
    for field in line.keys() {
        assert!(table.contains(&format!("`{field}`")), "{field} is not documented");
    }
}
