//! Field selectors in the syntax of `kubectl`: validated before any request to an API server, and matched here for the
//! rules of notifications.

use std::{fmt, str::FromStr};

use serde_json::Value;
use thiserror::Error;

/// A field selector.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FieldSelector {
    text: String,
    /// The path; true for `=`, false for `!=`; the value.
    terms: Vec<(String, bool, String)>,
}

/// The text isn't a valid field requirement.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{0:?} is none of path=value and path!=value, such as metadata.name=one")]
pub struct FieldSelectorError(String);

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
    type Err = FieldSelectorError;

    fn from_str(text: &str) -> Result<Self, FieldSelectorError> {
        let term = |term: &str| {
            let wrong = || FieldSelectorError(term.trim().to_owned());
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

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
