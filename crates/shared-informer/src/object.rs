//! A stored object: its identity, and its decoded content or the error. Must never fail on an unusual object: the
//! identity is read leniently, and any other defect becomes the object's [`DecodeError`]. Must never change a text of
//! the identity: it is displayed as the API server sent it.

use std::{borrow::Cow, fmt, num::NonZeroU64, ops::Deref, sync::Arc};

use arcstr::ArcStr;
use serde::{
    Deserialize,
    de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;

use super::intern::Interner;

/// Namespace and name of an object. Displayed as `namespace/name`, or as `name` if it is cluster-scoped.
///
/// ```
/// use shared_informer::ObjectKey;
///
/// let key = ObjectKey::new("team-a", "workers");
/// assert_eq!(key.to_string(), "team-a/workers");
/// assert_eq!(&*key.name, "workers");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Namespace; `""` for a cluster-scoped object.
    pub namespace: ArcStr,
    /// Name.
    pub name: ArcStr,
}

impl ObjectKey {
    /// Creates the key of an object in a namespace.
    pub fn new(namespace: impl Into<ArcStr>, name: impl Into<ArcStr>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Creates the key of a cluster-scoped object.
    pub fn cluster(name: impl Into<ArcStr>) -> Self {
        Self::new("", name)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

/// An object's uid: an object with another uid under the same name is another object. Any text is valid; a UUID takes
/// 16 bytes.
///
/// ```
/// use shared_informer::Uid;
///
/// let text = "9b4bf4b1-715d-4c5b-a5ff-9d257f4156e2";
/// assert_eq!(Uid::from(text).to_string(), text);
/// assert_eq!(Uid::from("my-uid").to_string(), "my-uid");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Uid(UidForm);

/// The first half of a UUID is never all zeros, so the enum needs no extra byte for its tag.
#[derive(Clone, PartialEq, Eq, Hash)]
enum UidForm {
    Uuid(NonZeroU64, u64),
    Text(ArcStr),
}

impl Uid {
    /// Returns true if it is `""`: the object has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match &self.0 {
            UidForm::Uuid(..) => false,
            UidForm::Text(text) => text.is_empty(),
        }
    }
}

/// The length of a UUID as Kubernetes writes it.
const UUID_LEN: usize = 36;

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        let uuid = uuid_of(text).and_then(|(high, low)| Some(UidForm::Uuid(NonZeroU64::new(high)?, low)));
        Self(uuid.unwrap_or_else(|| UidForm::Text(text.into())))
    }
}

impl From<String> for Uid {
    fn from(text: String) -> Self {
        Self::from(&*text)
    }
}

/// Returns the halves of a UUID as Kubernetes writes it, in lower case with hyphens. Any other spelling stays a text,
/// so that it is displayed unchanged.
fn uuid_of(text: &str) -> Option<(u64, u64)> {
    let bytes = text.as_bytes();
    if bytes.len() != UUID_LEN {
        return None;
    }
    let mut value = 0_u128;
    for (position, byte) in bytes.iter().enumerate() {
        let digit = match (position, byte) {
            (8 | 13 | 18 | 23, b'-') => continue,
            (8 | 13 | 18 | 23, _) => return None,
            (_, b'0'..=b'9') => byte - b'0',
            (_, b'a'..=b'f') => byte - b'a' + 10,
            (_, _) => return None,
        };
        value = value << 4 | u128::from(digit);
    }
    let low = u64::try_from(value & u128::from(u64::MAX)).ok()?;
    Some((u64::try_from(value >> 64).ok()?, low))
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            UidForm::Text(text) => f.write_str(text),
            UidForm::Uuid(high, low) => {
                let high = high.get();
                let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xffff);
                write!(f, "{a:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}", low >> 48, low & 0xffff_ffff_ffff)
            }
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// An object's resource version: any text. Decimal numbers can be compared.
///
/// ```
/// use shared_informer::ResourceVersion;
///
/// assert!(ResourceVersion::from("9").number() < ResourceVersion::from("10").number());
/// assert_eq!(ResourceVersion::from("v1:9").number(), None);
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceVersion(VersionForm);

#[derive(Clone, PartialEq, Eq, Hash)]
enum VersionForm {
    Number(u64),
    Text(ArcStr),
}

impl ResourceVersion {
    /// Returns the version as a number, if it is one. Kubernetes API servers use decimal numbers that grow with every
    /// write; an aggregated API server may use something else.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        match self.0 {
            VersionForm::Number(number) => Some(number),
            VersionForm::Text(_) => None,
        }
    }

    /// Returns true if it is `""`: the object has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match &self.0 {
            VersionForm::Number(_) => false,
            VersionForm::Text(text) => text.is_empty(),
        }
    }
}

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> Self {
        // Other spellings such as `007` and `+7` remain texts, so that they are displayed unchanged.
        let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
        let number = if plain { text.parse().ok() } else { None };
        Self(number.map_or_else(|| VersionForm::Text(text.into()), VersionForm::Number))
    }
}

impl From<String> for ResourceVersion {
    fn from(text: String) -> Self {
        Self::from(&*text)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            VersionForm::Number(number) => number.fmt(f),
            VersionForm::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// An object's identity, as read from its `metadata`. Fields that are absent or of another type are `""`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// Namespace and name. The name is never empty. The texts are interned.
    pub key: ObjectKey,
    /// The uid, which differs between objects that had the same name one after the other.
    pub uid: Uid,
    /// The version that was read.
    pub resource_version: ResourceVersion,
}

impl Metadata {
    /// The maximum length of a namespace, name or uid in bytes: four times that of a DNS name.
    pub const LONGEST_TEXT: usize = 1_012;
    /// The maximum length of a version in bytes: a proxy of many clusters may join theirs.
    pub const LONGEST_VERSION: usize = 4_096;

