//! The memory of an informer's objects, as an estimate, and the limits of an informer. A server that sends objects
//! without end, or ever larger ones, must not take the memory of what else the process follows.

use std::ops::AddAssign;

use arcstr::ArcStr;

use super::{failure::Failure, settings::Settings};
use crate::{identity::Metadata, object::DecodeError, projection::BytesOf};

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
}

impl Amount {
    /// Returns the rest without a part of it.
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
