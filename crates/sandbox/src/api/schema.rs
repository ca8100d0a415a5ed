//! The schema of a custom kind: prunes unknown fields, fills in defaults and reports violations. CEL rules, `anyOf` and
//! the like are ignored.
//!
//! Parts of an object that a write leaves unchanged are neither pruned nor validated again, so that an object that was
//! stored under another version's schema can still be scaled and annotated.

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex, PoisonError},
};

use regex::Regex;
use serde_json::{Map, Value};

use super::refusal::FieldCause;

/// The parts of an object that the schema doesn't cover.
const OUTSIDE: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Prunes an object and fills in its defaults. Returns its violations.
pub(crate) fn admit(schema: &Value, old: Option<&Value>, object: &mut Value) -> Vec<FieldCause> {
    shape(schema, old, object, true);
    let mut causes = Vec::new();
    validate(schema, old, object, "", &mut causes);
    causes
}

fn flag(schema: &Value, name: &str) -> bool {
    schema[name] == true
}

fn shape(schema: &Value, old: Option<&Value>, value: &mut Value, outermost: bool) {
    if old == Some(value) {
        return;
    }
    match value {
        Value::Object(map) => shape_map(schema, old, map, outermost),
        Value::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                shape(&schema["items"], old.and_then(|old| old.get(at)), item, false);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn shape_map(schema: &Value, old: Option<&Value>, map: &mut Map<String, Value>, outermost: bool) {
    let properties = schema["properties"].as_object();
    let additional = Some(&schema["additionalProperties"]).filter(|values| values.is_object() || **values == true);
    let keeps_unknown = flag(schema, "x-kubernetes-preserve-unknown-fields") || additional.is_some();
    let is_resource = outermost || flag(schema, "x-kubernetes-embedded-resource");
    let outside = |name: &str| is_resource && OUTSIDE.contains(&name);
    let known = |name: &str| properties.is_some_and(|properties| properties.contains_key(name));
    map.retain(|name, value| {
        let unchanged = old.is_some_and(|old| old.get(name) == Some(value));
        unchanged || outside(name) || keeps_unknown || known(name)
    });
    for (name, property) in properties.into_iter().flatten() {
        if outside(name) {
            continue;
        }
        let default = property.get("default");
        let is_null = map.get(name).is_some_and(Value::is_null);
        if let Some(default) = default
            && (!map.contains_key(name) || (is_null && !flag(property, "nullable")))
        {
            map.insert(name.clone(), default.clone());
        }
        if let Some(value) = map.get_mut(name) {
            shape(property, old.and_then(|old| old.get(name)), value, false);
        }
    }
    if let Some(values) = additional.filter(|values| values.is_object()) {
        for (name, value) in map.iter_mut().filter(|(name, _)| !known(name)) {
            shape(values, old.and_then(|old| old.get(name)), value, false);
        }
    }
}

fn validate(schema: &Value, old: Option<&Value>, value: &Value, path: &str, causes: &mut Vec<FieldCause>) {
    if old == Some(value) || (value.is_null() && flag(schema, "nullable")) {
        return;
    }
    if let Some(cause) = wrong_type(schema, value, path) {
        causes.push(cause);
        return;
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", allowed.join(", "));
        causes.push(FieldCause { field: path.to_owned(), reason: "FieldValueNotSupported", message });
    }
    match value {
        Value::Object(map) => validate_map(schema, old, map, path, causes),
        Value::Array(items) => {
            bounds(schema, items.len(), ["minItems", "maxItems"], "items", path, causes);
            for (at, item) in items.iter().enumerate() {
                validate(&schema["items"], old.and_then(|old| old.get(at)), item, &format!("{path}[{at}]"), causes);
            }
        }
        Value::String(text) => validate_text(schema, text, path, causes),
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or_default();
            let (least, most) = (schema["minimum"].as_f64(), schema["maximum"].as_f64());
            if let Some(least) = least.filter(|&least| number < least) {
                let why = format!("{path} in body should be greater than or equal to {least}");
                causes.push(FieldCause::invalid(path, &number.to_string(), &why));
            }
            if let Some(most) = most.filter(|&most| number > most) {
                let why = format!("{path} in body should be less than or equal to {most}");
                causes.push(FieldCause::invalid(path, &number.to_string(), &why));
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

fn validate_map(
    schema: &Value,
    old: Option<&Value>,
    map: &Map<String, Value>,
    path: &str,
    causes: &mut Vec<FieldCause>,
) {
    let inside = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !map.contains_key(name) {
            causes.push(FieldCause::required(&inside(name), ""));
        }
    }
    bounds(schema, map.len(), ["minProperties", "maxProperties"], "properties", path, causes);
    for (name, value) in map {
        if path.is_empty() && OUTSIDE.contains(&name.as_str()) {
            continue;
        }
        let property = schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
        if property.is_object() {
            validate(property, old.and_then(|old| old.get(name)), value, &inside(name), causes);
        }
    }
}

fn wrong_type(schema: &Value, value: &Value, path: &str) -> Option<FieldCause> {
    let is_whole = value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0);
    let fits = |wanted: &str| match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => is_whole,
        "number" => value.is_number(),
        // An unknown type forbids nothing.
        _ => true,
    };
    if flag(schema, "x-kubernetes-int-or-string") && (is_whole || value.is_string()) {
        return None;
    }
    let wanted = schema["type"].as_str()?;
    if fits(wanted) {
        return None;
    }
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_whole => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let message = format!("Invalid value: {found:?}: {path} in body must be of type {wanted}: {found:?}");
    Some(FieldCause { field: path.to_owned(), reason: "FieldValueTypeInvalid", message })
}

fn validate_text(schema: &Value, text: &str, path: &str, causes: &mut Vec<FieldCause>) {
    bounds(schema, text.chars().count(), ["minLength", "maxLength"], "chars long", path, causes);
    if let Some(pattern) = schema["pattern"].as_str()
        && !matches(pattern, text)
    {
        let why = format!("{path} in body should match '{pattern}'");
        causes.push(FieldCause::invalid(path, &format!("{text:?}"), &why));
    }
}

fn bounds(
    schema: &Value,
    count: usize,
    [least, most]: [&str; 2],
    what: &str,
    path: &str,
    causes: &mut Vec<FieldCause>,
) {
    let count = count as u64;
    if let Some(least) = schema[least].as_u64().filter(|&least| count < least) {
        let why = format!("{path} in body should be at least {least} {what}");
        causes.push(FieldCause::invalid(path, &count.to_string(), &why));
    }
    if let Some(most) = schema[most].as_u64().filter(|&most| count > most) {
        let why = format!("{path} in body should be at most {most} {what}");
        causes.push(FieldCause::invalid(path, &count.to_string(), &why));
    }
}

/// Returns true if a text has a match. A pattern that can't be compiled forbids nothing.
fn matches(pattern: &str, text: &str) -> bool {
    static PATTERNS: LazyLock<Mutex<HashMap<String, Option<Regex>>>> = LazyLock::new(Mutex::default);
    let mut patterns = PATTERNS.lock().unwrap_or_else(PoisonError::into_inner);
    let compiled = patterns.entry(pattern.to_owned()).or_insert_with(|| Regex::new(pattern).ok());
    compiled.as_ref().is_none_or(|pattern| pattern.is_match(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn schema() -> Value {
        json!({"type": "object", "properties": {"spec": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "minLength": 1, "maxLength": 4, "pattern": "^[a-z]*$"},
                "replicas": {"type": "integer", "minimum": 0, "default": 1},
                "mode": {"type": "string", "enum": ["a", "b"]},
                "port": {"x-kubernetes-int-or-string": true},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "items": {"type": "array", "maxItems": 2, "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
            },
        }}})
    }

    #[rstest]
    #[case(json!({"name": "x"}), json!({"name": "x", "replicas": 1}))]
    #[case(json!({"name": "x", "replicas": 3, "unknown": 1}), json!({"name": "x", "replicas": 3}))]
    #[case(json!({"name": "x", "replicas": null}), json!({"name": "x", "replicas": 1}))]
    #[case(json!({"name": "x", "replicas": 1, "free": {"a": 1}}), json!({"name": "x", "replicas": 1, "free": {"a": 1}}))]
    #[case(json!({"name": "x", "replicas": 1, "labels": {"a": "b"}}), json!({"name": "x", "replicas": 1, "labels": {"a": "b"}}))]
    #[case(json!({"name": "x", "replicas": 1, "items": [{"a": "b", "c": 1}]}), json!({"name": "x", "replicas": 1, "items": [{"a": "b"}]}))]
    fn unknown_fields_go_and_defaults_come(#[case] spec: Value, #[case] expected: Value) {
        let mut object = json!({"apiVersion": "v1", "metadata": {"name": "a"}, "spec": spec});
        assert_eq!(admit(&schema(), None, &mut object), []);
        assert_eq!(object, json!({"apiVersion": "v1", "metadata": {"name": "a"}, "spec": expected}));
    }

    #[rstest]
    #[case(json!({}), "spec.name", "FieldValueRequired")]
    #[case(json!({"name": 1}), "spec.name", "FieldValueTypeInvalid")]
    #[case(json!({"name": ""}), "spec.name", "FieldValueInvalid")]
    #[case(json!({"name": "abcde"}), "spec.name", "FieldValueInvalid")]
    #[case(json!({"name": "A"}), "spec.name", "FieldValueInvalid")]
    #[case(json!({"name": "a", "replicas": -1}), "spec.replicas", "FieldValueInvalid")]
    #[case(json!({"name": "a", "replicas": 1.5}), "spec.replicas", "FieldValueTypeInvalid")]
    #[case(json!({"name": "a", "mode": "c"}), "spec.mode", "FieldValueNotSupported")]
    #[case(json!({"name": "a", "port": true}), "", "")]
    #[case(json!({"name": "a", "labels": {"x": 1}}), "spec.labels.x", "FieldValueTypeInvalid")]
    #[case(json!({"name": "a", "items": [{"a": 1}]}), "spec.items[0].a", "FieldValueTypeInvalid")]
    #[case(json!({"name": "a", "items": [{}, {}, {}]}), "spec.items", "FieldValueInvalid")]
    fn a_spec_that_the_schema_forbids_is_refused_with_the_field_and_the_reason(
        #[case] spec: Value,
        #[case] field: &str,
        #[case] reason: &str,
    ) {
        let causes = admit(&schema(), None, &mut json!({"spec": spec}));
        let found = causes.first().map_or(("", ""), |cause| (cause.field.as_str(), cause.reason));
        assert_eq!(found, (field, reason));
    }

    #[test]
    fn an_update_does_not_validate_fields_that_it_leaves_unchanged() {
        let old = json!({"spec": {"name": "TOO LONG", "old": {"a": 1}, "replicas": 1}});
        let mut new = old.clone();
        new["spec"]["replicas"] = json!(2);
        assert_eq!(admit(&schema(), Some(&old), &mut new), []);
        assert_eq!(new["spec"]["old"], old["spec"]["old"]);
    }
}
