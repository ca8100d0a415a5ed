//! Streamed lists: a watch that sends every object as an event, then a bookmark at their end, then changes, all on
//! one connection. Neither side holds a page in memory. Must never wait long for a server that doesn't support them.

use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use super::{
    backoff::after,
    bookmark::Bookmark,
    failure::Failure,
    reflector::{Listed, Open, Reflector},
    store::Listing,
    wire::Frame,
};

/// The total time that one list waits for handlers that are slower than the server.
const CATCH_UP: Duration = Duration::from_secs(5);

/// The number of consecutive failures of a streamed list after which this list is requested in pages.
const ATTEMPTS: u32 = 3;

impl<T: Send + Sync + 'static> Reflector<T> {
    /// Requests a streamed list; returns `None` if pages should be requested.
    pub(super) async fn streamed(&mut self) -> Option<Listed> {
        for _ in 0..ATTEMPTS {
            if !self.streams {
                return None;
            }
            let failure = match self.stream_once().await {
                Ok(listed) => return Some(listed),
                Err(failure) => failure,
            };
            if failure.lacks_streams() {
                tracing::debug!(resource = self.progress.resource(), %failure, "no streamed lists here: pages it is");
                self.streams = false;
            }
            if failure.lacks_streams() || failure.refuses_streams() {
                return None;
            }
            self.list_failed(&failure).await;
        }
        None
    }

    async fn stream_once(&mut self) -> Result<Listed, Failure> {
        let asked = self.watch_time();
        let patience = self.settings.stream_idle;
        let mut open = self.open(self.scope.stream(asked), asked, patience).await?;
        let listing = self.begin_list();
        let version = self.take_all(&mut open, listing).await?;
        self.works();
        self.progress.list_was_streamed();
        self.end_list(listing);
        Ok(Listed { version, open: Some(open) })
    }

    /// Applies the initial events up to the bookmark that ends them; returns its version.
    async fn take_all(&self, open: &mut Open, listing: Listing) -> Result<String, Failure> {
        let began = Instant::now();
        let idle = self.settings.stream_idle;
        let mut patience = after(began, idle);
        let mut came = 0;
        let mut to_wait = CATCH_UP;
        loop {
            let next = open.frames.next_page(&self.decoder, self.progress.resource());
            let page = timeout_at(patience, next).await.unwrap_or(Err(Failure::Stalled(idle)))?;
            if page.is_empty() {
                return Err(Failure::Cut(began.elapsed()));
            }
            came += page.len();
            let says_something = page.iter().any(|frame| !matches!(frame, Frame::Bookmark(_)));
            if let Some(version) = self.take_page(page, listing)? {
                return Ok(version);
            }
            self.bounded(came)?;
            self.let_handlers_catch_up(&mut to_wait).await;
            // A plain watch has bookmarks too, so they are no evidence of a list.
            if !says_something {
                continue;
            }
            patience = after(Instant::now(), idle.max(Duration::from_millis(1)));
        }
    }

    /// Waits while a handler lags, since its queue takes memory besides the store. The time is subtracted from
    /// `to_wait`: a permanently slow handler delays the others no longer than that.
    async fn let_handlers_catch_up(&self, to_wait: &mut Duration) {
        while let Some(handler) = self.store.lagging()
            && !to_wait.is_zero()
        {
            let began = Instant::now();
            let caught_up = timeout(*to_wait, handler.caught_up()).await;
            *to_wait = if caught_up.is_ok() { to_wait.saturating_sub(began.elapsed()) } else { Duration::ZERO };
        }
    }

    /// Applies a batch of frames; returns the list's version if it contains the end.
    fn take_page(&self, page: Vec<Frame<T>>, listing: Listing) -> Result<Option<String>, Failure> {
        let mut objects = Vec::with_capacity(page.len());
        for frame in page {
            match frame {
                Frame::Put(object) => objects.push(object),
                Frame::Delete(object) => {
                    self.store.apply_page(listing, objects.drain(..));
                    self.store.batch().delete(object);
                }
                Frame::Nameless => self.skip_nameless(1),
                Frame::Bookmark(Bookmark { reached, initial_events_end }) => {
                    self.store.apply_page(listing, objects.drain(..));
                    self.progress.bookmark_came();
                    if initial_events_end {
                        let without = || Failure::Garbled("the streamed list ends without a resourceVersion".into());
                        return reached.ok_or_else(without).map(Some);
                    }
                    continue;
                }
            }
            self.progress.event_came();
        }
        self.store.apply_page(listing, objects);
        Ok(None)
    }
}
