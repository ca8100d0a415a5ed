//! A stored object, and its memory as an estimate. Only the content is kept if that contains the identity: a separate
//! identity, in an allocation of its own, would be a sixth of the memory of a small object. Must never return another
//! object than the stored one.

use std::{mem, num::NonZeroU32, ops::AddAssign, sync::Arc};

use arcstr::ArcStr;

use super::{Settings, failure::Failure};
use crate::{
    object::{DecodeError, Metadata, Object},
    projection::{BytesOf, IdentityOf},
};

/// The lists that contained an object, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lists {
    /// The last one.
    pub(super) last: NonZeroU32,
    /// The last one that had begun when the object was added.
    pub(super) since: NonZeroU32,
}

/// The function that returns the identity within a content is the same for all objects of a store, which passes it.
pub(super) enum Stored<T> {
    Content(Arc<T>, Lists),
    Whole(Box<(Arc<Object<T>>, Lists)>),
}

impl<T> Stored<T> {
    /// Stores an object. If its content has another identity, or none, the whole object is kept.
    pub(super) fn new(object: &Arc<Object<T>>, lists: Lists, identity: IdentityOf<T>) -> Self {
        match &object.content {
            Ok(content) if *identity(content) == object.metadata => Self::Content(Arc::clone(content), lists),
            Ok(_) | Err(_) => Self::Whole(Box::new((Arc::clone(object), lists))),
        }
    }

    /// Stores another state of the object, and returns the replaced one.
    pub(super) fn replace(&mut self, object: &Arc<Object<T>>, identity: IdentityOf<T>) -> Arc<Object<T>> {
        let new = Self::new(object, self.lists(), identity);
        mem::replace(self, new).object(identity)
    }

    pub(super) fn metadata(&self, identity: IdentityOf<T>) -> &Metadata {
        match self {
            Self::Content(content, _) => identity(content),
            Self::Whole(whole) => &whole.0.metadata,
        }
    }

    pub(super) fn content(&self) -> Result<&T, &DecodeError> {
        match self {
            Self::Content(content, _) => Ok(content),
            Self::Whole(whole) => whole.0.content.as_deref(),
        }
    }

    pub(super) fn object(&self, identity: IdentityOf<T>) -> Arc<Object<T>> {
        match self {
            Self::Content(content, _) => {
                Arc::new(Object { metadata: identity(content).clone(), content: Ok(Arc::clone(content)) })
            }
            Self::Whole(whole) => Arc::clone(&whole.0),
        }
    }

    pub(super) fn lists(&self) -> Lists {
        match self {
            Self::Content(_, lists) => *lists,
            Self::Whole(whole) => whole.1,
        }
    }

    pub(super) fn set_last_list(&mut self, number: NonZeroU32) {
        match self {
            Self::Content(_, lists) => lists.last = number,
            Self::Whole(whole) => whole.1.last = number,
        }
    }
}

/// The memory of an object besides its content and its texts, in bytes: its entries in tables, and what allocators and
/// shared texts add.
const ENTRY: usize = 128;

/// A number of objects, and their memory in bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Amount {
    pub(super) objects: usize,
    pub(super) bytes: usize,
}

impl Amount {
    /// Checks the limits.
    ///
    /// # Errors
    /// The limit that is exceeded.
    pub(super) fn check(self, settings: &Settings) -> Result<(), Failure> {
        let Settings { max_objects, max_bytes, .. } = settings;
        if self.objects > *max_objects {
            return Err(Failure::BeyondLimit(format!(
                "there are more than {max_objects} objects: delete some, or let this process read fewer of them"
            )));
        }
        if self.bytes > *max_bytes {
            return Err(Failure::beyond("all objects", *max_bytes));
        }
        Ok(())
    }

    pub(super) fn without(self, part: Self) -> Self {
        Self { objects: self.objects.saturating_sub(part.objects), bytes: self.bytes.saturating_sub(part.bytes) }
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.objects += other.objects;
        self.bytes += other.bytes;
    }
}

/// Returns the memory of an object. A text that it shares with others counts in full.
pub(super) fn memory_of<T>(
    metadata: &Metadata,
    content: Result<&T, &DecodeError>,
    bytes_of: Option<BytesOf<T>>,
) -> usize {
    let content = match content {
        Ok(content) => size_of::<T>() + bytes_of.map_or(0, |bytes_of| bytes_of(content)),
        Err(error) => error.message().len() + error.salvaged().map_or(0, ArcStr::len),
    };
    ENTRY + metadata.text_bytes() + content
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObjectKey;

    struct Thing {
        meta: Metadata,
    }

    const LISTS: Lists = Lists { last: NonZeroU32::MAX, since: NonZeroU32::MIN };

    fn metadata(version: &str) -> Metadata {
        Metadata { key: ObjectKey::new("n", "a"), uid: "u".into(), resource_version: version.into() }
    }

    fn identity(thing: &Thing) -> &Metadata {
        &thing.meta
    }

    #[test]
    fn a_place_in_a_store_is_small() {
        assert_eq!(size_of::<Stored<Thing>>(), 16);
    }

    #[test]
    fn a_content_with_the_identity_in_it_is_kept_alone() {
        let given = Arc::new(Object { metadata: metadata("1"), content: Ok(Arc::new(Thing { meta: metadata("1") })) });
        let kept = Stored::new(&given, LISTS, identity);
        let weak = Arc::downgrade(&given);
        let content = given.decoded().map(Arc::clone).unwrap();
        drop(given);
        assert!(weak.upgrade().is_none(), "nothing else is held");
        assert_eq!(*kept.metadata(identity), metadata("1"));
        let read = kept.object(identity);
        assert_eq!(read.metadata, metadata("1"));
        assert!(Arc::ptr_eq(read.decoded().unwrap(), &content), "the content is shared");
        assert!(matches!(kept, Stored::Content(..)));
    }
}
