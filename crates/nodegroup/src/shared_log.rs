//! The log of deletions of one version of an object: its text, and what it was read as. A text is read at most once, by
//! whoever needs it first, and all that hold it share the result: statuses change often, and the log stays the same.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use capi::LogText;

use super::{DeletionLog, LogAnnotation as _, LogError};

/// A log that several versions of objects share. It is equal to another of the same text.
#[derive(Clone)]
pub struct SharedLog(Arc<Shared>);

struct Shared {
    text: LogText,
    log: OnceLock<Result<DeletionLog, LogError>>,
}

impl SharedLog {
    /// The log of this text, which isn't read yet.
    #[must_use]
    pub fn new(text: LogText) -> Self {
        Self(Arc::new(Shared { text, log: OnceLock::new() }))
    }

    /// The annotation's value.
    #[must_use]
    pub fn text(&self) -> &LogText {
        &self.0.text
    }

    /// The annotation's value; `None` for one that isn't kept. A write that tests that there is none fails
    /// then, as it must: nothing is decided on a log that can't be read.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match &self.0.text {
            LogText::Whole(text) => Some(text),
            LogText::TooLong(_) | LogText::NoRoom(_) => None,
        }
    }

    /// The log. Only the first call reads the text, which takes some milliseconds at most: never hold a lock that others
    /// wait for meanwhile.
    ///
    /// # Errors
    /// When the text isn't a log.
    pub fn read(&self) -> Result<&DeletionLog, &LogError> {
        let log = self.0.log.get_or_init(|| match &self.0.text {
            LogText::Whole(text) => DeletionLog::parse(Some(text)),
            LogText::TooLong(bytes) => Err(LogError::TooLong { bytes: *bytes }),
            LogText::NoRoom(bytes) => Err(LogError::NoRoom { bytes: *bytes }),
        });
        log.as_ref()
    }

    /// The log where its text has been read and is one.
    #[must_use]
    pub fn known(&self) -> Option<&DeletionLog> {
        self.0.log.get()?.as_ref().ok()
    }

    /// Returns true if the text has been read.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.0.log.get().is_some()
    }

    /// Returns true if the text is read for both when it is for one.
    #[must_use]
    pub fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl PartialEq for SharedLog {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.text == other.0.text
    }
}

impl Eq for SharedLog {}

impl fmt::Debug for SharedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.text.fmt(f)
    }
}
