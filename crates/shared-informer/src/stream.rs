//! Lists told as watches: every object as an event, then a bookmark that says that this was all, then what changes, all on
//! one connection. Neither side holds a page in memory. Must never wait long for a server that doesn't have them.

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

/// For so long in all one list waits for handlers that take objects in more slowly than the server sends them.
const CATCH_UP: Duration = Duration::from_secs(5);

/// Streamed lists that fail this often in a row give way to pages, this once.
const ATTEMPTS: u32 = 3;

impl<T: Send + Sync + 'static> Reflector<T> {
    /// One streamed list; `None` when it is to be asked for in pages.
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

    /// Takes in what there is, up to the bookmark that ends it; gives the version it reaches.
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
            // A plain watch has bookmarks too, so that they say nothing for a list.
            if !says_something {
                continue;
            }
            patience = after(Instant::now(), idle.max(Duration::from_millis(1)));
        }
    }

    /// Waits while a handler lags, since whatever waits for it is held beside what the store holds. Takes what that took off
    /// `to_wait`: a handler that is slow for good delays the others no longer than that.
    async fn let_handlers_catch_up(&self, to_wait: &mut Duration) {
        while let Some(handler) = self.store.lagging()
            && !to_wait.is_zero()
        {
            let began = Instant::now();
            let caught_up = timeout(*to_wait, handler.caught_up()).await;
            *to_wait = if caught_up.is_ok() { to_wait.saturating_sub(began.elapsed()) } else { Duration::ZERO };
        }
    }

    /// Takes in what came together; gives the version of the list where this is its end.
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
