//! What an informer holds: one object's identity, and its decoded content or why it has none. Must never fail on an
//! object that is odd: identity is read leniently, and whatever else is wrong becomes the object's [`DecodeError`].

use std::{collections::HashSet, fmt, sync::Arc};

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;

/// An object's identity, as read from its `metadata`. Fields that are absent or of an odd type are `""`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// Namespace; `""` for a cluster-scoped object. The text is shared between all objects of a factory.
    pub namespace: Arc<str>,
    /// Name, never empty.
    pub name: Arc<str>,
    /// Uid: another uid under the same name is another object.
    pub uid: Arc<str>,
    /// Resource version, opaque but for [`Metadata::version_number`].
    pub resource_version: Arc<str>,
}

impl Metadata {
    /// The key under which the object is stored.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        ObjectKey { namespace: Arc::clone(&self.namespace), name: Arc::clone(&self.name) }
    }

    /// The resource version as a number, when it is one. Kubernetes API servers give decimal numbers that grow with
    /// every write; an aggregated API server may give something else.
    #[must_use]
    pub fn version_number(&self) -> Option<u64> {
        self.resource_version.parse().ok()
    }
}

/// Namespace and name of an object. Shown as `namespace/name`, or as `name` when it is cluster-scoped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Namespace; `""` for a cluster-scoped object.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The key of an object in a namespace.
    #[must_use]
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of a cluster-scoped object.
    #[must_use]
    pub fn cluster(name: impl Into<Arc<str>>) -> Self {
        Self::new("", name)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

/// Why an object has no content. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(Arc<str>);

impl DecodeError {
    /// An error with this message.
    #[must_use]
    pub fn new(message: impl Into<Arc<str>>) -> Self {
        Self(message.into())
    }

    /// The message: what did not decode and why.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0
    }
}

/// One object as an informer holds it.
#[derive(Debug)]
pub struct Object<T> {
    /// Who it is.
    pub metadata: Metadata,
    /// What it says, or why that could not be decoded.
    pub content: Result<Arc<T>, DecodeError>,
}

impl<T> Object<T> {
    /// The key under which the object is stored.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        self.metadata.key()
    }

    /// The content, when it decoded.
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

/// `metadata` and nothing else, each field whatever it may be.
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
    fn into_metadata(self, namespaces: &Interner) -> Option<Metadata> {
        let name = text(&self.name)?;
        Some(Metadata {
            namespace: namespaces.intern(&text(&self.namespace).unwrap_or_default()),
            name: name.into(),
            uid: text(&self.uid).unwrap_or_default().into(),
            resource_version: text(&self.resource_version).unwrap_or_default().into(),
        })
    }
}

/// Reads the identity out of an object's JSON without looking at anything else in it. `None` when it has no name.
pub(super) fn metadata_of(json: &str, namespaces: &Interner) -> Option<Metadata> {
    let Identified { metadata } = serde_json::from_str(json).ok()?;
    metadata.into_metadata(namespaces)
}

/// Reads only the resource version out of an object's JSON, as a bookmark holds it.
pub(super) fn resource_version_of(json: &str) -> Option<String> {
    let Identified { metadata } = serde_json::from_str(json).ok()?;
    text(&metadata.resource_version)
}

/// A non-empty text; a number is taken as its digits.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Shares the text of namespaces, which repeats in every object.
#[derive(Debug, Default)]
pub(super) struct Interner {
    known: Mutex<HashSet<Arc<str>>>,
}

impl Interner {
    /// The one shared copy of this text.
    pub(super) fn intern(&self, text: &str) -> Arc<str> {
        let mut known = self.known.lock();
        if let Some(shared) = known.get(text) {
            return Arc::clone(shared);
        }
        // Growing is the moment to forget texts nobody holds any more: the cost stays proportional to the growth.
        if known.len() == known.capacity() {
            known.retain(|text| Arc::strong_count(text) > 1);
        }
        let shared: Arc<str> = text.into();
        known.insert(Arc::clone(&shared));
        shared
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_shown_with_its_namespace_only_when_it_has_one() {
        assert_eq!(ObjectKey::new("ns", "a").to_string(), "ns/a");
        assert_eq!(ObjectKey::cluster("a").to_string(), "a");
    }

    #[rstest::rstest]
    #[case::plain(r#"{"metadata":{"namespace":"n","name":"a","uid":"u","resourceVersion":"7"}}"#, Some(("n", "a", "u", "7")))]
    #[case::cluster_scoped(r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"7"}}"#, Some(("", "a", "u", "7")))]
    #[case::version_as_number(r#"{"metadata":{"name":"a","resourceVersion":7}}"#, Some(("", "a", "", "7")))]
    #[case::odd_fields(r#"{"metadata":{"name":"a","uid":[],"namespace":{},"labels":3,"annotations":"x"}}"#, Some(("", "a", "", "")))]
    #[case::nameless(r#"{"metadata":{"uid":"u"}}"#, None)]
    #[case::empty_name(r#"{"metadata":{"name":""}}"#, None)]
    #[case::no_metadata(r#"{"kind":"Odd"}"#, None)]
    #[case::metadata_is_text(r#"{"metadata":"x"}"#, None)]
    #[case::not_an_object("[1]", None)]
    fn identity_is_read_leniently(#[case] json: &str, #[case] expected: Option<(&str, &str, &str, &str)>) {
        let metadata = metadata_of(json, &Interner::default());
        let found = metadata.as_ref().map(|m| (&*m.namespace, &*m.name, &*m.uid, &*m.resource_version));
        assert_eq!(found, expected);
    }

    #[test]
    fn the_same_namespace_is_one_text() {
        let interner = Interner::default();
        assert!(Arc::ptr_eq(&interner.intern("ns"), &interner.intern("ns")));
    }

    #[test]
    fn namespaces_nobody_holds_are_forgotten() {
        let interner = Interner::default();
        let held = interner.intern("held");
        for n in 0..1000 {
            interner.intern(&n.to_string());
        }
        assert!(interner.known.lock().len() < 100);
        assert!(Arc::ptr_eq(&held, &interner.intern("held")));
    }
}
