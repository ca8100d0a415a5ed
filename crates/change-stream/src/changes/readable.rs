//! Differences for people, line by line: paths with dots, list items named by their type or name instead of a
//! position that shifts, and the old value beside the new one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{Snapshot, patch, pattern::unescape};

/// The keys that may name an item of a list, in order of preference.
const ITEM_KEYS: [&str; 4] = ["type", "name", "key", "uid"];

/// One difference.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Line {
    /// The path, such as `status.conditions[Ready].status`.
    pub path: String,
    /// The difference at that path.
    pub difference: Difference,
}

/// The difference of a value; values are JSON.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Difference {
    /// The value is new.
    Added(String),
    /// The value is gone.
    Removed(String),
    /// The old value and the new one.
    Changed(String, String),
    /// The value changed and is redacted.
    Redacted,
}

/// Returns the differences from old to new.
pub(super) fn lines(old: &Snapshot, new: &Snapshot) -> Vec<Line> {
    let mut lines = Vec::new();
    compare(&old.value, &new.value, "", &mut lines);
    // A new `observedGeneration` in every condition is noise beside other changes.
    if lines.iter().any(|line| !is_observed_generation(line)) {
        lines.retain(|line| !is_observed_generation(line));
    }
    for pointer in patch::changed(&old.redacted, &new.redacted) {
        lines.push(Line { path: path_of(pointer, &new.value), difference: Difference::Redacted });
    }
    lines
}

/// Returns true if the line is about the `observedGeneration` of a condition.
fn is_observed_generation(line: &Line) -> bool {
    line.path.contains("conditions[") && line.path.ends_with("].observedGeneration")
}

/// Returns all fields of a new object, except those that identify it and its creation time.
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
    // The transition time of a condition is noise beside the transition itself.
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

/// Compares items by name. If only their order changed, the result is one line.
fn compare_named(key: &str, old: &[Value], new: &[Value], path: &str, lines: &mut Vec<Line>) {
    fn name<'a>(item: &'a Value, key: &str) -> &'a str {
        item[key].as_str().unwrap_or_default()
    }
    // Maps avoid a quadratic search, since users control the length of a list.
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

/// Returns true if every item has this key and each value is a unique string.
fn names_items(key: &str, items: &[Value]) -> bool {
    let names: Option<BTreeSet<_>> = items.iter().map(|item| item.get(key)?.as_str()).collect();
    names.is_some_and(|names| names.len() == items.len())
}

/// Returns the items that aren't among the others, as JSON.
fn without(items: &[Value], others: &[Value]) -> Vec<String> {
    let others: BTreeSet<_> = others.iter().map(Value::to_string).collect();
    items.iter().map(Value::to_string).filter(|item| !others.contains(item)).collect()
}

/// Returns the path of a key below a path, quoted if it isn't a plain word.
fn field(path: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    match (plain, path.is_empty()) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{path}.{key}"),
        (false, _) => format!("{path}[{}]", Value::from(key)),
    }
}

/// Returns a JSON pointer as a path with dots.
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
