//! A stored object: only its content if that contains the identity. A separate identity, in an allocation of its own,
//! would be a sixth of the memory of a small object. Must never return another object than the stored one.

use std::{mem, num::NonZeroU32, sync::Arc};

use arcstr::ArcStr;

use crate::{
    identity::Metadata,
    object::{DecodeError, Object},
    projection::IdentityOf,
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

    pub(super) fn has_name(&self, name: &ArcStr, identity: IdentityOf<T>) -> bool {
        self.metadata(identity).key.name == *name
    }

    /// Returns the object, for readers and handlers.
    pub(super) fn object(&self, identity: IdentityOf<T>) -> Arc<Object<T>> {
        match self {
            Self::Content(content, _) => {
                Arc::new(Object { metadata: identity(content).clone(), content: Ok(Arc::clone(content)) })
            }
            Self::Whole(whole) => Arc::clone(&whole.0),
        }
    }

    /// Returns the object, if it is kept whole.
    #[cfg(test)]
    fn whole(&self) -> Option<&Arc<Object<T>>> {
        match self {
            Self::Content(..) => None,
            Self::Whole(whole) => Some(&whole.0),
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

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;
    use crate::{ObjectKey, projection::no_identity};

    struct Thing {
        meta: Metadata,
    }

    const LISTS: Lists = Lists { last: NonZeroU32::MAX, since: NonZeroU32::MIN };

    fn metadata(version: &str) -> Metadata {
        Metadata { key: ObjectKey::new("n", "a"), uid: "u".into(), resource_version: version.into() }
    }

    fn object(version: &str, within: &str) -> Arc<Object<Thing>> {
        Arc::new(Object { metadata: metadata(version), content: Ok(Arc::new(Thing { meta: metadata(within) })) })
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
        let given = object("1", "1");
        let kept = Stored::new(&given, LISTS, identity);
        let weak = Arc::downgrade(&given);
        let content = given.decoded().map(Arc::clone).unwrap();
        drop(given);
        assert!(weak.upgrade().is_none(), "nothing else is held");
        assert_eq!(*kept.metadata(identity), metadata("1"));
        let read = kept.object(identity);
        assert_eq!(read.metadata, metadata("1"));
        assert!(Arc::ptr_eq(read.decoded().unwrap(), &content), "the content is shared");
        assert!(kept.whole().is_none());
    }

    #[rstest::rstest]
    #[case::another_identity(object("2", "1"), identity)]
    #[case::none(object("2", "2"), no_identity::<Thing>)]
    #[case::undecodable(Arc::new(Object { metadata: metadata("2"), content: Err(DecodeError::new("odd")) }), identity)]
    fn anything_else_is_kept_as_it_came(#[case] given: Arc<Object<Thing>>, #[case] identity: IdentityOf<Thing>) {
        let kept = Stored::new(&given, LISTS, identity);
        assert_eq!(*kept.metadata(identity), metadata("2"));
        assert!(Arc::ptr_eq(&kept.object(identity), &given));
        assert!(Arc::ptr_eq(kept.whole().unwrap(), &given));
    }

    #[test]
    fn the_lists_of_an_object_outlive_its_states() {
        for first in [object("1", "1"), object("1", "0")] {
            let mut kept = Stored::new(&first, LISTS, identity);
            for next in [object("2", "2"), object("3", "0"), object("4", "4")] {
                let before = kept.metadata(identity).clone();
                assert_eq!(kept.replace(&next, identity).metadata, before);
                assert_eq!((kept.metadata(identity), kept.lists()), (&next.metadata, LISTS));
            }
            kept.set_last_list(NonZeroU32::MIN);
            assert_eq!(kept.lists(), Lists { last: NonZeroU32::MIN, since: NonZeroU32::MIN });
        }
    }
}
