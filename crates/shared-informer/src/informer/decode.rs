//! From the bytes of an API server to objects and events, one at a time, so that memory holds the decoded JSON of one
//! object. Must never fail an answer for one object in it, and never log an object's content.

use std::{borrow::Cow, fmt, sync::Arc};

use futures::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};
use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Value, value::RawValue};
use tokio::time::{Instant, error::Elapsed, timeout_at};

use super::failure::Failure;
use crate::{
    intern::Interner,
    object::{DecodeError, Object, text},
    projection::Projection,
};

/// The decoder of one object's JSON.
pub(super) struct Decoder<T> {
    pub(super) projection: Projection<T>,
    pub(super) texts: Arc<Interner>,
    /// True if errors must not quote the objects.
    pub(super) secret: bool,
}

impl<T> Clone for Decoder<T> {
    fn clone(&self) -> Self {
        Self { projection: self.projection.clone(), texts: Arc::clone(&self.texts), secret: self.secret }
    }
}

impl<T> Decoder<T> {
    /// Decodes an object; `None` if the text isn't exactly one object with a name.
    fn decode(&self, json: &str) -> Option<Object<T>> {
        let mut object = self.projection.read(json, &self.texts)?;
        if self.secret && object.content.is_err() {
            object.content = Err(DecodeError::new("it doesn't decode; the reason is redacted, since it is secret"));
        }
        Some(object)
    }
}

/// A page of a list.
#[derive(Debug)]
pub(super) struct Page<T> {
    pub(super) objects: Vec<Object<T>>,
    /// The number of items without a usable identity, which are skipped.
    pub(super) nameless: u64,
    pub(super) resource_version: String,
    /// The token for the next page; `None` on the last page.
    pub(super) next: Option<String>,
    /// The number of objects on later pages, if the server reports it.
    pub(super) remaining: Option<u64>,
    /// The length of the page in bytes.
    pub(super) bytes: usize,
}

impl<T> Page<T> {
    /// Reads a whole answer. An answer that isn't a list, or a list without a resource version, is an error: taken for
    /// an empty list, it would delete everything.
    pub(super) async fn read(body: impl AsyncBufRead, max_bytes: usize, decoder: &Decoder<T>) -> Result<Self, Failure> {
        let mut json = Vec::new();
        let one_more = u64::try_from(max_bytes).unwrap_or(u64::MAX).saturating_add(1);
        std::pin::pin!(body).take(one_more).read_to_end(&mut json).await?;
        if json.len() > max_bytes {
            return Err(Failure::TooLong(max_bytes));
        }
        Self::parse(&json, decoder)
    }

    fn parse(json: &[u8], decoder: &Decoder<T>) -> Result<Self, Failure> {
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let mut page = PageSeed(decoder)
            .deserialize(&mut deserializer)
            .and_then(|page| deserializer.end().map(|()| page))
            .map_err(|error| Failure::garbled("not a list", &error))?;
        page.bytes = json.len();
        if page.resource_version.is_empty() {
            return Err(Failure::Garbled("the list has no resourceVersion".into()));
        }
        Ok(page)
    }
}

/// The metadata of a list. Null and absent fields are empty.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ListMetadata {
    resource_version: Option<String>,
    r#continue: Option<String>,
    remaining_item_count: Option<i64>,
}

struct PageSeed<'a, T>(&'a Decoder<T>);

impl<'de, T> DeserializeSeed<'de> for PageSeed<'_, T> {
    type Value = Page<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T> Visitor<'de> for PageSeed<'_, T> {
    type Value = Page<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list with metadata and items")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut metadata = ListMetadata::default();
        let mut items = None;
        while let Some(field) = map.next_key::<String>()? {
            match field.as_str() {
                "metadata" => metadata = map.next_value()?,
                "items" => items = Some(map.next_value_seed(ItemsSeed(self.0))?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let (objects, nameless) = items.ok_or_else(|| serde::de::Error::missing_field("items"))?;
        Ok(Page {
            objects,
            nameless,
            resource_version: metadata.resource_version.unwrap_or_default(),
            next: metadata.r#continue.filter(|token| !token.is_empty()),
            remaining: metadata.remaining_item_count.and_then(|count| u64::try_from(count).ok()),
            bytes: 0,
        })
    }
}

/// The items, each decoded before the next one is read. Null, which Go writes for an empty list, is empty.
struct ItemsSeed<'a, T>(&'a Decoder<T>);

impl<'de, T> DeserializeSeed<'de> for ItemsSeed<'_, T> {
    type Value = (Vec<Object<T>>, u64);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T> Visitor<'de> for ItemsSeed<'_, T> {
    type Value = (Vec<Object<T>>, u64);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok((Vec::new(), 0))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut objects = Vec::new();
        let mut nameless = 0;
        while let Some(json) = items.next_element::<&RawValue>()? {
            match self.0.decode(json.get()) {
                Some(object) => objects.push(object),
                None => nameless += 1,
            }
        }
        Ok((objects, nameless))
    }
}

