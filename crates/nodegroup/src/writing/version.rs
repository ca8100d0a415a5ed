//! One version of a group's object: what a write is decided on and tested against.

use capi::{ScalableResource, Uid};
use delete_rule::LogSeen;
use shared_informer::ResourceVersion;

use crate::{DeletionLog, LogError, SharedLog, deletion_log::Types};

/// One version of a group's object, as far as writes are decided on it and tested against it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupVersion {
    /// Which object: one that was made anew under the same name is another.
    pub uid: Uid,
    /// Of all versions the one.
    pub resource_version: ResourceVersion,
    /// Which version of the spec, and so of the size.
    pub generation: i64,
    /// The size asked for.
    pub replicas: i32,
    /// The log of deletions, where it has the annotation.
    pub log: Option<SharedLog>,
}

impl GroupVersion {
    /// The version that an object is, with its log.
    #[must_use]
    pub fn of(object: &ScalableResource, log: Option<SharedLog>) -> Self {
        Self {
            uid: object.meta.uid.clone(),
            resource_version: object.meta.resource_version.clone(),
            generation: object.generation,
            replicas: object.replicas.unwrap_or_default(),
            log,
        }
    }

    /// The log of deletions as a value.
    ///
    /// # Errors
    /// When the annotation holds something else.
    pub fn log(&self) -> Result<DeletionLog, LogError> {
        match &self.log {
            None => Ok(DeletionLog::default()),
            Some(log) => log.read().cloned().map_err(LogError::clone),
        }
    }

    /// The version as the rule looks at it. A text that nobody has read isn't read here, under the index's lock.
    #[must_use]
    pub fn seen(&self) -> delete_rule::Version<'_, Types> {
        let log = match &self.log {
            None => LogSeen::None,
            Some(log) => log.known().map_or(LogSeen::Unread, LogSeen::Read),
        };
        delete_rule::Version {
            uid: &self.uid,
            generation: self.generation,
            number: self.resource_version.number(),
            log,
        }
    }
}
