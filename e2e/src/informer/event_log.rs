//! The events that a handler of an informer receives, as text.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use serde_json::Value;
use shared_informer::{Event, Handler, Informer, Registration};

use crate::wait::{SOON, eventually};

/// The events that a handler has received so far. Dropping it removes the handler.
#[derive(Debug)]
pub struct EventLog {
    recorded: Recorded,
    /// The handler's registration.
    pub registration: Registration<Value>,
}

type Recorded = Arc<Mutex<Vec<String>>>;

struct Recorder(Recorded);

impl Handler<Value> for Recorder {
    fn handle(&mut self, event: Event<Value>) {
        let name = event.key().name;
        let size = |event: &Event<Value>| {
            event.object().decoded().map_or_else(|| "?".to_owned(), |object| object["spec"]["size"].to_string())
        };
        let recorded = match &event {
            Event::Added { initial: true, .. } => format!("{name} was there"),
            Event::Added { initial: false, .. } => format!("{name} came"),
            Event::Updated { .. } => format!("{name} has size {}", size(&event)),
            Event::Deleted { found_by_relist: false, .. } => format!("{name} went"),
            Event::Deleted { found_by_relist: true, .. } => format!("{name} was missed"),
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(recorded);
    }

    fn synced(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push("synced".to_owned());
    }
}

impl EventLog {
    /// Adds a handler and records its events.
    #[must_use]
    pub fn of(informer: &Informer<Value>) -> Self {
        let recorded = Recorded::default();
        let registration = informer.add_handler(Recorder(Arc::clone(&recorded)));
        Self { recorded, registration }
    }

    fn recorded(&self) -> Vec<String> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the recorded events are exactly these; each item is one line.
    pub async fn is(&self, expected: &[&str]) -> Result<()> {
        eventually("the events", SOON, async || {
            let recorded = self.recorded();
            ensure!(recorded == expected, "it was sent {recorded:?}, not {expected:?}");
            Ok(())
        })
        .await
    }

    /// The same as [`Self::is`], for changes of different objects in any order.
    pub async fn is_in_any_order(&self, expected: &[&str]) -> Result<()> {
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        eventually("the events", SOON, async || {
            let mut recorded = self.recorded();
            recorded.sort_unstable();
            ensure!(recorded == expected, "it was sent {recorded:?}, not {expected:?}");
            Ok(())
        })
        .await
    }
}
