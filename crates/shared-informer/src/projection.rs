//! Decoding of an object's JSON into the stored Rust value, in one pass over its text. Must never let an unusual object
//! affect others: one that doesn't decode has its identity, which is read leniently, and an error, and a projection that
//! panics counts as failed.

use std::{
    borrow::Cow,
    fmt,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use arcstr::ArcStr;
use serde::{
    Deserialize,
    de::{DeserializeOwned, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::Value;

use super::{
    intern::Interner,
    object::{DecodeError, Metadata, Object, metadata_of},
};

/// Reads an object's identity and its content; `None` if it has no name.
type Read<T> = dyn Fn(&str, &Interner) -> Option<(Metadata, Result<T, String>)> + Send + Sync;
type Salvage = dyn Fn(&str) -> Option<ArcStr> + Send + Sync;

/// A function that returns the identity within a content.
pub(super) type IdentityOf<T> = fn(&T) -> &Metadata;

/// A function that returns the bytes of a content's texts.
pub(super) type BytesOf<T> = fn(&T) -> usize;

/// A named decoder from JSON to a `T`. Cheap to clone.
///
/// Informers are shared by (query, `T`, name): two projections with the same `T` and the same name count as equal,
/// and the first one requested is used.
pub struct Projection<T> {
    name: Arc<str>,
    read: Arc<Read<T>>,
    salvage: Option<Arc<Salvage>>,
    pub(super) identity: IdentityOf<T>,
    pub(super) bytes_of: Option<BytesOf<T>>,
}

/// The identity within a content that has none: no object's.
pub(super) fn no_identity<T>(_: &T) -> &Metadata {
    static NONE: Metadata = Metadata::NONE;
    &NONE
}

impl<T> Projection<T> {
    /// Creates a projection from a function of an object's identity and its whole JSON. Its error describes the
    /// defect, and must not quote secrets.
    pub fn new(
        name: impl Into<Arc<str>>,
        project: impl Fn(&Metadata, Value) -> Result<T, String> + Send + Sync + 'static,
    ) -> Self {
        Self::decoded(name, project)
    }

    /// Like [`Projection::new`], but of the JSON as any type that owns its data.
    ///
    /// ```
    /// use shared_informer::Projection;
    /// use serde::Deserialize;
    ///
    /// #[derive(Deserialize)]
    /// struct Widget {
    ///     size: u32,
    /// }
    ///
    /// let sizes = Projection::decoded("sizes", |_, widget: Widget| Ok(widget.size));
    /// # let _ = sizes;
    /// ```
    pub fn decoded<J: DeserializeOwned>(
        name: impl Into<Arc<str>>,
        project: impl Fn(&Metadata, J) -> Result<T, String> + Send + Sync + 'static,
    ) -> Self {
        Self::reading(name, move |json, texts| {
            let metadata = metadata_of(json, texts)?;
            let content = contained(|| project(&metadata, serde_json::from_str(json).map_err(|error| reason(&error))?));
            Some((metadata, content))
        })
    }

    /// Creates a projection from a function of an object's identity and its JSON as the type `D::Json`, which may
    /// borrow from the text. Both are read in one pass. Its error is like that of [`Projection::new`].
    pub fn typed<D: Document>(
        name: impl Into<Arc<str>>,
        project: impl Fn(Metadata, D::Json<'_>) -> Result<T, String> + Send + Sync + 'static,
    ) -> Self {
        Self::reading(name, move |json, texts| {
            let mut metadata = None;
            let content = contained(|| {
                let document: D::Json<'_> = document(json).map_err(|error| reason(&error))?;
                metadata = document.identity().metadata(texts).or_else(|| metadata_of(json, texts));
                let metadata = metadata.clone().ok_or("it has no name")?;
                project(metadata, document)
            });
            Some((metadata.or_else(|| metadata_of(json, texts))?, content))
        })
    }

    fn reading(
        name: impl Into<Arc<str>>,
        read: impl Fn(&str, &Interner) -> Option<(Metadata, Result<T, String>)> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), read: Arc::new(read), salvage: None, identity: no_identity, bytes_of: None }
    }

    /// Declares where the content contains the object's identity, so that a store keeps no second copy of it. This
    /// saves some 90 bytes per object. An identity that differs from that of the object is stored as well.
    ///
    /// ```
    /// use shared_informer::{Metadata, Projection};
    ///
    /// struct Size {
    ///     of: Metadata,
    ///     size: u64,
    /// }
    ///
    /// let sizes = Projection::new("sizes", |metadata, object| {
    ///     Ok(Size { of: metadata.clone(), size: object["spec"]["size"].as_u64().unwrap_or_default() })
    /// })
    /// .with_identity_within(|size| &size.of);
    /// # let _ = sizes;
    /// ```
    #[must_use]
    pub fn with_identity_within(self, identity: fn(&T) -> &Metadata) -> Self {
        Self { identity, ..self }
    }

    /// Declares the bytes of a content besides those of its type: its texts, without those of its identity, and its
    /// lists and maps. An informer's limit of bytes counts them.
    ///
    /// ```
    /// use shared_informer::Projection;
    /// use serde_json::Value;
    ///
    /// let notes = Projection::new("notes", |_, object: Value| Ok(object["note"].to_string())).with_bytes(String::len);
    /// # let _ = notes;
    /// ```
    #[must_use]
    pub fn with_bytes(self, bytes: fn(&T) -> usize) -> Self {
        Self { bytes_of: Some(bytes), ..self }
    }

    /// Returns the bytes of a content, as [`Self::with_bytes`] declares them; 0 without that.
    #[must_use]
    pub fn bytes_of(&self, content: &T) -> usize {
        self.bytes_of.map_or(0, |bytes| bytes(content))
    }

    /// Declares what is still read of an object that doesn't decode: a text found in its JSON, such as a label. The
    /// object's [`DecodeError`] has it.
    ///
    /// ```
    /// use shared_informer::{Interner, Projection};
    /// use serde_json::Value;
    ///
    /// let team = |json: &str| {
    ///     let object: Value = serde_json::from_str(json).ok()?;
    ///     Some(object["metadata"]["labels"]["team"].as_str()?.into())
    /// };
    /// let sizes = Projection::new("sizes", |_, object| object["size"].as_u64().ok_or("no size".to_owned()));
    /// let odd = r#"{"metadata":{"name":"odd","labels":{"team":"a"}},"size":"x"}"#;
    /// let odd = sizes.with_salvage(team).read(odd, &Interner::default()).unwrap();
    /// assert_eq!(odd.content.unwrap_err().salvaged().unwrap(), "a");
    /// ```
    #[must_use]
    pub fn with_salvage(self, read: impl Fn(&str) -> Option<ArcStr> + Send + Sync + 'static) -> Self {
        Self { salvage: Some(Arc::new(read)), ..self }
    }

    /// Returns the name, which is part of the key that informers are shared by.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Reads an object as an informer does; `None` if it has no name. One that doesn't decode has its name and an error.
    #[must_use]
    pub fn read(&self, json: &str, texts: &Interner) -> Option<Object<T>> {
        let (metadata, content) = (self.read)(json, texts)?;
        let failed = |message| DecodeError::new(message).with_salvaged(self.salvage(json));
        Some(Object { metadata, content: content.map(Arc::new).map_err(failed) })
    }

    /// Returns what is read of an object that doesn't decode.
    fn salvage(&self, json: &str) -> Option<ArcStr> {
        let read = self.salvage.as_ref()?;
        catch_unwind(AssertUnwindSafe(|| read(json))).ok()?
    }
}

/// Calls a projection's function, whose panic is the error of one object. No half-built value is left behind: the
/// function returns its value whole or not at all.
fn contained<T>(project: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(project)).unwrap_or_else(|_| Err("the projection panicked".to_owned()))
}

/// Returns the reason without the place in the text, which the reader doesn't have.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&*place).unwrap_or(&text).to_owned()
}

