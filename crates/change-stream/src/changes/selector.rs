//! Label and field selectors in the syntax of `kubectl`: validated before any request to an API server, and matched
//! here for the rules of notifications.

use std::{collections::BTreeMap, fmt, str::FromStr};

use kube::core::{Expression, Selector, SelectorExt as _};
use serde_json::Value;
use thiserror::Error;

/// A label selector.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelSelector {
    text: String,
    selector: Selector,
}

/// A field selector.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FieldSelector {
    text: String,
    /// The path; true for `=`, false for `!=`; the value.
    terms: Vec<(String, bool, String)>,
}

/// The reason why a text is no selector.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum SelectorError {
    /// The text is no requirement on labels.
    #[error("{0:?} is none of key, !key, key=value, key!=value, key in (a,b) and key notin (a,b)")]
    Label(String),
    /// The text is no label key.
    #[error("{0:?} is no label key, such as app or example.com/app")]
    Key(String),
    /// The text is no label value.
    #[error(
        "{0:?} is no label value: at most 63 letters, digits, -, _ and ., beginning and ending with one of the former"
    )]
    Value(String),
    /// The text is no requirement on a field.
    #[error("{0:?} is none of path=value and path!=value, such as metadata.name=one")]
    Field(String),
}

impl LabelSelector {
    /// Returns true if an object's labels match.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        let labels = object["metadata"]["labels"].as_object();
        let labels: BTreeMap<String, String> = labels
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect();
        self.selector.matches(&labels)
    }

    /// Returns the selector itself, for labels that belong to no object.
    #[must_use]
    pub fn into_selector(self) -> Selector {
        self.selector
    }
}

impl FromStr for LabelSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let expressions: Vec<_> = requirements(text).into_iter().map(expression).collect::<Result<_, _>>()?;
        Ok(Self { text: text.to_owned(), selector: expressions.into_iter().collect() })
    }
}

/// Splits at the commas outside of parentheses.
fn requirements(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
    .collect()
}

fn expression(text: &str) -> Result<Expression, SelectorError> {
    let wrong = || SelectorError::Label(text.to_owned());
    if let Some(absent) = text.strip_prefix('!') {
        return Ok(Expression::DoesNotExist(key(absent)?));
    }
    if let Some((left, list)) = text.split_once('(') {
        let list = list.strip_suffix(')').ok_or_else(wrong)?;
        let values = list.split(',').map(value).collect::<Result<_, _>>()?;
        return match left.split_whitespace().collect::<Vec<_>>()[..] {
            [name, "in"] => Ok(Expression::In(key(name)?, values)),
            [name, "notin"] => Ok(Expression::NotIn(key(name)?, values)),
            _ => Err(wrong()),
        };
    }
    if let Some((left, right)) = text.split_once("!=") {
        return Ok(Expression::NotEqual(key(left)?, value(right)?));
    }
    if let Some((left, right)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Ok(Expression::Equal(key(left)?, value(right)?));
    }
    match text {
        "" => Err(wrong()),
        _ if text.contains(char::is_whitespace) => Err(wrong()),
        _ => Ok(Expression::Exists(key(text)?)),
    }
}

fn key(text: &str) -> Result<String, SelectorError> {
    let text = text.trim();
    let (prefix, name) = text.rsplit_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let prefix_is_dns = prefix.is_none_or(|prefix| {
        let byte = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        !prefix.is_empty() && prefix.len() <= 253 && prefix.bytes().all(byte)
    });
    if prefix_is_dns && !name.is_empty() && is_label_text(name) {
        Ok(text.to_owned())
    } else {
        Err(SelectorError::Key(text.to_owned()))
    }
}

fn value(text: &str) -> Result<String, SelectorError> {
    let text = text.trim();
    if is_label_text(text) { Ok(text.to_owned()) } else { Err(SelectorError::Value(text.to_owned())) }
}

fn is_label_text(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let outer = |c: char| c.is_ascii_alphanumeric();
    text.len() <= 63
        && text.chars().all(inner)
        && text.starts_with(outer) == text.ends_with(outer)
        && (text.is_empty() || text.starts_with(outer))
}

impl FieldSelector {
    /// Returns true if an object's fields match; a missing field counts as empty.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        self.terms.iter().all(|(path, equal, value)| {
            let found = path.split('.').try_fold(object, |value, key| value.get(key));
            let found = match found {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
            };
            (found == *value) == *equal
        })
    }
}

impl FromStr for FieldSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let term = |term: &str| {
            let wrong = || SelectorError::Field(term.trim().to_owned());
            let (path, equal, value) = match (term.split_once("!="), term.split_once("=="), term.split_once('=')) {
                (Some((path, value)), _, _) => (path, false, value),
                (None, Some((path, value)), _) | (None, None, Some((path, value))) => (path, true, value),
                (None, None, None) => return Err(wrong()),
            };
            let (path, value) = (path.trim(), value.trim());
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '[' | ']' | '/');
            if path.is_empty() || !path.chars().all(plain) || value.contains('=') {
                return Err(wrong());
            }
            Ok((path.to_owned(), equal, value.to_owned()))
        };
        Ok(Self { text: text.to_owned(), terms: text.split(',').map(term).collect::<Result<_, _>>()? })
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
