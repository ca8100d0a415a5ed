//! The start times of objects' steps: times in objects have a resolution of a second, and machines here are faster.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The steps of all objects.
#[derive(Default)]
pub(super) struct Steps(Mutex<HashMap<(String, &'static str), Instant>>);

impl Steps {
    /// Returns the remaining part of `takes` at a step of an object, or `None` when it is over. The first call begins
    /// the step.
    pub(super) fn left(&self, object: &str, step: &'static str, takes: Duration) -> Option<Duration> {
        let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *steps.entry((object.to_owned(), step)).or_insert_with(Instant::now);
        let left = takes.saturating_sub(since.elapsed());
        (!left.is_zero()).then_some(left)
    }
}
