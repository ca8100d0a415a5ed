//! What users write to choose fields: paths, which are RFC 6901 pointers in which a segment `*` matches every key of an
//! object and every item of a list, and field selectors in the syntax of `kubectl`, which are validated before any
//! request to an API server.

use std::str::FromStr;

use serde_json::Value;
use thiserror::Error;

/// A pointer with wildcards. It matches its target and everything below.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pattern {
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Segment {
    Any,
    Exact(String),
}

/// The reason why a text is no path, with what to write.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("{0}")]
pub struct PatternError(&'static str);

const NO_SLASH: PatternError =
    PatternError("a path is a JSON pointer and begins with a slash, such as /status/conditions/*/message");
const EVERYTHING: PatternError = PatternError("it means the whole object: name a path in it, such as /status");
const EMPTY_SEGMENT: PatternError = PatternError(
    "it has an empty segment, which names no field: write /status, with no slash at the end and no two in a row",
);
const ESCAPE: PatternError =
    PatternError("a tilde is written ~0 and a slash within a key ~1, as in /metadata/annotations/example.com~1key");

impl Pattern {
    /// Returns the pattern of segments that are known to be valid.
    pub(super) fn of<const N: usize>(segments: [&str; N]) -> Self {
        let segment = |text: &str| if text == "*" { Segment::Any } else { Segment::Exact(text.to_owned()) };
        Self { segments: segments.into_iter().map(segment).collect() }
    }

    /// Removes the values that the pattern matches.
    pub fn remove_from(&self, value: &mut Value) {
        remove(&self.segments, value);
    }

    /// Returns true if a change at this JSON pointer affects a value that the pattern matches: the pointer is at it,
    /// below it, or above it.
    pub(crate) fn touches(&self, pointer: &str) -> bool {
        let mut path = pointer.split('/').skip(1);
        self.segments.iter().all(|segment| match (segment, path.next()) {
            (Segment::Any, _) | (Segment::Exact(_), None) => true,
            (Segment::Exact(expected), Some(found)) => *expected == unescape(found),
        })
    }
}

fn remove(segments: &[Segment], value: &mut Value) {
    let Some((first, rest)) = segments.split_first() else { return };
    match (value, first) {
        (Value::Object(map), Segment::Any) if rest.is_empty() => map.clear(),
        (Value::Object(map), Segment::Any) => map.values_mut().for_each(|value| remove(rest, value)),
        (Value::Object(map), Segment::Exact(key)) if rest.is_empty() => {
            map.remove(key);
        }
        (Value::Object(map), Segment::Exact(key)) => {
            if let Some(value) = map.get_mut(key) {
                remove(rest, value);
            }
        }
        (Value::Array(items), Segment::Any) if rest.is_empty() => items.clear(),
        (Value::Array(items), Segment::Any) => items.iter_mut().for_each(|value| remove(rest, value)),
        (Value::Array(items), Segment::Exact(key)) => {
            let Some(index) = key.parse().ok().filter(|index: &usize| *index < items.len()) else { return };
            if rest.is_empty() {
                // Removing the item would shift the others, to which other patterns, the patch and the marks point.
                items[index] = Value::Null;
            } else {
                remove(rest, &mut items[index]);
            }
        }
        (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_), Segment::Any | Segment::Exact(_)) => {}
    }
}

pub(super) fn unescape(segment: &str) -> String {
    segment.replace("~1", "/").replace("~0", "~")
}

pub(super) fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() || text == "/" {
            return Err(EVERYTHING);
        }
        let rest = text.strip_prefix('/').ok_or(NO_SLASH)?;
        let segment = |text: &str| {
            let escapes = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
            match text {
                "" => Err(EMPTY_SEGMENT),
                _ if !escapes => Err(ESCAPE),
                "*" => Ok(Segment::Any),
                _ => Ok(Segment::Exact(unescape(text))),
            }
        };
        Ok(Self { segments: rest.split('/').map(segment).collect::<Result<_, _>>()? })
    }
}

/// A field selector.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FieldSelector {
    /// The path; true for `=`, false for `!=`; the value.
    terms: Vec<(String, bool, String)>,
}

/// The text isn't a valid field requirement.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{0:?} is none of path=value and path!=value, such as metadata.name=one")]
pub struct FieldSelectorError(String);

impl FieldSelector {
    /// Returns true if an object's fields match; a missing field counts as empty.
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
        Ok(Self { terms: text.split(',').map(term).collect::<Result<_, _>>()? })
    }
}
