//! The trace of a world: a hash of all that happens, and the lines themselves if they are wanted.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::{
    entropy::{Nanos, SECOND},
    host::TICK,
};

#[derive(Default)]
pub(super) struct Trace {
    pub(super) hasher: DefaultHasher,
    pub(super) kept: Option<Vec<String>>,
}

impl Trace {
    pub(super) fn line(&mut self, now: Nanos, line: &str) {
        (now, line).hash(&mut self.hasher);
        if let Some(kept) = &mut self.kept {
            let (seconds, milliseconds) = (now / SECOND, now % SECOND / TICK);
            kept.push(format!("{seconds:>8}.{milliseconds:03} {line}"));
        }
    }
}

pub(super) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
