//! The subset of JSONPath that columns of tables use: fields, quoted fields, indexes, and items selected by a field.

use serde_json::Value;

/// Returns the first value at `path`, such as `.status.conditions[?(@.type=="Ready")].status`.
pub(crate) fn find<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    let mut value = value;
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(field) = rest.strip_prefix('.') {
            let (name, after) = field_name(field);
            rest = after;
            if !name.is_empty() {
                value = value.get(&name)?;
            }
        } else if let Some(inside) = rest.strip_prefix('[') {
            let end = closing(inside)?;
            value = step(value, inside.get(..end)?.trim())?;
            rest = inside.get(end + 1..)?;
        } else {
            let (name, after) = field_name(rest);
            rest = after;
            value = value.get(&name)?;
        }
    }
    Some(value)
}

/// Splits off a name up to the next step; a backslash escapes the next character.
fn field_name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            '.' | '[' => return (name, &text[at..]),
            other => name.push(other),
        }
    }
    (name, "")
}

/// Returns the offset of the bracket that closes the one open at the beginning, ignoring quoted text.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (None, ']') => return Some(at),
            (None, '"' | '\'') => quote = Some(character),
            (Some(open), character) if open == character => quote = None,
            (_, _) => {}
        }
    }
    None
}

fn step<'v>(value: &'v Value, inside: &str) -> Option<&'v Value> {
    if let Some(name) = unquote(inside) {
        return value.get(name);
    }
    if inside == "*" {
        return value.as_array()?.first();
    }
    if let Some(filter) = inside.strip_prefix("?(").and_then(|filter| filter.strip_suffix(')')) {
        let (left, right) = filter.split_once("==")?;
        let path = left.trim().strip_prefix('@')?;
        let wanted = right.trim();
        return value.as_array()?.iter().find(|item| {
            find(item, path).is_some_and(|found| match unquote(wanted) {
                Some(text) => found.as_str() == Some(text),
                None => serde_json::from_str::<Value>(wanted).is_ok_and(|wanted| wanted == *found),
            })
        });
    }
    let position: i64 = inside.parse().ok()?;
    let list = value.as_array()?;
    let position = if position < 0 { position.checked_add(i64::try_from(list.len()).ok()?)? } else { position };
    list.get(usize::try_from(position).ok()?)
}

fn unquote(text: &str) -> Option<&str> {
    ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case(".spec.replicas", Some(json!(3)))]
    #[case("spec.replicas", Some(json!(3)))]
    #[case(".metadata.labels.example\\.com/name", Some(json!("x")))]
    #[case(".metadata.labels['example.com/name']", Some(json!("x")))]
    #[case(".metadata.labels[\"example.com/name\"]", Some(json!("x")))]
    #[case(".status.conditions[?(@.type==\"Ready\")].status", Some(json!("True")))]
    #[case(".status.conditions[?(@.type=='Ready')].status", Some(json!("True")))]
    #[case(".status.conditions[?(@.type==\"None\")].status", None)]
    #[case(".status.conditions[0].type", Some(json!("Other")))]
    #[case(".status.conditions[-1].type", Some(json!("Ready")))]
    #[case(".status.conditions[*].type", Some(json!("Other")))]
    #[case(".status.conditions[9].type", None)]
    #[case(".status.conditions[", None)]
    #[case(".none.none", None)]
    fn a_path_finds(#[case] path: &str, #[case] expected: Option<Value>) {
        let object = json!({
            "metadata": {"labels": {"example.com/name": "x"}},
            "spec": {"replicas": 3},
            "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
        });
        assert_eq!(find(&object, path).cloned(), expected);
    }
}
