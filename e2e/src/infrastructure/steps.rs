//! Since when objects have been at their steps: objects hold times to the second only, and machines here are quicker.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The steps of all objects.
#[derive(Default)]
pub(super) struct Steps(Mutex<HashMap<(String, &'static str), Instant>>);

impl Steps {
    /// Returns how much of `takes` is left at a step of an object; the first call begins it. None when it is over.
    pub(super) fn left(&self, object: &str, step: &'static str, takes: Duration) -> Option<Duration> {
        let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *steps.entry((object.to_owned(), step)).or_insert_with(Instant::now);
        let left = takes.saturating_sub(since.elapsed());
        (!left.is_zero()).then_some(left)
    }
}