/// An event of a watch.
#[derive(Debug)]
pub(super) enum Frame<T> {
    /// Added, with the current state.
    Add(Object<T>),
    /// Modified, with the current state.
    Modify(Object<T>),
    /// Deleted, with the last state.
    Delete(Object<T>),
    /// Added, modified or deleted, without a name.
    Nameless,
    /// A bookmark: the version up to which the watch has sent everything.
    Bookmark(Bookmark),
}

#[derive(Deserialize)]
struct RawFrame<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

impl<T> Frame<T> {
    pub(super) fn stored(&self) -> Option<&Object<T>> {
        match self {
            Self::Add(object) | Self::Modify(object) => Some(object),
            Self::Delete(_) | Self::Nameless | Self::Bookmark(_) => None,
        }
    }

    fn parse(event: &[u8], decoder: &Decoder<T>, resource: &str) -> Result<Self, Failure> {
        let raw = serde_json::from_slice(event).map_err(|error| Failure::garbled("not a watch event", &error))?;
        Self::of(raw, decoder, resource)
    }

    /// Reads an event that may be this line; `None` if it isn't one.
    fn of_line(line: &str, decoder: &Decoder<T>, resource: &str) -> Option<Result<Self, Failure>> {
        if let Some(frame) = Self::stored_in(line, decoder) {
            return Some(Ok(frame));
        }
        Some(Self::of(serde_json::from_str(line).ok()?, decoder, resource))
    }

    /// Reads an object that was added or modified, in the form in which an API server writes it, so that it is read
    /// once. A text in that form which decodes as one object is the event whole.
    fn stored_in(line: &str, decoder: &Decoder<T>) -> Option<Self> {
        let fields = line.strip_prefix(r#"{"type":""#)?.strip_suffix('}')?;
        let (r#type, object) = fields.split_once(r#"","object":"#)?;
        let frame = match r#type {
            "ADDED" => Self::Add,
            "MODIFIED" => Self::Modify,
            _ => return None,
        };
        decoder.decode(object).filter(|object| object.content.is_ok()).map(frame)
    }

    fn of(raw: RawFrame<'_>, decoder: &Decoder<T>, resource: &str) -> Result<Self, Failure> {
        let RawFrame { r#type, object } = raw;
        let named = |frame: fn(Object<T>) -> Self| decoder.decode(object.get()).map_or(Self::Nameless, frame);
        match &*r#type {
            "ADDED" => Ok(named(Self::Add)),
            "MODIFIED" => Ok(named(Self::Modify)),
            "DELETED" => Ok(named(Self::Delete)),
            "BOOKMARK" => Ok(Self::Bookmark(Bookmark::of(object.get()))),
            "ERROR" => Err(Failure::of_watch(object.get(), resource)),
            _ => Err(Failure::Garbled("a watch event of unknown type".into())),
        }
    }
}

/// The annotation of the bookmark that ends the initial events of a streamed list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// `metadata` of a bookmark.
#[derive(Deserialize)]
struct BookmarkObject {
    metadata: BookmarkMetadata,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct BookmarkMetadata {
    resource_version: Value,
    annotations: Value,
}

/// The content of a bookmark.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bookmark {
    /// The resource version up to which the watch has sent everything.
    pub(super) reached: Option<String>,
    /// True if all initial events have been sent.
    pub(super) initial_events_end: bool,
}

impl Bookmark {
    pub(super) fn of(json: &str) -> Self {
        let metadata = serde_json::from_str::<BookmarkObject>(json).map(|found| found.metadata).unwrap_or_default();
        Self {
            reached: text(&metadata.resource_version).map(Cow::into_owned),
            initial_events_end: metadata.annotations[INITIAL_EVENTS_END] == "true",
        }
    }

