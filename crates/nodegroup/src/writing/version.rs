//! One version of a group's object: what a write is decided on and tested against.

use capi::{ScalableResource, Uid};
use delete_rule::LogState;
use shared_informer::ResourceVersion;

use crate::{DeletionLog, LogError, SharedLog, deletion_log::Types};

/// One version of a group's object, with the fields that writes are based on and tested against.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupVersion {
    /// The identity of the object: one created again under the same name is another.
    pub uid: Uid,
    /// The identity of the version.
    pub resource_version: ResourceVersion,
    /// The version of the spec, and so of the size.
    pub generation: i64,
    /// The desired size.
    pub replicas: i32,
    /// The log of deletions, if the annotation is set.
    pub log: Option<SharedLog>,
}

impl GroupVersion {
    /// Creates the version of an object, with its log.
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

    /// Returns the parsed log of deletions.
    ///
    /// # Errors
    /// When the annotation isn't a log.
    pub fn log(&self) -> Result<DeletionLog, LogError> {
        match &self.log {
            None => Ok(DeletionLog::default()),
            Some(log) => log.read().cloned().map_err(LogError::clone),
        }
    }

    /// Returns the version as the rule sees it. A text that isn't parsed yet isn't parsed here, under the index's
    /// lock.
    #[must_use]
    pub fn seen(&self) -> delete_rule::Version<'_, Types> {
        let log = match &self.log {
            None => LogState::None,
            Some(log) => log.known().map_or(LogState::Unread, LogState::Read),
        };
        delete_rule::Version {
            uid: &self.uid,
            generation: self.generation,
            number: self.resource_version.number(),
            log,
        }
    }
}
