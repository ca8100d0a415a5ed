//! The events that a handler of an informer receives, as text.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use serde_json::Value;
use shared_informer::{Event, Handler, Informer, Registration};

use crate::wait::{SOON, eventually};

/// The events that a handler has received so far. Dropping it removes the handler.
#[derive(Debug)]
pub struct Story {
    told: Told,
    /// The handler's registration.
    pub registration: Registration<Value>,
}

type Told = Arc<Mutex<Vec<String>>>;

struct Teller(Told);

impl Handler<Value> for Teller {
    fn handle(&mut self, event: Event<Value>) {
        let name = event.key().name;
        let size = |event: &Event<Value>| {
            event.object().decoded().map_or_else(|| "?".to_owned(), |object| object["spec"]["size"].to_string())
        };
        let told = match &event {
            Event::Added { initial: true, .. } => format!("{name} was there"),
            Event::Added { initial: false, .. } => format!("{name} came"),
            Event::Updated { .. } => format!("{name} has size {}", size(&event)),
            Event::Deleted { found_by_relist: false, .. } => format!("{name} went"),
            Event::Deleted { found_by_relist: true, .. } => format!("{name} was missed"),
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(told);
    }

    fn synced(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push("synced".to_owned());
    }
}

impl Story {
    /// Adds a handler and records its events.
    #[must_use]
    pub fn of(informer: &Informer<Value>) -> Self {
        let told = Told::default();
        let registration = informer.add_handler(Teller(Arc::clone(&told)));
        Self { told, registration }
    }

    fn told(&self) -> Vec<String> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the recorded events are exactly these; each item is one line.
    pub async fn is(&self, expected: &[&str]) -> Result<()> {
        eventually("the story", SOON, async || {
            let told = self.told();
            ensure!(told == expected, "it was told {told:?}, not {expected:?}");
            Ok(())
        })
        .await
    }

    /// The same as [`Self::is`], for changes of different objects in any order.
    pub async fn is_in_any_order(&self, expected: &[&str]) -> Result<()> {
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        eventually("the story", SOON, async || {
            let mut told = self.told();
            told.sort_unstable();
            ensure!(told == expected, "it was told {told:?}, not {expected:?}");
            Ok(())
        })
        .await
    }
}
