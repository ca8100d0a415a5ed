//! The loop that keeps one scope of a store up to date: list, watch, resume, list again. Must never give up, never
//! query a failing server in a hot loop, and never treat a quiet watch as failed too early.
//!
//! A streamed list is a watch that sends every object as an event, then a bookmark at their end, then changes, all on
//! one connection. Neither side holds a page in memory. A server that doesn't support them is asked for pages soon.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::AsyncBufRead;
use kube::{Client, core::request};
use tokio::time::{Instant, timeout};

use super::{
    Settings,
    backoff::{Backoff, after, shorten},
    decode::{Bookmark, Decoder, Frame, Frames, Page},
    event::{Phase, WatchError},
    failure::{Failure, Unanswered},
    progress::{ListCause, Progress},
    query::Scope,
    store::{Listing, Store},
    stored::{Amount, memory_of},
};
use crate::object::{Object, ResourceVersion};

/// The maximum `Retry-After` of a server that is respected.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);
/// The minimum duration that is requested for a watch. A watch that ends sooner was cut.
const MIN_WATCH: Duration = Duration::from_secs(1);
/// The number of expired page tokens after which a list is requested without pages.
const MAX_EXPIRED_TOKENS: u32 = 2;
/// The number of consecutive watches that only send errors after which a list replaces them.
const MAX_WATCH_ERRORS: u32 = 3;
/// The number of consecutive repeated events, in addition to two per stored object, after which a watch is closed.
const MAX_REPEATS: usize = 10_000;
/// The total time that one list waits for handlers that are slower than the server.
const CATCH_UP: Duration = Duration::from_secs(10);
/// The exponent of the maximum number of watches between two lists that find if namespaces are within their limit.
const MAX_RECOUNTS: u32 = 2;
/// The number of consecutive failures of a streamed list after which this list is requested in pages.
const ATTEMPTS: u32 = 3;
/// The maximum number of a list's objects that are left out of their namespaces, as a multiple of those that are kept.
const MAX_LEFT_OUT: usize = 16;

/// Makes the client of a request.
pub(super) type MakeClient = Arc<dyn Fn() -> Client + Send + Sync>;

/// The list and watch of one scope.
pub(super) struct Reflector<T> {
    pub(super) make_client: MakeClient,
    pub(super) settings: Arc<Settings>,
    pub(super) scope: Scope,
    /// The scope's position in the query.
    pub(super) position: usize,
    pub(super) store: Arc<Store<T>>,
    pub(super) progress: Arc<Progress>,
    pub(super) decoder: Decoder<T>,
    pub(super) backoff: Backoff,
    /// True until the first list is complete.
    pub(super) first: bool,
    /// The number of consecutive watches that sent only an error. Unless it is 0, a mere connection is no recovery.
    pub(super) fruitless_watches: u32,
    /// The number of consecutive watches whose version had expired. One is normal; from the second on, a pause precedes
    /// the next list.
    pub(super) expired_watches: u32,
    /// True if lists of this scope are requested as streams.
    pub(super) streams_lists: bool,
    /// True once a streamed list of any kind has lost its end on the way from this API server: all kinds are then
    /// requested in pages.
    pub(super) streams_lose_end: Arc<AtomicBool>,
    pub(super) unanswered: Arc<Unanswered>,
    /// The page size in use after larger pages exceeded the limit of bytes; `None` for the one of the settings.
    pub(super) max_per_page: Option<u32>,
    /// The number of consecutive lists that found namespaces beyond their limit again.
    pub(super) recounts: u32,
}

type Body = Pin<Box<dyn AsyncBufRead + Send>>;

/// A watch whose answer has begun.
struct Open {
    frames: Frames<Body>,
    /// The time of the request.
    started: Instant,
    /// The requested duration.
    requested: Duration,
}

/// A complete list.
struct Listed {
    /// The version to watch from.
    version: String,
    /// The open watch of a streamed list.
    open: Option<Open>,
}

/// The end of one watch.
struct Ended {
    /// The failure; `None` if the watch lasted for the requested duration.
    failure: Option<Failure>,
    /// True if there was at least one event or bookmark.
    productive: bool,
    /// True if the answer had begun.
    connected: bool,
    lived: Duration,
}

