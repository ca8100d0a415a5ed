//! The parts of an object that one pass over its JSON reads: its identity and its content, borrowed from the text.
//! Must never return an identity that `metadata_of` wouldn't: anything unusual is left to that.
//!
//! An object that the pass refuses, for example because a field comes twice or a number stands for a text, takes the
//! careful path: first its identity, leniently, then its content from a JSON tree, into the same types. Tests compare
//! both over mutilated objects. They differ in one case: a number beyond all bounds, half a surrogate pair or a depth
//! of more than 128 in a field that nobody reads has no tree, and the single pass doesn't see it.

use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize,
    de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};

use super::{identity::Metadata, intern::Interner};

/// Names the type that a projection deserializes an object's JSON to; see
/// [`Projection::typed`](super::Projection::typed).
///
/// ```
/// use shared_informer::{Document, Identified, Identity, IdentityText, Projection};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct WidgetJson<'a> {
///     #[serde(borrow)]
///     metadata: WidgetMetadata<'a>,
///     size: u32,
/// }
///
/// #[derive(Deserialize)]
/// #[serde(rename_all = "camelCase")]
/// struct WidgetMetadata<'a> {
///     #[serde(borrow, default)]
///     name: IdentityText<'a>,
///     #[serde(borrow, default)]
///     namespace: IdentityText<'a>,
///     #[serde(borrow, default)]
///     uid: IdentityText<'a>,
///     #[serde(borrow, default)]
///     resource_version: IdentityText<'a>,
/// }
///
/// impl Identified for WidgetJson<'_> {
///     fn identity(&self) -> Identity<'_> {
///         let WidgetMetadata { name, namespace, uid, resource_version } = &self.metadata;
///         Identity { namespace, name, uid, resource_version }
///     }
/// }
///
/// struct Widget;
///
/// impl Document for Widget {
///     type Json<'a> = WidgetJson<'a>;
/// }
///
/// let sizes = Projection::typed::<Widget>("sizes", |_, widget: WidgetJson<'_>| Ok(widget.size));
/// let texts = Default::default();
/// let read = sizes.read(r#"{"metadata":{"name":"one","resourceVersion":"7"},"size":3}"#, &texts).unwrap();
/// assert_eq!((&*read.metadata.key.name, *read.content.unwrap()), ("one", 3));
/// ```
pub trait Document {
    /// The parts of an object's JSON that are read. May borrow from the text.
    type Json<'a>: Deserialize<'a> + Identified;
}

/// JSON that contains the identity of its object.
pub trait Identified {
    /// Returns the identity, as it is in the JSON.
    fn identity(&self) -> Identity<'_>;
}

/// The fields of `metadata` that identify an object and its version.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// `metadata.namespace`
    pub namespace: &'a IdentityText<'a>,
    /// `metadata.name`
    pub name: &'a IdentityText<'a>,
    /// `metadata.uid`
    pub uid: &'a IdentityText<'a>,
    /// `metadata.resourceVersion`
    pub resource_version: &'a IdentityText<'a>,
}

impl Identity<'_> {
    /// Returns the identity, or `None` if it has no name, or a field that is neither text nor absent, or too long.
    pub(super) fn metadata(self, texts: &Interner) -> Option<Metadata> {
        let name = self.name.text().filter(|name| !name.is_empty())?;
        let (namespace, uid, version) = (self.namespace.text()?, self.uid.text()?, self.resource_version.text()?);
        Metadata::bounded([namespace, name, uid, version], texts)
    }
}

/// A field of an object's identity. It decodes from any JSON, so that an unusual value doesn't fail the content.
#[derive(Debug, Default)]
pub struct IdentityText<'a>(Found<'a>);

#[derive(Debug, Default)]
enum Found<'a> {
    /// Absent or null.
    #[default]
    Absent,
    Text(Cow<'a, str>),
    /// Another type, such as a number.
    Odd,
}

impl IdentityText<'_> {
    /// Returns the text, empty if absent, or `None` for another type.
    fn text(&self) -> Option<&str> {
        match &self.0 {
            Found::Absent => Some(""),
            Found::Text(text) => Some(text),
            Found::Odd => None,
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for IdentityText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FoundVisitor).map(Self)
    }
}

struct FoundVisitor;

impl<'de> Visitor<'de> for FoundVisitor {
    type Value = Found<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Found::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Found::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(Found::Text(Cow::Owned(text)))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Found::Absent)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Found::Odd)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Found::Odd)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Found::Odd)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Found::Odd)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Found::Odd)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Found::Odd)
    }
}

/// Deserializes a struct from a JSON object only. serde also accepts a JSON array with the fields in their order,
/// which is an error here: an identity has no positions.
///
/// # Errors
/// When the JSON isn't an object, or the object isn't a `T`.
pub fn from_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    struct ObjectVisitor<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }

    deserializer.deserialize_map(ObjectVisitor(PhantomData))
}

/// Deserializes a text that is exactly one JSON object.
pub(super) fn document<'a, J: Deserialize<'a>>(json: &'a str) -> Option<J> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let document = from_object(&mut deserializer).ok()?;
    deserializer.end().ok()?;
    Some(document)
}