    /// The identity of no object: its name is empty.
    pub(super) const NONE: Self = Self {
        key: ObjectKey { namespace: ArcStr::new(), name: ArcStr::new() },
        uid: Uid(UidForm::Text(ArcStr::new())),
        resource_version: ResourceVersion(VersionForm::Text(ArcStr::new())),
    };

    /// Creates it from the texts, or returns `None` if it has no name, or a text is too long: a server that sends what no
    /// API server has would fill the memory.
    pub(super) fn of(texts: Identity<'_>, interner: &Interner) -> Option<Self> {
        let Identity { namespace, name, uid, resource_version: version } = texts;
        let is_too_long = [namespace, name, uid].iter().any(|text| text.len() > Self::LONGEST_TEXT);
        if name.is_empty() || is_too_long || version.len() > Self::LONGEST_VERSION {
            return None;
        }
        Some(Self {
            key: ObjectKey { namespace: interner.intern(namespace), name: interner.intern(name) },
            uid: Uid::from(uid),
            resource_version: ResourceVersion::from(version),
        })
    }

    /// Returns the length of its texts in bytes. A UUID and a number have none of their own.
    #[cfg(feature = "client")]
    pub(super) fn text_bytes(&self) -> usize {
        let uid = match &self.uid.0 {
            UidForm::Uuid(..) => 0,
            UidForm::Text(text) => text.len(),
        };
        let version = match &self.resource_version.0 {
            VersionForm::Number(_) => 0,
            VersionForm::Text(text) => text.len(),
        };
        self.key.namespace.len() + self.key.name.len() + uid + version
    }
}

/// Returns true if both versions are numbers and the first one's is greater.
#[cfg(feature = "client")]
pub(super) fn is_newer(one: &Metadata, other: &Metadata) -> bool {
    let version = other.resource_version.number();
    version.is_some() && one.resource_version.number() > version
}

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

/// A text of an identity, which borrows from the JSON unless it has escapes. Any JSON is valid: a number counts as its
/// digits, and what is no text as `""`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct IdentityText<'a>(Cow<'a, str>);

impl Deref for IdentityText<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for IdentityText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyJson;

        impl<'de> Visitor<'de> for AnyJson {
            type Value = Cow<'de, str>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any JSON")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(text.into())
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(text.to_owned().into())
            }

            fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
                Ok(number.to_string().into())
            }

            fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
                Ok(number.to_string().into())
            }

            fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
                Ok(Value::from(number).to_string().into())
            }

            fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
                Ok(Cow::default())
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Cow::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                IgnoredAny.visit_seq(list).map(|_| Cow::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                IgnoredAny.visit_map(map).map(|_| Cow::default())
            }
        }

        deserializer.deserialize_any(AnyJson).map(Self)
    }
}

/// The texts of an object's identity, as they are in its `metadata`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity<'a> {
    /// The namespace; `""` if there is none.
    pub namespace: &'a str,
    /// The name; `""` if there is none, and then it is no object.
    pub name: &'a str,
    /// The uid.
    pub uid: &'a str,
    /// The resourceVersion.
    pub resource_version: &'a str,
}

/// Reads the identity from an object's JSON and skips everything else. Returns `None` if the object has no name.
pub(super) fn metadata_of(json: &str, texts: &Interner) -> Option<Metadata> {
    #[derive(Deserialize)]
    struct Identified<'a> {
        #[serde(borrow)]
        metadata: Texts<'a>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Texts<'a> {
        #[serde(borrow)]
        namespace: IdentityText<'a>,
        name: IdentityText<'a>,
        uid: IdentityText<'a>,
        resource_version: IdentityText<'a>,
    }

    let Identified { metadata } = serde_json::from_str(json).ok()?;
    let Texts { namespace, name, uid, resource_version } = &metadata;
    Metadata::of(Identity { namespace, name, uid, resource_version }, texts)
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
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[test]
    fn an_identity_is_small() {
        assert_eq!(size_of::<Uid>(), 16);
        assert_eq!(size_of::<ResourceVersion>(), 16);
        assert_eq!(size_of::<Metadata>(), 48);
    }

    #[test]
    fn a_key_is_shown_with_its_namespace_only_when_it_has_one() {
        assert_eq!(ObjectKey::new("ns", "a").to_string(), "ns/a");
        assert_eq!(ObjectKey::cluster("a").to_string(), "a");
    }

    proptest! {
        #[test]
        fn a_uid_is_shown_as_it_came(
            text in "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-fA-F-]{36}|.*|0{8}-0{4}-0{4}-[0-9]{4}-0{12}"
        ) {
            let uid = Uid::from(&*text);
            prop_assert_eq!(uid.to_string(), text);
        }

        #[test]
        fn a_version_is_shown_as_it_came(text in "[0-9]{0,22}|[+-]?0*[0-9]{1,3}|.*") {
            prop_assert_eq!(ResourceVersion::from(&*text).to_string(), text);
        }

        #[test]
        fn versions_are_ordered_as_numbers(a: u64, b: u64) {
            let number = |n: u64| ResourceVersion::from(n.to_string()).number();
            prop_assert_eq!(number(a).cmp(&number(b)), a.cmp(&b));
        }
    }

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
