//! One version of a group's object, on which a write is decided and against which it is tested; and why there is none.

use shared_informer::ResourceVersion;

use crate::{
    Excluded,
    capi::{ScalableResource, Uid},
};

/// One version of a group's object, with the fields that decisions and tests of writes need.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupVersion {
    /// The uid of the object, which changes if the object is recreated under the same name.
    pub uid: Uid,
    /// The resource version.
    pub resource_version: ResourceVersion,
    /// The generation of the spec, which includes the size.
    pub generation: i64,
    /// The desired size.
    pub replicas: i32,
}

impl GroupVersion {
    /// Creates the version of an object.
    pub fn of(object: &ScalableResource) -> Self {
        Self {
            uid: object.meta.uid.clone(),
            resource_version: object.meta.resource_version.clone(),
            generation: object.generation,
            replicas: object.replicas.unwrap_or_default(),
        }
    }
}

/// The reason for which a group can't be written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NotScalable {
    /// The group doesn't exist.
    Unknown,
    /// It was a group at the last Refresh and isn't one now.
    Excluded(Excluded),
}
