//! Label and field selectors in their text forms, parsed once and matched against each object.

use serde_json::Value;

use super::{kind::KindSpec, refusal::Refusal};

/// The selection of objects of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// The namespace, or empty for all.
    pub namespace: String,
    /// Requirements on labels.
    pub labels: LabelSelector,
    /// Requirements on fields.
    pub fields: FieldSelector,
}

impl Selection {
    pub(crate) fn with_fields(self, fields: &str) -> Result<Self, Refusal> {
        Ok(Self { fields: FieldSelector::parse(fields)?, ..self })
    }

    /// Returns true if the object's labels and fields match; its namespace is assumed to.
    pub fn matches(&self, object: &Value) -> bool {
        self.labels.matches(object) && self.fields.matches(object)
    }

    /// Returns true if all objects of the namespace are selected.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.0.is_empty() && self.fields.0.is_empty()
    }
}

/// Requirements on labels, all of which must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    rule: Rule,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
}

impl LabelSelector {
    /// Parses `a=b,c!=d,e in (f,g),h notin (i),j,!k`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        split_outside_parentheses(text)
            .into_iter()
            .map(|part| parse_requirement(part.trim()))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Reads a selector as objects have it, with `matchLabels` and `matchExpressions`. Returns `None` if there is none,
    /// or one that isn't understood: it selects nothing.
    pub fn of_object(selector: &Value) -> Option<Self> {
        let selector = selector.as_object()?;
        let labels = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
        let mut requirements: Vec<Requirement> = labels
            .map(|(key, value)| {
                Some(Requirement { key: key.clone(), rule: Rule::In(vec![value.as_str()?.to_owned()]) })
            })
            .collect::<Option<_>>()?;
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let values = || {
                let values = expression["values"].as_array().into_iter().flatten();
                values.filter_map(Value::as_str).map(str::to_owned).collect()
            };
            let rule = match expression["operator"].as_str()? {
                "In" => Rule::In(values()),
                "NotIn" => Rule::NotIn(values()),
                "Exists" => Rule::Exists,
                "DoesNotExist" => Rule::Absent,
                _ => return None,
            };
            requirements.push(Requirement { key: expression["key"].as_str()?.to_owned(), rule });
        }
        Some(Self(requirements))
    }

    /// Returns true if the object's labels match.
    pub fn matches(&self, object: &Value) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
        self.0.iter().all(|requirement| {
            let value = labels.and_then(|labels| labels.get(&requirement.key)).and_then(Value::as_str);
            requirement.rule.holds(value)
        })
    }
}

impl Rule {
    fn holds(&self, value: Option<&str>) -> bool {
        match (self, value) {
            (Self::Exists, value) => value.is_some(),
            (Self::Absent, value) => value.is_none(),
            (Self::In(values), Some(value)) => values.iter().any(|wanted| wanted == value),
            (Self::NotIn(values), Some(value)) => values.iter().all(|unwanted| unwanted != value),
            (Self::NotIn(_), None) => true,
            (Self::In(_), None) => false,
        }
    }
}

fn parse_requirement(text: &str) -> Result<Requirement, Refusal> {
    let bad = || {
        Refusal::bad_request(format!(
            "unable to parse requirement: label selector {text:?} is none of key, !key, key=value, key!=value, key in (…), key notin (…)"
        ))
    };
    let requirement = |key: &str, rule| {
        let key = key.trim();
        if is_label_key(key) { Ok(Requirement { key: key.to_owned(), rule }) } else { Err(bad()) }
    };
    if let Some(key) = text.strip_prefix('!') {
        return requirement(key, Rule::Absent);
    }
    if let Some((head, values)) = text.split_once('(') {
        let values = values.strip_suffix(')').ok_or_else(bad)?;
        let values = values.split(',').map(|value| label_value(value).ok_or_else(bad)).collect::<Result<_, _>>()?;
        let (key, word) = head.trim().rsplit_once(char::is_whitespace).ok_or_else(bad)?;
        return match word {
            "in" => requirement(key, Rule::In(values)),
            "notin" => requirement(key, Rule::NotIn(values)),
            _ => Err(bad()),
        };
    }
    if let Some((key, value)) = text.split_once("!=") {
        return requirement(key, Rule::NotIn(vec![label_value(value).ok_or_else(bad)?]));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return requirement(key, Rule::In(vec![label_value(value).ok_or_else(bad)?]));
    }
    requirement(text, Rule::Exists)
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0_usize, 0, Vec::new());
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn label_value(text: &str) -> Option<String> {
    let value = text.trim();
    is_label_value(value).then(|| value.to_owned())
}

/// Returns true if a text is a valid label value.
pub(crate) fn is_label_value(value: &str) -> bool {
    value.is_empty() || (value.len() <= 63 && is_name_like(value))
}

/// Returns true if a text is a valid key of a label or an annotation: a name, optionally after a DNS name and a slash.
pub(crate) fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let prefix_fits = prefix.is_none_or(|prefix| !prefix.is_empty() && prefix.len() <= 253 && is_name_like(prefix));
    prefix_fits && !name.is_empty() && name.len() <= 63 && is_name_like(name)
}

fn is_name_like(text: &str) -> bool {
    let alphanumeric = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    alphanumeric(bytes.first())
        && alphanumeric(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// Requirements on fields, all of which must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSelector(Vec<FieldRequirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldRequirement {
    path: String,
    value: String,
    equal: bool,
}

impl FieldSelector {
    /// Parses `spec.nodeName=a,status.phase!=Failed`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        text.split(',')
            .filter(|part| !part.is_empty())
            .map(|part| {
                let (path, value, equal) = part
                    .split_once("!=")
                    .map(|(path, value)| (path, value, false))
                    .or_else(|| part.split_once("==").map(|(path, value)| (path, value, true)))
                    .or_else(|| part.split_once('=').map(|(path, value)| (path, value, true)))
                    .ok_or_else(|| {
                        Refusal::bad_request(format!("invalid selector: '{part}'; can't understand '{part}'"))
                    })?;
                Ok(FieldRequirement { path: path.to_owned(), value: value.to_owned(), equal })
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Refuses fields that this kind can't be selected by.
    pub(crate) fn check(&self, kind: &KindSpec) -> Result<(), Refusal> {
        let known = |path: &str| {
            path == "metadata.name"
                || (path == "metadata.namespace" && kind.namespaced)
                || kind.selectable_fields.iter().any(|field| field == path)
        };
        match self.0.iter().find(|requirement| !known(&requirement.path)) {
            None => Ok(()),
            Some(requirement) if kind.rules.strategic => Err(Refusal::bad_request(format!(
                "\"{}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"{}",
                requirement.path,
                kind.selectable_fields.iter().flat_map(|field| [", \"", field, "\""]).collect::<String>(),
            ))),
            Some(requirement) => Err(Refusal::bad_request(format!("field label not supported: {}", requirement.path))),
        }
    }

    /// Returns true if the object's fields match. An absent field counts as empty.
    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|requirement| {
            let value = requirement.path.split('.').try_fold(object, |value, name| value.get(name));
            let equal = match value {
                Some(Value::String(text)) => *text == requirement.value,
                Some(Value::Bool(flag)) => flag.to_string() == requirement.value,
                Some(Value::Number(number)) => number.to_string() == requirement.value,
                None | Some(Value::Null) => {
                    // A flag that isn't set reads as false.
                    requirement.value.is_empty()
                        || (requirement.value == "false" && requirement.path == "spec.unschedulable")
                }
                Some(Value::Array(_) | Value::Object(_)) => false,
            };
            equal == requirement.equal
        })
    }
}