    /// Returns its version, unless that is older than a known one.
    pub(super) fn reached_since(self, known: &str) -> Option<String> {
        self.reached.filter(|reached| !is_older(reached, known))
    }
}

/// Returns true if both versions are numbers and the first is smaller.
fn is_older(one: &str, other: &str) -> bool {
    matches!((one.parse::<u64>(), other.parse::<u64>()), (Ok(one), Ok(other)) if one < other)
}

/// The maximum number of frames in a batch, which is applied under one lock.
const MAX_BATCH: usize = 128;

/// Returns true if a batch is complete. A bookmark is its last frame: it may end a list.
fn is_complete<T>(batch: &[Frame<T>]) -> bool {
    batch.len() >= MAX_BATCH || matches!(batch.last(), Some(Frame::Bookmark(_)))
}

/// The body of a watch, event by event. An API server writes each on a line of its own; others indent them, or put
/// nothing between them.
pub(super) struct Frames<B> {
    body: B,
    parser: Parser,
    /// True if another task of the thread should run before the next batch.
    must_yield: bool,
    /// The failure that came after the frames of the last batch.
    failure: Option<Failure>,
}

impl<B: AsyncBufRead + Unpin> Frames<B> {
    /// Creates the frames of a body, each at most `max_bytes` bytes long.
    pub(super) fn new(body: B, max_bytes: usize) -> Self {
        let parser = Parser { event: Vec::new(), end: End::default(), max_bytes };
        Self { body, parser, must_yield: false, failure: None }
    }

    /// Returns the next frame, which must come before `deadline`, and those in the same part of the body; none if the
    /// watch has ended. A last event that was cut off counts as the end, and an error that the server sends as an error.
    /// Must be awaited to its end, and not be called again after a failure.
    pub(super) async fn next_batch<T>(
        &mut self,
        deadline: Instant,
        decoder: &Decoder<T>,
        resource: &str,
    ) -> Result<Result<Vec<Frame<T>>, Failure>, Elapsed> {
        // A body that arrives faster than it is read must not starve other tasks of the thread.
        if std::mem::take(&mut self.must_yield) {
            tokio::task::yield_now().await;
        }
        let batch = timeout_at(deadline, self.wait(decoder, resource)).await?;
        self.must_yield = batch.as_ref().is_ok_and(|batch| is_complete(batch));
        Ok(batch)
    }

    /// Waits until there is a frame, or the watch has ended.
    async fn wait<T>(&mut self, decoder: &Decoder<T>, resource: &str) -> Result<Vec<Frame<T>>, Failure> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let mut batch = Vec::new();
        while batch.is_empty() {
            let part = self.body.fill_buf().await?;
            if part.is_empty() {
                break;
            }
            match self.parser.take(part, &mut batch, decoder, resource) {
                Ok(taken) => self.body.consume_unpin(taken),
                Err(failure) if batch.is_empty() => return Err(failure),
                Err(failure) => self.failure = Some(failure),
            }
        }
        Ok(batch)
    }
}

/// Finds events in the parts of a body.
struct Parser {
    /// The beginning of an event, of which the rest hasn't come.
    event: Vec<u8>,
    /// The search for the end of that event.
    end: End,
    /// The maximum length of an event in bytes: an endless one would take all memory.
    max_bytes: usize,
}

impl Parser {
    /// Appends the events that end in `part` to the batch, until that is complete or one fails. Returns the number of
    /// bytes of `part` that are used up.
    fn take<T>(
        &mut self,
        part: &[u8],
        batch: &mut Vec<Frame<T>>,
        decoder: &Decoder<T>,
        resource: &str,
    ) -> Result<usize, Failure> {
        let mut rest = part;
        while !is_complete(batch) {
            if self.event.is_empty() {
                // There may be any number of line breaks between events.
                rest = rest.trim_ascii_start();
                if let Some((line, after)) = self.whole_line(rest)
                    && let Some(frame) = Frame::of_line(line, decoder, resource)
                {
                    batch.push(frame?);
                    rest = after;
                    continue;
                }
            }
            if rest.is_empty() {
                break;
            }
            let found = rest.iter().position(|byte| self.end.is_at(*byte));
            let (of_event, after) = rest.split_at(found.map_or(rest.len(), |at| at + 1));
            rest = after;
            self.event.extend_from_slice(of_event);
            if self.event.len() >= self.max_bytes {
                let limit = self.max_bytes;
                return Err(Failure::BeyondLimit(format!("an event of the watch is longer than {limit} bytes")));
            }
            if found.is_some() {
                let frame = Frame::parse(&self.event, decoder, resource);
                self.begin_another();
                batch.push(frame?);
            }
        }
        Ok(part.len() - rest.len())
    }

