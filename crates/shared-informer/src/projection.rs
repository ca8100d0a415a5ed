//! Decoding of an object's JSON into the stored Rust value. Must never let an unusual object affect others: one that
//! doesn't decode has its identity, which is read leniently, and an error, and a projection that panics counts as failed.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use arcstr::ArcStr;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    intern::Interner,
    object::{DecodeError, Identity, Metadata, Object, metadata_of},
};

/// Reads an object's content, and notes its identity once it has that.
type Read<T> = dyn Fn(&str, &Interner, &mut Option<Metadata>) -> Result<T, String> + Send + Sync;
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
        Self::reading(name, move |json, texts, identity| {
            let metadata = identity.insert(metadata_of(json, texts).ok_or("it has no name")?);
            project(metadata, serde_json::from_str(json).map_err(|error| reason(&error))?)
        })
    }

    /// Like [`Projection::decoded`], of the JSON as the type `D::Json`, which may borrow from the text and has the
    /// identity as well, so that an object is read once.
    pub fn typed<D: Document>(
        name: impl Into<Arc<str>>,
        project: impl Fn(Metadata, D::Json<'_>) -> Result<T, String> + Send + Sync + 'static,
    ) -> Self {
        Self::reading(name, move |json, texts, identity| {
            let object: D::Json<'_> = serde_json::from_str(json).map_err(|error| reason(&error))?;
            let metadata = identity.insert(Metadata::of(object.identity(), texts).ok_or("it has no name")?);
            project(metadata.clone(), object)
        })
    }

    fn reading(
        name: impl Into<Arc<str>>,
        read: impl Fn(&str, &Interner, &mut Option<Metadata>) -> Result<T, String> + Send + Sync + 'static,
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
        let mut identity = None;
        let content = contained(|| (self.read)(json, texts, &mut identity));
        let metadata = identity.or_else(|| metadata_of(json, texts))?;
        let failed = |message| DecodeError::new(message).with_salvaged(self.salvage(json));
        Some(Object { metadata, content: content.map(Arc::new).map_err(failed) })
    }

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

/// Names the type that a projection deserializes an object's JSON to; see [`Projection::typed`].
///
/// ```
/// use shared_informer::{Document, Identified, Identity, IdentityText, Projection};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct WidgetJson<'a> {
///     #[serde(borrow)]
///     metadata: WidgetMetadata<'a>,
///     color: &'a str,
/// }
///
/// #[derive(Deserialize)]
/// struct WidgetMetadata<'a> {
///     #[serde(borrow)]
///     name: IdentityText<'a>,
/// }
///
/// impl Identified for WidgetJson<'_> {
///     fn identity(&self) -> Identity<'_> {
///         Identity { name: &self.metadata.name, ..Identity::default() }
///     }
/// }
///
/// struct Widget;
///
/// impl Document for Widget {
///     type Json<'a> = WidgetJson<'a>;
/// }
///
/// let lengths = Projection::typed::<Widget>("lengths", |_, widget: WidgetJson<'_>| Ok(widget.color.len()));
/// let read = lengths.read(r#"{"metadata":{"name":"one"},"color":"red"}"#, &Default::default()).unwrap();
/// assert_eq!((&*read.metadata.key.name, *read.content.unwrap()), ("one", 3));
/// ```
pub trait Document {
    /// The parts of an object's JSON that are read. May borrow from the text.
    type Json<'a>: Deserialize<'a> + Identified;
}

/// JSON of an object that has its identity.
pub trait Identified {
    /// Returns the identity.
    fn identity(&self) -> Identity<'_>;
}
