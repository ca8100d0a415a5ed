//! How an object's JSON becomes the Rust value that is held. Must never let one object's oddity reach beyond that
//! object: a projection that panics is a projection that failed.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{identity::Metadata, object::DecodeError};

type Project<T> = dyn Fn(&Metadata, &Value) -> Result<T, String> + Send + Sync;

/// How JSON becomes a `T`, under a name. Cheap to clone.
///
/// Informers are shared by (query, `T`, name): two projections with the same `T` and the same name count as the same,
/// and the first one asked for is used.
pub struct Projection<T> {
    name: Arc<str>,
    project: Arc<Project<T>>,
}

impl<T> Projection<T> {
    /// A projection by a function of an object's identity and its whole JSON. Its error says what is wrong in it, and
    /// must not quote what is secret.
    pub fn new(
        name: impl Into<Arc<str>>,
        project: impl Fn(&Metadata, &Value) -> Result<T, String> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), project: Arc::new(project) }
    }

    /// The name, part of what an informer is shared by.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Projects one object; a panic is caught and told as an error.
    pub(super) fn apply(&self, metadata: &Metadata, value: &Value) -> Result<Arc<T>, DecodeError> {
        // Nothing half-made outlives a panic: the closure gives its value whole or not at all.
        catch_unwind(AssertUnwindSafe(|| (self.project)(metadata, value)))
            .unwrap_or_else(|_| Err(format!("the projection {} panicked", self.name)))
            .map(Arc::new)
            .map_err(DecodeError::new)
    }
}

impl<T: 'static> Projection<T> {
    /// The same with a transform: what it gives is what is stored and told. For dropping what nobody reads, before it
    /// takes room. Its name is added to the projection's, since it changes what is shared.
    ///
    /// ```
    /// use capi_autoscaler_provider::informer::Projection;
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
        let Self { name: before, project } = self;
        Self::new(format!("{before}/{name}"), move |metadata, value| transform(metadata, project(metadata, value)?))
    }
}

impl<T: DeserializeOwned> Projection<T> {
    /// Decodes the whole object by `T`'s [`serde::Deserialize`].
    #[must_use]
    pub fn serde() -> Self {
        Self::new("serde", |_, value| T::deserialize(value).map_err(|error| error.to_string()))
    }
}

impl<T> Clone for Projection<T> {
    fn clone(&self) -> Self {
        Self { name: Arc::clone(&self.name), project: Arc::clone(&self.project) }
    }
}

impl<T> fmt::Debug for Projection<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Projection").field("name", &self.name).finish_non_exhaustive()
    }
}