    /// Returns the event that the first line is, as those of an API server are, and the rest. It saves the look at each
    /// byte.
    fn whole_line<'a>(&self, part: &'a [u8]) -> Option<(&'a str, &'a [u8])> {
        let (line, rest) = part.split_at(memchr::memchr(b'\n', part).filter(|length| *length < self.max_bytes)?);
        Some((std::str::from_utf8(line).ok()?, rest))
    }

    fn begin_another(&mut self) {
        /// The buffer of a large object isn't kept for the watch's whole life.
        const KEPT: usize = 64 << 10;
        self.event.clear();
        self.event.shrink_to(KEPT);
        self.end = End::default();
    }
}

/// Finds the end of an event byte by byte: the end of its object, or of the line if there is no object.
#[derive(Default)]
struct End {
    depth: usize,
    begun: bool,
    at: At,
    at_line_start: bool,
}

/// The position of a byte within JSON.
#[derive(Clone, Copy, Default, Eq, PartialEq)]
enum At {
    #[default]
    Structure,
    Text,
    /// In a string, after a backslash.
    Escape,
}

impl End {
    fn is_at(&mut self, byte: u8) -> bool {
        let at_line_start = std::mem::replace(&mut self.at_line_start, byte == b'\n');
        if !self.begun && byte.is_ascii_whitespace() {
            return false;
        }
        let first = !std::mem::replace(&mut self.begun, true);
        if self.at != At::Structure {
            self.at = match (self.at, byte) {
                (At::Text, b'"') => At::Structure,
                (At::Text, b'\\') => At::Escape,
                (At::Structure | At::Text | At::Escape, _) => At::Text,
            };
            // A string has no line breaks, so this one was cut off.
            return byte == b'\n';
        }
        match byte {
            b'"' if self.depth > 0 => self.at = At::Text,
            // Only another event begins at the start of a line, so this one was cut off.
            b'{' if at_line_start && !first => return true,
            b'{' => self.depth += 1,
            b'}' => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            b'\n' => return self.depth == 0,
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::{
        TryStreamExt as _,
        io::{BufReader, Cursor},
        stream,
    };

    use super::*;

    #[rstest::rstest]
    #[case::plain(r#"{"metadata":{"resourceVersion":"7"}}"#, Some("7"), false)]
    #[case::end(
        r#"{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}"#,
        Some("7"),
        true
    )]
    #[case::other(
        r#"{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"no"}}}"#,
        Some("7"),
        false
    )]
    #[case::odd(r#"{"metadata":{"annotations":"k8s.io/initial-events-end"}}"#, None, false)]
    #[case::empty("{}", None, false)]
    fn a_bookmark_says_how_far_it_reaches_and_whether_a_list_ends(
        #[case] json: &str,
        #[case] reached: Option<&str>,
        #[case] initial_events_end: bool,
    ) {
        assert_eq!(Bookmark::of(json), Bookmark { reached: reached.map(Into::into), initial_events_end });
    }

    fn decoder() -> Decoder<Value> {
        let projection = Projection::new("everything", |_, object: Value| Ok(object));
        Decoder { projection, texts: Arc::new(Interner::default()), secret: false }
    }

    fn in_a_minute() -> Instant {
        Instant::now() + std::time::Duration::from_secs(60)
    }

    /// A connection may break right after events.
    #[tokio::test]
    async fn events_before_an_error_of_the_connection_are_applied() {
        let event = |name: &str| {
            let object = format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"1"}}}}"#);
            Ok(format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n"))
        };
        let parts = [event("a"), event("b"), Err(std::io::ErrorKind::ConnectionReset.into())];
        let mut frames = Frames::new(stream::iter(parts).into_async_read(), 1_000);
        for _ in 0..2 {
            let batch = frames.next_batch(in_a_minute(), &decoder(), "widgets").await.unwrap().unwrap();
            assert_eq!(batch.len(), 1, "{batch:?}");
        }
        let failure = frames.next_batch(in_a_minute(), &decoder(), "widgets").await.unwrap().unwrap_err();
        assert!(failure.to_string().contains("connection reset"), "{failure}");
    }

    /// Returns the batches of a body that comes in parts of this length, and the failure that ends it.
    async fn read(body: &[u8], part: usize) -> (Vec<Vec<Frame<Value>>>, Option<Failure>) {
        let mut frames = Frames::new(BufReader::with_capacity(part, Cursor::new(body)), 1_000);
        let mut batches = Vec::new();
        loop {
            match frames.next_batch(in_a_minute(), &decoder(), "widgets").await.unwrap() {
                Ok(batch) if batch.is_empty() => return (batches, None),
                Ok(batch) => batches.push(batch),
                Err(failure) => return (batches, Some(failure)),
            }
        }
    }

    fn line(kind: &str, name: &str) -> String {
        format!("{{\"type\":\"{kind}\",\"object\":{{\"metadata\":{{\"name\":\"{name}\"}}}}}}\n")
    }

    #[rstest::rstest]
    #[case::ended("\r\n", 3, None)]
    #[case::indented("{\n  \"type\": \"DELETED\",\n  \"object\": {\"metadata\": {\"name\": \"}\\\"{\"}}\n}", 4, None)]
    #[case::without_a_line_break(r#" {"type": "DELETED", "object": {"metadata": {"name": "c"}}}"#, 4, None)]
    #[case::nothing_between(
        r#"{"type":"ADDED","object":{"metadata":{"name":"c:\\"}}}{"type":"DELETED","object":{"metadata":{"name":"c:\\"}}}"#,
        5,
        None
    )]
    #[case::cut(r#"{"type":"ADDED","object":{"metadata":{"na"#, 3, None)]
    #[case::cut_before_another("{\"type\":\"ADDED\",\"ob\n{\"type\":\"DELETED\"}\n", 3, Some("not a watch event"))]
    #[case::garbled("{\"type\":1}\n", 3, Some("not a watch event"))]
    #[case::error("{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n", 3, Some("gone"))]
    #[case::too_long(&line("ADDED", &"c".repeat(1_000)), 3, Some("longer than 1000 bytes"))]
    #[tokio::test]
    async fn a_watch_is_read_up_to_its_end_in_whatever_parts_it_comes(
        #[case] end: &str,
        #[case] events: usize,
        #[case] failure: Option<&str>,
    ) {
        let body = [&line("ADDED", "a"), "\n", &line("BOOKMARK", "a"), &line("MODIFIED", "}{\\\"b"), end].concat();
        for part in [1, 20, line("ADDED", "a").len(), 1 << 20] {
            let (batches, failed) = read(body.as_bytes(), part).await;
            assert_eq!(batches.iter().map(Vec::len).sum::<usize>(), events, "in parts of {part}: {batches:?}");
            let failed = failed.map(|failed| failed.to_string()).unwrap_or_default();
            assert!(failed.contains(failure.unwrap_or_default()), "{failed}");
            assert_eq!(failed.is_empty(), failure.is_none(), "{failed}");
        }
    }

    #[tokio::test]
    async fn a_batch_has_a_limit_and_ends_with_a_bookmark() {
        let lengths = async |body: String| {
            let (batches, _) = read(body.as_bytes(), 1 << 20).await;
            batches.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(lengths(line("ADDED", "a").repeat(300)).await, [MAX_BATCH, MAX_BATCH, 300 - 2 * MAX_BATCH]);
        assert_eq!(lengths([line("ADDED", "a"), line("BOOKMARK", "a"), line("ADDED", "a")].concat()).await, [2, 1]);
    }

    /// The body never waits, so that nothing but the parser's own yields ends a task's turn.
    #[tokio::test]
    async fn after_each_batch_other_tasks_of_the_thread_have_a_turn() {
        const BATCHES: usize = 20;
        let bookmark = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1"}}}"#;
        let event = br#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"1"}}}"#;
        // A bookmark ends a batch, and so do as many events as one may have.
        for (line, lines) in [(&bookmark[..], 1), (event, MAX_BATCH)] {
            let body = [line, b"\n"].concat().repeat(lines * BATCHES);
            let mut frames = Frames::new(BufReader::with_capacity(body.len(), Cursor::new(body)), 1_000);
            let decoder = decoder();
            let turns = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&turns);
            let other = tokio::spawn(async move {
                loop {
                    counted.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            });
            for number in 0..BATCHES {
                let had = turns.load(Ordering::Relaxed);
                let batch = frames.next_batch(in_a_minute(), &decoder, "widgets").await.unwrap().unwrap();
                assert_eq!(batch.len(), lines, "batch {number}");
                let had_since = turns.load(Ordering::Relaxed) - had;
                assert!(number == 0 || had_since > 0, "no other task had a turn before batch {number}");
            }
            other.abort();
        }
    }
}
