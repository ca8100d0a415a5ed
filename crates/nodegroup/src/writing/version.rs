//! One version of a group's object, on which a write is decided and against which it is tested.

use capi::{ScalableResource, Uid};
use delete_rule::LogState;
use shared_informer::ResourceVersion;

use crate::{DeletionLog, LogError, SharedLog, deletion_log::Types};

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

    /// Returns the version for the rule of deletion. An unparsed log isn't parsed here, since the index's lock is held.
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
