//! A stored object: only its content if that contains the identity. A separate identity, in an allocation of its own,
//! would be a sixth of the memory of a small object. Must never return another object than the stored one.

use std::sync::Arc;

use crate::{
    identity::Metadata,
    object::{DecodeError, Object},
    projection::IdentityOf,
};

pub(super) enum Stored<T> {
    Content { content: Arc<T>, identity: IdentityOf<T> },
    Whole(Arc<Object<T>>),
}

impl<T> Stored<T> {
    /// Stores an object. If its content has another identity, or none, the whole object is kept.
    pub(super) fn new(object: &Arc<Object<T>>, identity: Option<IdentityOf<T>>) -> Self {
        match (&object.content, identity) {
            (Ok(content), Some(identity)) if *identity(content) == object.metadata => {
                Self::Content { content: Arc::clone(content), identity }
            }
            (Ok(_) | Err(_), Some(_) | None) => Self::Whole(Arc::clone(object)),
        }
    }

    pub(super) fn metadata(&self) -> &Metadata {
        match self {
            Self::Content { content, identity } => identity(content),
            Self::Whole(object) => &object.metadata,
        }
    }

    pub(super) fn content(&self) -> Result<&T, &DecodeError> {
        match self {
            Self::Content { content, .. } => Ok(content),
            Self::Whole(object) => object.content.as_deref(),
        }
    }

    /// Returns the object, for readers and handlers.
    pub(super) fn object(&self) -> Arc<Object<T>> {
        match self {
            Self::Content { content, identity } => {
                Arc::new(Object { metadata: identity(content).clone(), content: Ok(Arc::clone(content)) })
            }
            Self::Whole(object) => Arc::clone(object),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;
    use crate::ObjectKey;

    struct Thing {
        meta: Metadata,
    }

    fn metadata(version: &str) -> Metadata {
        Metadata { key: ObjectKey::new("n", "a"), uid: "u".into(), resource_version: version.into() }
    }

    fn object(version: &str, within: &str) -> Arc<Object<Thing>> {
        Arc::new(Object { metadata: metadata(version), content: Ok(Arc::new(Thing { meta: metadata(within) })) })
    }

    #[test]
    fn a_place_in_a_store_is_small() {
        assert_eq!(size_of::<Stored<Thing>>(), 16);
    }

    #[test]
    fn a_content_with_the_identity_in_it_is_kept_alone() {
        let given = object("1", "1");
        let kept = Stored::new(&given, Some(|thing| &thing.meta));
        let weak = Arc::downgrade(&given);
        let content = given.decoded().map(Arc::clone).unwrap();
        drop(given);
        assert!(weak.upgrade().is_none(), "nothing else is held");
        assert_eq!(*kept.metadata(), metadata("1"));
        let read = kept.object();
        assert_eq!(read.metadata, metadata("1"));
        assert!(Arc::ptr_eq(read.decoded().unwrap(), &content), "the content is shared");
    }

    #[rstest::rstest]
    #[case::another_identity(object("2", "1"), Some((|thing| &thing.meta) as IdentityOf<Thing>))]
    #[case::none(object("2", "2"), None)]
    #[case::undecodable(
        Arc::new(Object { metadata: metadata("2"), content: Err(DecodeError::new("odd")) }),
        Some((|thing| &thing.meta) as IdentityOf<Thing>)
    )]
    fn anything_else_is_kept_as_it_came(
        #[case] given: Arc<Object<Thing>>,
        #[case] identity: Option<IdentityOf<Thing>>,
    ) {
        let kept = Stored::new(&given, identity);
        assert_eq!(*kept.metadata(), metadata("2"));
        assert!(Arc::ptr_eq(&kept.object(), &given));
    }
}
