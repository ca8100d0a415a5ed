//! The annotation that holds the log of deletions, as it stands on an object. What is too long for a log is never kept: who
//! may annotate objects could fill the memory with it.

use arcstr::ArcStr;

/// The longest text of a log, in bytes. All annotations of an object together may take 256 KiB, and others need room too.
pub const LONGEST_LOG: usize = 160 * 1024;

/// The value of the annotation [`super::DELETING`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LogText {
    /// The text.
    Whole(ArcStr),
    /// A text of so many bytes, more than [`LONGEST_LOG`].
    TooLong(usize),
}

impl From<&str> for LogText {
    fn from(text: &str) -> Self {
        if text.len() > LONGEST_LOG { Self::TooLong(text.len()) } else { Self::Whole(text.into()) }
    }
}
