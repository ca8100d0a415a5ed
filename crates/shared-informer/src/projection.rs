//! Decoding of an object's JSON into the stored Rust value. Must never let an unusual object affect others: a
//! projection that panics counts as failed.

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

type Quick<T> = dyn Fn(&str, &Interner) -> Option<(Metadata, T)> + Send + Sync;
type Careful<T> = dyn Fn(&Metadata, Value) -> Result<T, String> + Send + Sync;
type Salvage = dyn Fn(&str) -> Option<ArcStr> + Send + Sync;

/// A function that returns the identity within a content.
pub(super) type IdentityOf<T> = fn(&T) -> &Metadata;

/// A function that returns the bytes of a content's texts.
pub(super) type BytesOf<T> = fn(&T) -> usize;

/// A named decoder from JSON to a `T`. Cheap to clone.
///
/// Informers are shared by (query, `T`, name): two projections with the same `T` and the same name count as equal,
/// and the first one requested is used.
///
/// Each object is first read in one pass over its text. If that fails, a slower path reads the identity leniently, and
/// the content from a tree of the JSON. It accepts a number as a version, uses the last of repeated fields, and returns
/// an object that doesn't decode with its name and an error. Both paths return the same, with two exceptions. The tree
/// also holds the values that `T` doesn't read: a number out of range, half a surrogate pair or a depth of more than
/// 128 in such a value fails the tree, but not the pass. And a `RawValue` of the tree is written anew, with its fields
/// sorted and without spaces between them.
pub struct Projection<T> {
    name: Arc<str>,
    quick: Arc<Quick<T>>,
    careful: Arc<Careful<T>>,
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
    /// defect, and must not quote secrets. An object for which it fails is passed to it a second time.
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
        let project = Arc::new(project);
        let of_tree = Arc::clone(&project);
        let quick = move |json: &str, texts: &Interner| {
            let value = serde_json::from_str(json).ok()?;
            let metadata = metadata_of(json, texts)?;
            let content = project(&metadata, value).ok()?;
            Some((metadata, content))
        };
        let careful = move |metadata: &Metadata, value: Value| {
            of_tree(metadata, J::deserialize(value).map_err(|e| e.to_string())?)
        };
        Self {
            name: name.into(),
            quick: Arc::new(quick),
            careful: Arc::new(careful),
            salvage: None,
            identity: no_identity,
            bytes_of: None,
        }
    }

    /// Creates a projection from a function of an object's identity and its JSON as the type `D::Json`, which is read
    /// without a tree and may borrow from the text. Its error is like that of [`Projection::new`].
    pub fn typed<D: Document>(
        name: impl Into<Arc<str>>,
        project: impl Fn(Metadata, D::Json<'_>) -> Result<T, String> + Send + Sync + 'static,
    ) -> Self {
        let project = Arc::new(project);
        let of_tree = Arc::clone(&project);
        let quick = move |json: &str, texts: &Interner| {
            let document: D::Json<'_> = document(json)?;
            let metadata = document.identity().metadata(texts)?;
            let content = project(metadata.clone(), document).ok()?;
            Some((metadata, content))
        };
        let careful = move |metadata: &Metadata, value: Value| {
            let document = D::Json::deserialize(&value).map_err(|error| error.to_string())?;
            of_tree(metadata.clone(), document)
        };
        Self {
            name: name.into(),
            quick: Arc::new(quick),
            careful: Arc::new(careful),
            salvage: None,
            identity: no_identity,
            bytes_of: None,
        }
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

    /// Reads an object as an informer does; `None` if it has no name.
    #[must_use]
    pub fn read(&self, json: &str, texts: &Interner) -> Option<Object<T>> {
        self.read_quickly(json, texts).or_else(|| self.read_carefully(json, texts))
    }

    /// Reads an object by the tree-based path alone, for tests that compare the two paths.
    #[doc(hidden)]
    #[must_use]
    pub fn read_carefully(&self, json: &str, texts: &Interner) -> Option<Object<T>> {
        let metadata = metadata_of(json, texts)?;
        let content = serde_json::from_str(json)
            .map_err(|error| error.to_string())
            .and_then(|value| {
                // A panic leaves no half-built value: the closure returns its value whole or not at all.
                catch_unwind(AssertUnwindSafe(|| (self.careful)(&metadata, value)))
                    .unwrap_or_else(|_| Err(format!("the projection {} panicked", self.name)))
            })
            .map(Arc::new)
            .map_err(|message| DecodeError::new(message).with_salvaged(self.salvage(json)));
        Some(Object { metadata, content })
    }

    /// Returns what is read of an object that doesn't decode.
    fn salvage(&self, json: &str) -> Option<ArcStr> {
        let read = self.salvage.as_ref()?;
        catch_unwind(AssertUnwindSafe(|| read(json))).ok()?
    }

    /// Reads an object in one pass; `None` if the tree-based path is needed. Public for tests, like
    /// [`Self::read_carefully`].
    #[doc(hidden)]
    #[must_use]
    pub fn read_quickly(&self, json: &str, texts: &Interner) -> Option<Object<T>> {
        let (metadata, content) = catch_unwind(AssertUnwindSafe(|| (self.quick)(json, texts))).ok()??;
        Some(Object { metadata, content: Ok(Arc::new(content)) })
    }
}

impl<T: 'static> Projection<T> {
    /// Adds a transform, whose result is stored and passed to handlers. It can drop unused parts before they take
    /// memory. Its name is appended to the projection's, since it changes the shared value.
    ///
    /// ```
    /// use shared_informer::Projection;
    /// use serde_json::Value;
    ///
    /// let slim = Projection::<Value>::serde().transform("no-status", |_, mut object| {
    ///     if let Some(fields) = object.as_object_mut() {
    ///         fields.remove("status");
    ///     }
    ///     Ok(object)
    /// });
    /// assert_eq!(&**slim.name(), "serde/no-status");
    /// ```
    #[must_use]
    pub fn transform(
        self,
        name: &str,
        transform: impl Fn(&Metadata, T) -> Result<T, String> + Send + Sync + 'static,
    ) -> Self {
        let Self { name: before, quick, careful, salvage, identity, bytes_of } = self;
        let transform = Arc::new(transform);
        let of_tree = Arc::clone(&transform);
        let quick = move |json: &str, texts: &Interner| {
            let (metadata, content) = quick(json, texts)?;
            let content = transform(&metadata, content).ok()?;
            Some((metadata, content))
        };
        let careful = move |metadata: &Metadata, value: Value| of_tree(metadata, careful(metadata, value)?);
        let name = format!("{before}/{name}").into();
        Self { name, quick: Arc::new(quick), careful: Arc::new(careful), salvage, identity, bytes_of }
    }
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
            quick: Arc::clone(&self.quick),
            careful: Arc::clone(&self.careful),
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
