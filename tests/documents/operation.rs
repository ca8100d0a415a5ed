//! Checks the operators' documents against the code: metrics in the chart's alerts and dashboard, and the runbook.

use std::{collections::BTreeSet, fs, path::Path};

use regex::Regex;
use serde_json::Value;

use super::{links::anchors, read, root, yaml};

const ALERTS: &str = "charts/capi-autoscaler-provider/files/alerts.yaml";
const DASHBOARD: &str = "charts/capi-autoscaler-provider/files/dashboard.json";
const PREFIX: &str = "capi_autoscaler_provider_";
/// The sources that log, besides those of the informers, which name no action.
const FOLDERS: [&str; 8] = [
    "src",
    "crates/app/src/prices",
    "crates/change-stream/src",
    "crates/cluster/src",
    "crates/connect/src",
    "crates/service/src",
    "crates/index/src",
    "crates/scale/src",
];

/// Each metric of docs/reference/metrics.md, which another test holds against a server: its name as in queries, and its
/// labels.
fn documented() -> Vec<(String, BTreeSet<String>)> {
    let document = read("docs/reference/metrics.md");
    let rows = document.lines().filter(|line| line.starts_with(&format!("| `{PREFIX}")));
    let of_row = |row: &str| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`').to_owned();
        let labels: BTreeSet<_> = cells[3].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        match cells[2] {
            "histogram" => {
                ["_bucket", "_count", "_sum"].map(|suffix| (format!("{name}{suffix}"), labels.clone())).to_vec()
            }
            _ => vec![(name, labels)],
        }
    };
    rows.flat_map(of_row).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn alerts() -> Vec<Value> {
    let [alerts] = &yaml(ALERTS)[..] else { panic!("one document") };
    alerts["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

fn panels() -> Vec<Value> {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    dashboard["panels"].as_array().unwrap().clone()
}

/// Returns the queries, each with its place.
fn queries() -> Vec<(String, String)> {
    let of_alerts = alerts().into_iter().map(|rule| (text(&rule["alert"]), text(&rule["expr"])));
    let of_panels = panels().into_iter().flat_map(|panel| {
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        targets.into_iter().map(move |target| (text(&panel["title"]), text(&target["expr"])))
    });
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap().clone();
    let variables = variables.into_iter().filter(|variable| variable["type"] == "query");
    let of_variables = variables.map(|variable| (text(&variable["name"]), text(&variable["query"]["query"])));
    of_alerts.chain(of_panels).chain(of_variables).collect()
}

#[test]
fn alerts_and_dashboard_name_metrics_and_labels_that_there_are() {
    let documented = documented();
    let metric = Regex::new(&format!(r"({PREFIX}[a-z_]+)(?:\{{([^}}]*)\}})?")).unwrap();
    let selected = Regex::new(r"([a-z_]+)\s*(?:=~|!~|!=|=)").unwrap();
    let grouped = Regex::new(r"(?:by|on) \(([^)]*)\)").unwrap();
    // Labels of the target, and of histograms.
    let given = BTreeSet::from(["namespace", "job", "instance", "le"].map(str::to_owned));
    let queries = queries();
    assert!(queries.len() > 50, "{}", queries.len());
    for (place, query) in queries {
        let mut labels = given.clone();
        for found in metric.captures_iter(&query) {
            let name = &found[1];
            let known = documented.iter().find(|(documented, _)| documented == name);
            let Some((_, known)) = known else { panic!("{place}: {name} is no metric of docs/reference/metrics.md") };
            let selector = found.get(2).map_or("", |selector| selector.as_str());
            for label in selected.captures_iter(selector).map(|found| found[1].to_owned()) {
                assert!(known.contains(&label) || given.contains(&label), "{place}: {name} has no label {label}");
            }
            labels.extend(known.iter().cloned());
        }
        assert!(metric.is_match(&query), "{place}: {query} names no metric");
        for list in grouped.captures_iter(&query).map(|found| found[1].to_owned()) {
            for label in list.split(',').map(str::trim) {
                assert!(labels.contains(label), "{place}: no metric of it has a label {label}");
            }
        }
    }
}

#[test]
fn each_alert_has_a_section_of_the_runbook_that_it_links() {
    let runbook = read("docs/how-to/runbook.md");
    let anchors = anchors(&runbook);
    let mut names = BTreeSet::new();
    for rule in alerts() {
        let (name, link) = (text(&rule["alert"]), text(&rule["annotations"]["runbook_url"]));
        assert_eq!(link, format!("docs/how-to/runbook.md#{}", name.to_lowercase()));
        assert!(anchors.contains(&name.to_lowercase()), "{name}: the runbook has no such section");
        let (_, rest) = runbook.split_once(&format!("\n### {name}\n")).unwrap();
        let section = rest.split("\n##").next().unwrap();
        for part in ["**Means:**", "**Look at:**", "**Do:**"] {
            assert!(section.contains(part), "{name}: its section has no {part}");
        }
        names.insert(name);
    }
    let sections: BTreeSet<_> =
        runbook.lines().filter_map(|line| line.strip_prefix("### ")).map(str::to_owned).collect();
    assert_eq!(sections, names, "each section is that of an alert");
}

/// Returns the sources of a folder by path, without tests.
fn sources(folder: &str) -> Vec<(String, String)> {
    // A clone may be in a folder that is called so.
    let own = |path: &Path| path.strip_prefix(root()).unwrap().to_owned();
    let is_test = |path: &Path| own(path).iter().any(|part| part == "tests" || part == "tests.rs");
    let files = walkdir::WalkDir::new(root().join(folder)).into_iter().map(|entry| entry.unwrap().into_path());
    let code = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs") && !is_test(path));
    code.map(|path| (own(&path).display().to_string(), fs::read_to_string(path).unwrap())).collect()
}

/// Returns the arguments of a macro's call: up to the parenthesis that closes the one that was opened before.
fn arguments(text: &str) -> &str {
    let (mut depth, mut in_text, mut is_escaped) = (1, false, false);
    for (position, character) in text.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if in_text => is_escaped = true,
            '"' => in_text = !in_text,
            '(' if !in_text => depth += 1,
            ')' if !in_text => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..position];
        }
    }
    panic!("a parenthesis isn't closed: {text}");
}

/// Returns the place of each message at warn and error, with its first constant part of some length. A message that is
/// only a value has none.
fn messages() -> Vec<(String, String)> {
    let call = Regex::new(r"\b(?:warn|error)!\(").unwrap();
    let literal = Regex::new(r#""((?:[^"\\]|\\[\s\S])*)""#).unwrap();
    let broken_line = Regex::new(r"\\\n\s*").unwrap();
    let value = Regex::new(r"\{[^}]*\}").unwrap();
    let mut messages = Vec::new();
    for (place, source) in FOLDERS.into_iter().flat_map(sources) {
        for found in call.find_iter(&source) {
            let arguments = arguments(&source[found.end()..]);
            let texts = literal.captures_iter(arguments).map(|text| text[1].to_owned());
            let message = texts.max_by_key(String::len).unwrap_or_else(|| panic!("{place}: a line without a message"));
            let message = broken_line.replace_all(&message, "");
            let is_margin = |c: char| c.is_whitespace() || c == ':' || c == ';';
            let mut parts = value.split(&message).map(|part| part.trim_matches(is_margin));
            if let Some(part) = parts.find(|part| part.len() > 5) {
                messages.push((place.clone(), part.to_owned()));
            }
        }
    }
    messages
}

#[test]
fn each_line_of_the_log_that_may_ask_for_action_is_in_the_runbook() {
    let runbook = read("docs/how-to/runbook.md");
    let messages = messages();
    assert!(messages.len() > 25, "{messages:?}");
    for (place, message) in messages {
        // The beginning of a long message is enough.
        let beginning = message.split([';', ',', ':']).next().unwrap_or(&message).trim();
        assert!(runbook.contains(beginning), "docs/how-to/runbook.md doesn't have this line of {place}: {message}");
    }
}

#[test]
fn each_code_that_is_answered_is_in_the_runbook() {
    let runbook = read("docs/how-to/runbook.md");
    let made = Regex::new(r"Status::([a-z_]+)\(").unwrap();
    let sources = sources("crates/service/src");
    let made = sources.iter().flat_map(|(_, source)| made.captures_iter(source).map(|made| made[1].to_uppercase()));
    // These two take the code of something else, so they name none.
    let made = made.filter(|name| !["NEW", "FROM_ERROR"].contains(&name.as_str()));
    let codes: BTreeSet<_> = made.chain(["OK", "CANCELLED"].map(str::to_owned)).collect();
    assert!(codes.len() > 6, "{codes:?}");
    for code in codes {
        assert!(runbook.contains(&format!("| `{code}` |")), "docs/how-to/runbook.md doesn't explain the code {code}");
    }
}
