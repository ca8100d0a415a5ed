//! The metrics as text. One encoding serves all scrapers that ask at the same time, and few texts are held for those
//! that read slowly, since each may have many megabytes.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use axum::body::Bytes;
use thiserror::Error;
use tokio::{
    sync::{Mutex, OwnedSemaphorePermit, Semaphore},
    task::JoinError,
    time::Instant,
};

use super::{
    SharedRegistry,
    metrics::{TextForm, encode},
};

/// The maximum number of texts of a format that are held at a time.
pub(super) const MOST_TEXTS: usize = 4;

/// A text, until the last answer with it has been sent or its client is gone.
struct Text {
    text: String,
    _permit: OwnedSemaphorePermit,
}

/// A text as the body of one answer.
struct Shared(Arc<Text>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.text.as_bytes()
    }
}

/// The newest text of a format, while an answer with it is being sent, and the time at which its encoding began.
#[derive(Default)]
struct Newest(Option<(Instant, Weak<Text>)>);

impl Newest {
    fn get(&self, since: Option<Instant>) -> Option<Bytes> {
        let (began, text) = self.0.as_ref()?;
        let is_new = since.is_none_or(|since| *began >= since);
        text.upgrade().filter(|_| is_new).map(|text| Bytes::from_owner(Shared(text)))
    }
}

/// The reason why there is no text.
#[derive(Debug, Error)]
pub(super) enum ScrapeError {
    #[error(
        "{MOST_TEXTS} texts of the metrics are being sent to clients that don't read them; try again in some seconds"
    )]
    Unread,
    #[error("can't write the metrics: {0}")]
    Encode(#[from] fmt::Error),
    #[error("can't write the metrics: {0}")]
    Task(#[from] JoinError),
}

/// The texts of one format. Clients that don't read them must not block those of the other.
struct Texts {
    permits: Arc<Semaphore>,
    newest: Mutex<Newest>,
}

impl Default for Texts {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(MOST_TEXTS)), newest: Mutex::default() }
    }
}

pub(super) struct Scrapes {
    registry: SharedRegistry,
    prometheus: Texts,
    open_metrics: Texts,
}

impl Scrapes {
    pub(super) fn new(registry: SharedRegistry) -> Self {
        Self { registry, prometheus: Texts::default(), open_metrics: Texts::default() }
    }

    /// Returns a text that is no older than this call or, if the maximum number is unread, the newest of those.
    pub(super) async fn text(&self, form: TextForm) -> Result<Bytes, ScrapeError> {
        let asked = Instant::now();
        let texts = match form {
            TextForm::Prometheus => &self.prometheus,
            TextForm::OpenMetrics => &self.open_metrics,
        };
        // All requests that wait for this lock while another one encodes are served by the next encoding. A request
        // that is dropped meanwhile leaves the newest text as it was.
        let mut newest = texts.newest.lock().await;
        if let Some(text) = newest.get(Some(asked)) {
            return Ok(text);
        }
        let Ok(permit) = Arc::clone(&texts.permits).try_acquire_owned() else {
            return newest.get(None).ok_or(ScrapeError::Unread);
        };
        let (registry, began) = (Arc::clone(&self.registry), Instant::now());
        // Encoding a large fleet takes some milliseconds, for which watches and writes on this runtime must not wait.
        // It goes on if its client is gone, and keeps its permit until then.
        let made = tokio::task::spawn_blocking(move || Ok(Text { text: encode(&registry, form)?, _permit: permit }));
        let text = Arc::new(made.await?.map_err(ScrapeError::Encode)?);
        newest.0 = Some((began, Arc::downgrade(&text)));
        Ok(Bytes::from_owner(Shared(text)))
    }
}
