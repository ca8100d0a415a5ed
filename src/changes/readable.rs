//! Differences line by line, as people read them: paths with dots, items of lists named by their type or name instead
//! of by a position that shifts, old and new value side by side.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{Snapshot, patch, pattern::unescape};

/// The keys that may name an item of a list, the best first.
const ITEM_KEYS: [&str; 4] = ["type", "name", "key", "uid"];

/// One difference.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Line {
    /// Where: `status.conditions[Ready].status`.
    pub path: String,
    /// The difference at that path.
    pub difference: Difference,
}

/// One difference of a value. Values are JSON.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Difference {
    /// It is new.
    Added(String),
    /// It is gone.
    Removed(String),
    /// It was the first and is the second.
    Changed(String, String),
    /// It changed, and must not be shown.
    Redacted,
}

/// From old to new.
pub(super) fn lines(old: &Snapshot, new: &Snapshot) -> Vec<Line> {
    let mut lines = Vec::new();
    compare(&old.value, &new.value, "", &mut lines);
    // A new `observedGeneration` in every condition is of no interest beside other changes.
    if lines.iter().any(|line| !is_observed_generation(line)) {
        lines.retain(|line| !is_observed_generation(line));
    }
    for pointer in patch::changed(&old.redacted, &new.redacted) {
        lines.push(Line { path: path_of(pointer, &new.value), difference: Difference::Redacted });
    }
    lines
}

/// Returns true if the line is only about the generation for which a condition was computed.
fn is_observed_generation(line: &Line) -> bool {
    line.path.contains("conditions[") && line.path.ends_with("].observedGeneration")
}

/// An object that is new: all it holds, but for what names it.
pub(super) fn whole(new: &Snapshot) -> Vec<Line> {
    let mut lines = Vec::new();
    flatten(&new.value, "", &mut lines);
    let named = ["apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.uid"];
    lines.retain(|line| !named.contains(&line.path.as_str()) && line.path != "metadata.creationTimestamp");
    lines
}

fn flatten(value: &Value, path: &str, lines: &mut Vec<Line>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(key, value)| flatten(value, &field(path, key), lines));
        }
        value => lines.push(Line { path: path.to_owned(), difference: Difference::Added(value.to_string()) }),
    }
}

fn compare(old: &Value, new: &Value, path: &str, lines: &mut Vec<Line>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => compare_maps(old, new, path, lines),
        (Value::Array(old), Value::Array(new)) => compare_lists(old, new, path, lines),
        (old, new) if old == new => {}
        (old, new) => lines
            .push(Line { path: path.to_owned(), difference: Difference::Changed(old.to_string(), new.to_string()) }),
    }
}

fn compare_maps(old: &Map<String, Value>, new: &Map<String, Value>, path: &str, lines: &mut Vec<Line>) {
    // When a condition changed says nothing beside that it did.
    let is_condition = new.contains_key("type") && new.contains_key("lastTransitionTime");
    let differs = |key: &str| old.get(key) != new.get(key);
    let folded = is_condition && ["status", "reason", "message"].into_iter().any(differs);
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    for key in keys.into_iter().filter(|key| !(folded && *key == "lastTransitionTime")) {
        both(old.get(key), new.get(key), &field(path, key), lines);
    }
}

fn both(old: Option<&Value>, new: Option<&Value>, path: &str, lines: &mut Vec<Line>) {
    let mut line = |difference| lines.push(Line { path: path.to_owned(), difference });
    match (old, new) {
        (Some(old), Some(new)) => compare(old, new, path, lines),
        (Some(old), None) => line(Difference::Removed(old.to_string())),
        (None, Some(new)) => line(Difference::Added(new.to_string())),
        (None, None) => {}
    }
}

fn compare_lists(old: &[Value], new: &[Value], path: &str, lines: &mut Vec<Line>) {
    if old == new {
        return;
    }
    if let Some(key) = ITEM_KEYS.into_iter().find(|key| names_items(key, old) && names_items(key, new)) {
        return compare_named(key, old, new, path, lines);
    }
    let scalar = |value: &Value| !value.is_object() && !value.is_array();
    if old.iter().chain(new).all(scalar) {
        let (gone, come) = (without(old, new), without(new, old));
        let line = |difference| Line { path: path.to_owned(), difference };
        if !(gone.is_empty() && come.is_empty()) {
            lines.extend(gone.into_iter().map(|value| line(Difference::Removed(value))));
            lines.extend(come.into_iter().map(|value| line(Difference::Added(value))));
            return;
        }
    }
    for index in 0..old.len().max(new.len()) {
        both(old.get(index), new.get(index), &format!("{path}[{index}]"), lines);
    }
}

/// Items by name; that only their order changed is one line.
fn compare_named(key: &str, old: &[Value], new: &[Value], path: &str, lines: &mut Vec<Line>) {
    fn name<'a>(item: &'a Value, key: &str) -> &'a str {
        item[key].as_str().unwrap_or_default()
    }
    // Lists may be as long as their authors please: no item is searched for among all others.
    fn by_name<'a>(items: &'a [Value], key: &str) -> BTreeMap<&'a str, &'a Value> {
        items.iter().map(|item| (name(item, key), item)).collect()
    }
    let (olds, news) = (by_name(old, key), by_name(new, key));
    let before = lines.len();
    let gone = old.iter().filter(|item| !news.contains_key(name(item, key)));
    for named in new.iter().chain(gone).map(|item| name(item, key)) {
        both(olds.get(named).copied(), news.get(named).copied(), &format!("{path}[{named}]"), lines);
    }
    if lines.len() == before {
        let order = |items: &[Value]| items.iter().map(|item| name(item, key)).collect::<Vec<_>>().join(", ");
        let difference = Difference::Changed(format!("order {}", order(old)), format!("order {}", order(new)));
        lines.push(Line { path: path.to_owned(), difference });
    }
}

/// Returns true if every item has this key, with a text that no other has.
fn names_items(key: &str, items: &[Value]) -> bool {
    let names: Option<BTreeSet<_>> = items.iter().map(|item| item.get(key)?.as_str()).collect();
    names.is_some_and(|names| names.len() == items.len())
}

/// As JSON, those that aren't among the others.
fn without(items: &[Value], others: &[Value]) -> Vec<String> {
    let others: BTreeSet<_> = others.iter().map(Value::to_string).collect();
    items.iter().map(Value::to_string).filter(|item| !others.contains(item)).collect()
}

/// A key below a path; one that isn't a plain word is quoted.
fn field(path: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    match (plain, path.is_empty()) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{path}.{key}"),
        (false, _) => format!("{path}[{}]", Value::from(key)),
    }
}

/// A JSON pointer as a path.
fn path_of(pointer: &str, root: &Value) -> String {
    let mut path = String::new();
    let mut value = Some(root);
    for segment in pointer.split('/').skip(1).map(unescape) {
        let in_list = value.is_some_and(Value::is_array);
        path = if in_list { format!("{path}[{segment}]") } else { field(&path, &segment) };
        value = value.and_then(|value| match value {
            Value::Array(items) => items.get(segment.parse::<usize>().ok()?),
            value => value.get(&segment),
        });
    }
    path
}
