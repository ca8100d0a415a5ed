//! A stored object: its identity, and its decoded content or the error. Must never fail on an unusual object: the
//! identity is read leniently, and any other defect becomes the object's [`DecodeError`].

use std::{borrow::Cow, sync::Arc};

use arcstr::ArcStr;
use serde::Deserialize;
use serde_json::Value;

use super::{
    identity::{Metadata, ObjectKey},
    intern::Interner,
};

/// The maximum length of a message in bytes: it may quote a text of the object.
const LONGEST_MESSAGE: usize = 4_096;

/// The reason for which an object has no content. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DecodeError {
    message: ArcStr,
    salvaged: Option<ArcStr>,
}

impl DecodeError {
    /// Creates an error with this message, which is cut if it is long.
    #[must_use]
    pub fn new(message: impl Into<ArcStr>) -> Self {
        let message = message.into();
        if message.len() <= LONGEST_MESSAGE {
            return Self { message, salvaged: None };
        }
        let end = (0..=LONGEST_MESSAGE).rev().find(|end| message.is_char_boundary(*end)).unwrap_or_default();
        Self { message: format!("{} (cut)", message.get(..end).unwrap_or_default()).into(), salvaged: None }
    }

    /// Adds what could be read nevertheless.
    pub(super) fn with_salvaged(self, salvaged: Option<ArcStr>) -> Self {
        Self { salvaged, ..self }
    }

    /// Returns the message, with the part that didn't decode and the reason.
    #[must_use]
    pub fn message(&self) -> &ArcStr {
        &self.message
    }

    /// Returns the text that could be read nevertheless, by
    /// [`Projection::with_salvage`](crate::Projection::with_salvage).
    #[must_use]
    pub fn salvaged(&self) -> Option<&ArcStr> {
        self.salvaged.as_ref()
    }
}

/// An object of an informer.
#[derive(Debug)]
pub struct Object<T> {
    /// Its identity.
    pub metadata: Metadata,
    /// Its decoded content, or the decoding error.
    pub content: Result<Arc<T>, DecodeError>,
}

impl<T> Object<T> {
    /// Returns the key under which the object is stored.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        self.metadata.key.clone()
    }

    /// Returns the content, if it decoded.
    #[must_use]
    pub fn decoded(&self) -> Option<&Arc<T>> {
        self.content.as_ref().ok()
    }
}

impl<T> Clone for Object<T> {
    fn clone(&self) -> Self {
        Self { metadata: self.metadata.clone(), content: self.content.clone() }
    }
}

/// Only `metadata`, with fields of any type.
#[derive(Deserialize)]
struct Identified {
    metadata: Identity,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Identity {
    namespace: Value,
    name: Value,
    uid: Value,
    resource_version: Value,
}

impl Identity {
    fn into_metadata(self, texts: &Interner) -> Option<Metadata> {
        let name = text(&self.name)?;
        let rest = |value| text(value).unwrap_or_default();
        Metadata::bounded([&rest(&self.namespace), &name, &rest(&self.uid), &rest(&self.resource_version)], texts)
    }
}

/// Reads the identity from an object's JSON and skips everything else. Returns `None` if the object has no name.
pub(super) fn metadata_of(json: &str, texts: &Interner) -> Option<Metadata> {
    let Identified { metadata } = serde_json::from_str(json).ok()?;
    metadata.into_metadata(texts)
}

/// Returns a non-empty text; a number as its digits.
pub(super) fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.into()),
        Value::Number(number) => Some(number.to_string().into()),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain(r#"{"metadata":{"namespace":"n","name":"a","uid":"u","resourceVersion":"7"}}"#, Some(("n", "a", "u", "7")))]
    #[case::cluster_scoped(r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"7"}}"#, Some(("", "a", "u", "7")))]
    #[case::version_as_number(r#"{"metadata":{"name":"a","resourceVersion":7}}"#, Some(("", "a", "", "7")))]
    #[case::odd_fields(r#"{"metadata":{"name":"a","uid":[],"namespace":{},"labels":3,"annotations":"x"}}"#, Some(("", "a", "", "")))]
    #[case::longest_name(&format!(r#"{{"metadata":{{"name":"{0}"}}}}"#, "n".repeat(1_012)), Some(("", &*"n".repeat(1_012), "", "")))]
    #[case::too_long_name(&format!(r#"{{"metadata":{{"name":"{0}"}}}}"#, "n".repeat(1_013)), None)]
    #[case::too_long_uid(&format!(r#"{{"metadata":{{"name":"a","uid":"{0}"}}}}"#, "u".repeat(1_013)), None)]
    #[case::longest_version(
        &format!(r#"{{"metadata":{{"name":"a","resourceVersion":"{0}"}}}}"#, "v".repeat(4_096)),
        Some(("", "a", "", &*"v".repeat(4_096)))
    )]
    #[case::too_long_version(&format!(r#"{{"metadata":{{"name":"a","resourceVersion":"{0}"}}}}"#, "v".repeat(4_097)), None)]
    #[case::nameless(r#"{"metadata":{"uid":"u"}}"#, None)]
    #[case::empty_name(r#"{"metadata":{"name":""}}"#, None)]
    #[case::no_metadata(r#"{"kind":"Odd"}"#, None)]
    #[case::metadata_is_text(r#"{"metadata":"x"}"#, None)]
    #[case::not_an_object("[1]", None)]
    fn identity_is_read_leniently(#[case] json: &str, #[case] expected: Option<(&str, &str, &str, &str)>) {
        let metadata = metadata_of(json, &Interner::default());
        let found = metadata.map(|m| (m.key, m.uid.to_string(), m.resource_version.to_string()));
        let expected = expected.map(|(ns, name, uid, version)| (ObjectKey::new(ns, name), uid.into(), version.into()));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        assert_eq!(DecodeError::new("ä".repeat(2_048)).message().as_str(), "ä".repeat(2_048));
        let cut = DecodeError::new(format!("x{}", "ä".repeat(8 << 20)));
        assert_eq!(cut.message().as_str(), format!("x{} (cut)", "ä".repeat(2_047)));
    }
}
