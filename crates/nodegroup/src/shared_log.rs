//! The log of deletions of one version of an object: its text, and the parsed result. A text is parsed at most once,
//! by the first caller that needs it, and all holders share the result: an object's status changes often, its log
//! doesn't.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use capi::LogText;

use super::{DeletionLog, LogAnnotation as _, LogError};

/// A log that several versions of an object share. It equals any other of the same text.
#[derive(Clone)]
pub struct SharedLog(Arc<Shared>);

struct Shared {
    text: LogText,
    log: OnceLock<Result<DeletionLog, LogError>>,
}

impl SharedLog {
    /// Returns the log of this text, not parsed yet.
    #[must_use]
    pub fn new(text: LogText) -> Self {
        Self(Arc::new(Shared { text, log: OnceLock::new() }))
    }

    /// Returns the annotation's value.
    #[must_use]
    pub fn text(&self) -> &LogText {
        &self.0.text
    }

    /// Returns the annotation's value; `None` if it isn't kept. A write that then tests for a missing annotation
    /// fails, as it must: nothing may be decided on a log that can't be read.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match &self.0.text {
            LogText::Whole(text) => Some(text),
            LogText::TooLong(_) | LogText::OverBudget(_) => None,
        }
    }

    /// Returns the log. The first call parses the text, which takes up to some milliseconds: never hold a contended
    /// lock meanwhile.
    ///
    /// # Errors
    /// If the text isn't a log.
    pub fn read(&self) -> Result<&DeletionLog, &LogError> {
        let log = self.0.log.get_or_init(|| match &self.0.text {
            LogText::Whole(text) => DeletionLog::parse(Some(text)),
            LogText::TooLong(bytes) => Err(LogError::TooLong { bytes: *bytes }),
            LogText::OverBudget(bytes) => Err(LogError::OverBudget { bytes: *bytes }),
        });
        log.as_ref()
    }

    /// Returns the log, if its text has been parsed and is one.
    #[must_use]
    pub fn known(&self) -> Option<&DeletionLog> {
        self.0.log.get()?.as_ref().ok()
    }

    /// Returns true if the text has been parsed.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.0.log.get().is_some()
    }

    /// Returns true if both share one parsed result.
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