impl<T: DeserializeOwned> Projection<T> {
    /// Decodes the whole object by `T`'s [`serde::Deserialize`]. A [`RawValue`](serde_json::value::RawValue) keeps its
    /// text, from which a handler reads what it needs.
    ///
    /// ```
    /// use serde_json::value::RawValue;
    /// use shared_informer::{Interner, Projection};
    ///
    /// let texts = Projection::<Box<RawValue>>::serde().with_bytes(|text| text.get().len());
    /// let json = r#"{"metadata":{"name":"one"}, "size":3}"#;
    /// let one = texts.read(json, &Interner::default()).unwrap().content.unwrap();
    /// assert_eq!(one.get(), json);
    /// ```
    #[must_use]
    pub fn serde() -> Self {
        Self::decoded("serde", |_, object| Ok(object))
    }
}

impl<T> Clone for Projection<T> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            read: Arc::clone(&self.read),
            salvage: self.salvage.clone(),
            identity: self.identity,
            bytes_of: self.bytes_of,
        }
    }
}

impl<T> fmt::Debug for Projection<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Projection").field("name", &self.name).finish_non_exhaustive()
    }
}

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
    fn metadata(self, texts: &Interner) -> Option<Metadata> {
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
fn document<'a, J: Deserialize<'a>>(json: &'a str) -> Result<J, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let document = from_object(&mut deserializer)?;
    deserializer.end().map(|()| document)
}
