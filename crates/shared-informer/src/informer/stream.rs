//! Streamed lists: a watch that sends every object as an event, then a bookmark at their end, then changes, all on
//! one connection. Neither side holds a page in memory. Must never wait long for a server that doesn't support them.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::{
    backoff::after,
    bookmark::Bookmark,
    failure::Failure,
    memory::Amount,
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
            if !self.streams_lists {
                return None;
            }
            let failure = match self.stream_once().await.inspect_err(|failure| self.release(failure)) {
                Ok(listed) => return Some(listed),
                Err(failure) => failure,
            };
            if failure.lacks_streams() {
                tracing::debug!(resource = self.progress.resource(), %failure, "the API server has no streamed lists; requesting pages");
                self.streams_lists = false;
            }
            if failure.lacks_streams() || failure.refuses_streams() {
                return None;
            }
            self.list_failed(&failure).await;
        }
        None
    }

    async fn stream_once(&mut self) -> Result<Listed, Failure> {
        let requested = self.watch_time();
        let max_wait = self.settings.stream_idle;
        let mut open = self.open(self.scope.stream(requested), requested, max_wait).await?;
        let listing = self.begin_list();
        let version = self.take_all(&mut open, listing).await?;
        self.recovered();
        self.progress.list_was_streamed();
        self.end_list(listing);
        Ok(Listed { version, open: Some(open) })
    }

    /// Applies the initial events up to the bookmark that ends them; returns its version.
    async fn take_all(&self, open: &mut Open, listing: Listing) -> Result<String, Failure> {
        let started = Instant::now();
        let idle = self.settings.stream_idle;
        let mut deadline = after(started, idle);
        let (mut received, mut left_out) = (Amount::default(), Amount::default());
        let mut wait_left = CATCH_UP;
        loop {
            let page = open.frames.next_batch(deadline, &self.decoder, self.progress.resource()).await;
            let page = page.unwrap_or(Err(Failure::Stalled(idle)))?;
            if page.is_empty() {
                return Err(Failure::Cut(started.elapsed()));
            }
            received += Amount { objects: page.len(), bytes: self.bytes_of(page.iter().filter_map(Frame::stored)) };
            let has_objects = page.iter().any(|frame| !matches!(frame, Frame::Bookmark(_)));
            if let Some(version) = self.take_page(page, listing, &mut left_out)? {
                return Ok(version);
            }
            if started.elapsed() >= self.settings.stream_timeout {
                return Err(Failure::Endless(format!("it didn't come in {:?}", self.settings.stream_timeout)));
            }
            self.check(received, left_out)?;
            self.let_handlers_catch_up(&mut wait_left).await;
            // A plain watch has bookmarks too, so they are no evidence of a list.
            if !has_objects {
                continue;
            }
            deadline = after(Instant::now(), idle.max(Duration::from_millis(1)));
        }
    }

    /// Waits while a handler lags, since its queue takes memory besides the store. The time is subtracted from
    /// `wait_left`: a permanently slow handler delays the others no longer than that.
    async fn let_handlers_catch_up(&self, wait_left: &mut Duration) {
        while let Some(handler) = self.store.lagging()
            && !wait_left.is_zero()
        {
            let started = Instant::now();
            let caught_up = timeout(*wait_left, handler.caught_up()).await;
            *wait_left = if caught_up.is_ok() { wait_left.saturating_sub(started.elapsed()) } else { Duration::ZERO };
        }
    }

    /// Applies a batch of frames; returns the list's version if it contains the end. Adds the objects that were left
    /// out. An API server sends the objects of one moment, all as added, and then the end: a change before it means
    /// that the end was lost on the way, or that the server takes the request for a plain watch.
    fn take_page(
        &self,
        page: Vec<Frame<T>>,
        listing: Listing,
        left_out: &mut Amount,
    ) -> Result<Option<String>, Failure> {
        let mut objects = Vec::with_capacity(page.len());
        for frame in page {
            match frame {
                Frame::Add(object) => objects.push(object),
                Frame::Modify(_) | Frame::Delete(_) => {
                    return Err(Failure::Endless("a change came before it".into()));
                }
                Frame::Nameless => self.skip_nameless(1),
                Frame::Bookmark(Bookmark { reached, initial_events_end }) => {
                    *left_out += self.store.apply_page(listing, objects.drain(..))?;
                    self.progress.bookmark_received();
                    if initial_events_end {
                        let without = || Failure::Garbled("the streamed list ends without a resourceVersion".into());
                        return reached.ok_or_else(without).map(Some);
                    }
                    continue;
                }
            }
            self.progress.event_received();
        }
        *left_out += self.store.apply_page(listing, objects)?;
        Ok(None)
    }
}