impl<T: Send + Sync + 'static> Reflector<T> {
    pub(super) async fn run(mut self: Box<Self>) {
        let mut cause = ListCause::First;
        loop {
            // A process may have thousands of these tasks, which mostly wait for the next event: futures of what
            // doesn't last are boxed, and take their place for that time alone.
            let listed = Box::pin(self.list(cause)).await;
            cause = self.watch(listed).await;
        }
    }

    async fn list(&mut self, mut cause: ListCause) -> Listed {
        let mut expired = 0;
        loop {
            self.progress.list_started(self.position, cause);
            if let Some(listed) = self.streamed().await {
                self.list_completed();
                return listed;
            }
            let limit = (expired < MAX_EXPIRED_TOKENS).then_some(self.page_size());
            match self.pages(limit).await.inspect_err(|failure| self.release(failure)) {
                Ok(version) => {
                    self.list_completed();
                    return Listed { version, open: None };
                }
                Err(failure) if failure.is_gone() => {
                    cause = ListCause::ExpiredToken;
                    expired += 1;
                    // One expired token is normal: the list took longer than the server keeps its state.
                    if expired > 1 {
                        self.list_failed(&failure).await;
                    }
                }
                Err(failure) => {
                    cause = ListCause::Error;
                    // A list without pages may be too long, so the next one has pages again.
                    expired = 0;
                    self.list_failed(&failure).await;
                }
            }
        }
    }

    fn page_size(&self) -> u32 {
        let usual = self.settings.page_size.max(1);
        self.max_per_page.map_or(usual, |max| max.min(usual))
    }

    fn list_completed(&mut self) {
        self.progress.list_completed(self.position);
        if self.fruitless_watches == 0 {
            self.backoff.reset();
        }
    }

    /// Lists page by page, and requests a failed page again if that may succeed. After an error the list must begin
    /// again.
    async fn pages(&mut self, limit: Option<u32>) -> Result<String, Failure> {
        let listing = self.begin_list();
        let mut token: Option<String> = None;
        let (mut limit, mut received, mut left_out) = (limit, Amount::default(), Amount::default());
        let mut wait_left = CATCH_UP;
        loop {
            let page = match self.page(limit, token.as_deref()).await {
                Ok(page) => page,
                // A page of fewer objects may be within the limit of bytes.
                Err(Failure::TooLong(_)) if limit.is_some_and(|limit| limit > 1) => {
                    self.max_per_page = limit.map(|limit| limit / 2);
                    limit = self.max_per_page;
                    continue;
                }
                // A retry of the first page repeats no earlier pages.
                Err(failure) if token.is_none() || (failure.may_pass() && !failure.is_gone()) => {
                    self.list_failed(&failure).await;
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            if token.is_some() && page.next == token {
                return Err(Failure::BeyondLimit("the server sends the same page of the list again and again".into()));
            }
            self.recovered();
            self.skip_nameless(page.nameless);
            self.progress.set_remaining(self.position, page.remaining);
            // Empty pages must not make a list endless.
            received += Amount { objects: page.objects.len().max(1), bytes: self.bytes_of(&page.objects) };
            left_out += self.store.apply_page(listing, page.objects)?;
            self.check(received, left_out)?;
            // Larger pages may fit again, if the next objects are shorter.
            if self.max_per_page.is_some() && page.bytes < self.settings.max_page_bytes / 4 {
                limit = limit.map(|limit| limit.saturating_mul(2).min(self.settings.page_size.max(1)));
                self.max_per_page = limit;
            }
            token = page.next;
            if token.is_none() {
                self.end_list(listing);
                return Ok(page.resource_version);
            }
            self.let_handlers_catch_up(&mut wait_left).await;
        }
    }

    /// Waits while a handler lags: what is queued for it takes memory besides the store, and leaves holes between the
    /// objects that stay. The time is subtracted from `wait_left`, so that a handler that stands still delays the others
    /// no longer than that.
    async fn let_handlers_catch_up(&self, wait_left: &mut Duration) {
        while let Some(handler) = self.store.lagging()
            && !wait_left.is_zero()
        {
            let started = Instant::now();
            let caught_up = timeout(*wait_left, handler.caught_up()).await;
            *wait_left = if caught_up.is_ok() { wait_left.saturating_sub(started.elapsed()) } else { Duration::ZERO };
        }
    }

    async fn page(&self, limit: Option<u32>, token: Option<&str>) -> Result<Page<T>, Failure> {
        let request = self.scope.list(limit, token)?;
        let answer = async {
            let body = self.request(request).await?;
            Page::read(body, self.settings.max_page_bytes, &self.decoder).await
        };
        let max_wait = self.settings.list_timeout;
        timeout(max_wait, answer).await.unwrap_or(Err(Failure::Timeout(max_wait)))
    }

    /// Watches, and resumes where the last watch ended, until a list is needed; returns the cause of the list.
    async fn watch(&mut self, listed: Listed) -> ListCause {
        let Listed { mut version, mut open } = listed;
        let (mut reported, mut watches) = (0, 0);
        loop {
            let ended = self.watch_once(&mut version, open.take()).await;
            // An attempt that lived longer than the next pause resets the backoff.
            let outlived = ended.connected && ended.lived > self.backoff.step();
            if ended.productive || outlived {
                self.backoff.reset();
                self.fruitless_watches = 0;
                reported = 0;
                // One event before each expiry must not cause a hot loop of lists.
                if outlived || !ended.failure.as_ref().is_some_and(Failure::is_gone) {
                    self.expired_watches = 0;
                }
            }
            watches += u32::from(ended.failure.is_none());
            if ended.failure.is_none() && self.must_recount(watches) {
                return ListCause::Error;
            }
            let Some(failure) = ended.failure else {
                continue;
            };
            // An error before the watch began says nothing about watches that do begin.
            if ended.connected && failure.is_reported() {
                self.fruitless_watches += 1;
                reported += 1;
            }
            if failure.is_gone() {
                // A single expired version is normal, whatever failed before, and no reason to wait.
                self.expired_watches += 1;
                if self.expired_watches > 1 {
                    self.watch_failed(&failure).await;
                } else {
                    self.report(Phase::Watch, &failure, Duration::ZERO);
                }
                return ListCause::Gone;
            }
            self.watch_failed(&failure).await;
            if (!ended.connected && !failure.may_pass()) || (ended.connected && reported >= MAX_WATCH_ERRORS) {
                return ListCause::Error;
            }
        }
    }

    /// Returns true if objects are left out, and enough watches have ended since the list: only a list finds that there
    /// is place for all again. One namespace must not cause lists without end.
    fn must_recount(&mut self, watches: u32) -> bool {
        if !self.progress.leaves_any_out(self.scope.namespace.as_deref()) {
            self.recounts = 0;
            return false;
        }
        let is_due = watches >= 1 << self.recounts.min(MAX_RECOUNTS);
        self.recounts += u32::from(is_due);
        is_due
    }

    /// Runs one watch to its end, from a new request or from a streamed list's open watch. Events update `version`.
    async fn watch_once(&self, version: &mut String, open: Option<Open>) -> Ended {
        let mut ended = Ended { failure: None, connected: false, productive: false, lived: Duration::ZERO };
        let (mut started, mut requested) = (Instant::now(), Duration::MAX);
        self.skip_nameless(0);
        let open = if let Some(open) = open {
            Ok(open)
        } else {
            let requested = self.watch_time();
            Box::pin(self.open(self.scope.watch(version, requested), requested, self.settings.watch_idle)).await
        };
        let failure = match open {
            Ok(mut open) => {
                (started, requested) = (open.started, open.requested);
                ended.connected = true;
                if self.fruitless_watches == 0 {
                    self.recovered();
                }
                self.follow(&mut open.frames, version, &mut ended.productive).await
            }
            Err(failure) => Some(failure),
        };
        ended.lived = started.elapsed();
        let in_time = ended.lived >= requested;
        ended.failure = match failure {
            None if in_time => None,
            // Some servers and proxies end a watch at its time with a transport error.
            Some(Failure::Transport(_)) if ended.connected && in_time => None,
            None => Some(Failure::Cut(ended.lived)),
            Some(failure) => Some(failure),
        };
        ended
    }

    fn watch_time(&self) -> Duration {
        shorten(self.settings.watch_timeout, 0.1).max(MIN_WATCH)
    }

    async fn open(
        &self,
        request: Result<http::Request<Vec<u8>>, request::Error>,
        requested: Duration,
        max_wait: Duration,
    ) -> Result<Open, Failure> {
        let started = Instant::now();
        let answer = timeout(max_wait, self.request(request?)).await;
        let body = answer.unwrap_or(Err(Failure::Timeout(max_wait)))?;
        Ok(Open { frames: Frames::new(Box::pin(body), self.settings.max_event_bytes), started, requested })
    }

    /// Applies the events of a watch until its end; returns `None` if it just ends.
    async fn follow<B: AsyncBufRead + Unpin>(
        &self,
        frames: &mut Frames<B>,
        version: &mut String,
        productive: &mut bool,
    ) -> Option<Failure> {
        let idle = self.settings.watch_idle;
        let mut repeats = 0;
        loop {
            let deadline = after(Instant::now(), idle);
            let batch = match frames.next_batch(deadline, &self.decoder, self.progress.resource()).await {
                Ok(Ok(batch)) if batch.is_empty() => return None,
                Ok(Ok(batch)) => batch,
                Ok(Err(failure)) => return Some(failure),
                Err(_) => return Some(Failure::Stalled(idle)),
            };
            if !*productive {
                *productive = true;
                self.recovered();
            }
            let (reached, failure) = self.take(batch, version, &mut repeats);
            if let Some(reached) = reached {
                *version = reached;
            }
            if failure.is_some() {
                *productive = false;
                return failure;
            }
            if repeats > MAX_REPEATS + 2 * self.store.len() {
                *productive = false;
                return Some(Failure::BeyondLimit("the watch sends the same events again and again".into()));
            }
        }
    }

    /// Applies a batch of frames of a watch at `version`, and returns the version from which the watch can resume. An
    /// outdated or repeated frame doesn't change it: a watch that resumed from an old version would send all later
    /// events again. `repeats` counts such frames in a row. The first object beyond the limit ends the batch with a
    /// failure.
    fn take(&self, frames: Vec<Frame<T>>, version: &str, repeats: &mut usize) -> (Option<String>, Option<Failure>) {
        let mut reached: Option<ResourceVersion> = None;
        let mut failure = None;
        let mut batch = self.store.batch();
        for frame in frames {
            let applied = match frame {
                Frame::Bookmark(bookmark) => {
                    self.progress.bookmark_received();
                    let known = reached.as_ref().map_or_else(|| version.to_owned(), ToString::to_string);
                    bookmark.reached_since(&known).map(ResourceVersion::from)
                }
                Frame::Add(object) | Frame::Modify(object) => {
                    if let Err(exceeded) = batch.check(&object, &self.settings) {
                        failure = Some(exceeded);
                        break;
                    }
                    self.progress.event_received();
                    let version = object.metadata.resource_version.clone();
                    batch.put(object).then_some(version)
                }
                Frame::Delete(object) => {
                    self.progress.event_received();
                    let version = object.metadata.resource_version.clone();
                    batch.delete(object).then_some(version)
                }
                Frame::Nameless => {
                    self.skip_nameless(1);
                    self.progress.event_received();
                    None
                }
            };
            match applied.filter(|version| !version.is_empty()) {
                Some(applied) => {
                    reached = Some(applied);
                    *repeats = 0;
                }
                None => *repeats += 1,
            }
        }
        drop(batch);
        (reached.map(|reached| reached.to_string()), failure)
    }

    async fn request(&self, request: http::Request<Vec<u8>>) -> Result<impl AsyncBufRead + use<T>, Failure> {
        let client = (self.make_client)();
        let answer = client.request_stream(request).await;
        answer.map_err(|error| Failure::of_client(&error, self.progress.resource()))
    }

    /// Counts skipped items. Logs the first ones, and then once a minute their sum, for which it also has to be called
    /// without items.
    fn skip_nameless(&self, items: u64) {
        if let Some(items) = self.progress.nameless_received(items) {
            tracing::warn!(
                resource = self.progress.resource(),
                items,
                "skipped items without a name, or whose name, uid or version is too long"
            );
        }
    }

    fn recovered(&self) {
        if let Some(broken) = self.progress.recovered(self.position) {
            tracing::info!(
                resource = self.progress.resource(),
                namespace = self.scope.namespace.as_deref(),
                ?broken,
                "works again"
            );
        }
    }

    async fn list_failed(&mut self, failure: &Failure) {
        let logged = self.progress.list_failed(self.position, failure);
        self.pause(Phase::List, failure, logged).await;
    }

    async fn watch_failed(&mut self, failure: &Failure) {
        let logged = self.progress.watch_failed(self.position, failure);
        self.pause(Phase::Watch, failure, logged).await;
    }

    /// Waits before the next attempt: for the longest pause after an answer beyond a limit, since each costs as much as
    /// the limit allows. A failure that isn't to be logged is logged at debug level.
    async fn pause(&mut self, phase: Phase, failure: &Failure, logged: Option<Duration>) {
        // A server's `Retry-After` is better than a guess, and doesn't increase the backoff.
        let requested = failure.retry_after().map(|after| after.min(MAX_RETRY_AFTER).max(self.settings.backoff_min));
        if failure.is_beyond_limit() {
            self.backoff.exhaust();
        }
        let pause = requested.unwrap_or_else(|| self.backoff.pause());
        let resource = self.progress.resource();
        let namespace = self.scope.namespace.as_deref();
        if let Some(broken) = logged.filter(|_| self.unanswered.is_news(failure)) {
            let broken = Some(Duration::from_secs(broken.as_secs())).filter(|broken| !broken.is_zero());
            let broken = broken.map(tracing::field::debug);
            tracing::warn!(resource, namespace, %failure, ?pause, broken, "{phase} failed");
        } else {
            tracing::debug!(resource, namespace, %failure, ?pause, "{phase} failed again");
        }
        self.report(phase, failure, pause);
        tokio::time::sleep(pause).await;
        // By now the handlers have released the objects that were dropped.
        if failure.is_beyond_limit() {
            self.decoder.texts.sweep();
        }
    }

    fn report(&self, phase: Phase, failure: &Failure, retry_in: Duration) {
        self.progress.hooks().report(|| WatchError {
            resource: self.progress.resource().to_owned(),
            namespace: self.scope.namespace.clone(),
            phase,
            code: failure.code(),
            reason: failure.to_string(),
            retry_in,
        });
    }

    /// Requests a streamed list; returns `None` if pages should be requested.
    async fn streamed(&mut self) -> Option<Listed> {
        for _ in 0..ATTEMPTS {
            if !self.streams_lists || self.streams_lose_end.load(Ordering::Relaxed) {
                return None;
            }
            let failure = match self.stream_once().await.inspect_err(|failure| self.release(failure)) {
                Ok(listed) => return Some(listed),
                Err(failure) => failure,
            };
            if failure.loses_end() {
                tracing::debug!(resource = self.progress.resource(), %failure, "streamed lists lose their end; requesting pages of all kinds");
                self.streams_lose_end.store(true, Ordering::Relaxed);
                return None;
            }
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
            let batch = open.frames.next_batch(deadline, &self.decoder, self.progress.resource()).await;
            let batch = batch.unwrap_or(Err(Failure::Stalled(idle)))?;
            if batch.is_empty() {
                return Err(Failure::Cut(started.elapsed()));
            }
            received += Amount { objects: batch.len(), bytes: self.bytes_of(batch.iter().filter_map(Frame::stored)) };
            let has_objects = batch.iter().any(|frame| !matches!(frame, Frame::Bookmark(_)));
            if let Some(version) = self.take_batch(batch, listing, &mut left_out)? {
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

    /// Applies a batch of frames; returns the list's version if it contains the end. Adds the objects that were left
    /// out. An API server sends the objects of one moment, all as added, and then the end: a change before it means
    /// that the end was lost on the way, or that the server takes the request for a plain watch.
    fn take_batch(
        &self,
        batch: Vec<Frame<T>>,
        listing: Listing,
        left_out: &mut Amount,
    ) -> Result<Option<String>, Failure> {
        let mut objects = Vec::with_capacity(batch.len());
        for frame in batch {
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

    fn begin_list(&self) -> Listing {
        self.store.begin_list(self.first, self.scope.namespace.as_deref())
    }

    fn bytes_of<'a>(&self, objects: impl IntoIterator<Item = &'a Object<T>>) -> usize {
        let bytes_of = self.decoder.projection.bytes_of;
        let bytes = |object: &Object<T>| memory_of(&object.metadata, object.content.as_deref(), bytes_of);
        objects.into_iter().map(bytes).sum()
    }

    /// Fails a list that exceeds a limit, repeated objects included. What is left out has a limit of its own, so that
    /// no list is endless. The store checks by itself what it holds besides.
    fn check(&self, received: Amount, left_out: Amount) -> Result<(), Failure> {
        received.without(left_out).check(&self.settings)?;
        Amount { objects: left_out.objects / MAX_LEFT_OUT, bytes: 0 }.check(&self.settings)
    }

    /// Drops the new objects of a list that has failed, if more are stored than may be, or if the limit that it has
    /// reached is shared: before the pause that follows, and not at the next list.
    fn release(&self, failure: &Failure) {
        let is_shared = failure.is_beyond_limit() && self.settings.shared_limit.is_some();
        if is_shared || self.store.amount().check(&self.settings).is_err() {
            self.store.drop_unlisted(self.scope.namespace.as_deref());
        }
    }

    fn end_list(&mut self, listing: Listing) {
        self.progress.list_ended(self.position);
        self.first = false;
        let namespace = self.scope.namespace.as_deref();
        if self.store.end_list(listing, namespace) {
            tracing::debug!(resource = self.progress.resource(), objects = self.store.len(), "informer synced");
        }
    }
}
