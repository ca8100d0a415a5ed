//! Parsing of an API server's lists and watches into objects, one at a time, so that memory holds the decoded JSON of
//! one object. Must never fail an answer for one object in it, and never log an object's content. Events in the usual
//! form of an API server have a fast path, which returns the same as the careful path, or falls back to it: a frame in
//! that form is found by the end of its line, any other is read byte by byte. A property test compares both over
//! mutilated real objects. Frames that arrive together, up to 128, are one batch, which is applied under one lock.

use std::{fmt, sync::Arc};

use futures::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};
use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{bookmark::Bookmark, failure::Failure};
use crate::{
    intern::Interner,
    object::{DecodeError, Object},
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
    /// Decodes an object; `None` if it has no name.
    fn decode(&self, json: &RawValue) -> Option<Object<T>> {
        self.decode_quickly(json.get()).or_else(|| {
            let mut object = self.projection.read_carefully(json.get(), &self.texts)?;
            if self.secret && object.content.is_err() {
                object.content = Err(DecodeError::new("it doesn't decode; the reason is redacted, since it is secret"));
            }
            Some(object)
        })
    }

    /// Decodes an object in one pass, if the text is exactly one object; `None` if the careful path is needed.
    fn decode_quickly(&self, json: &str) -> Option<Object<T>> {
        self.projection.read_quickly(json, &self.texts)
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
            match self.0.decode(json) {
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
    /// Added or modified, with the current state.
    Put(Object<T>),
    /// Deleted, with the last state.
    Delete(Object<T>),
    /// Added, modified or deleted, without a name.
    Nameless,
    /// A bookmark: the version up to which the watch has sent everything.
    Bookmark(Bookmark),
}

#[derive(Deserialize)]
struct RawFrame<'a> {
    r#type: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The beginnings of events in the usual form of an API server.
const BEGINNINGS: [&[u8]; 3] =
    [br#"{"type":"ADDED","object":"#, br#"{"type":"MODIFIED","object":"#, br#"{"type":"DELETED","object":"#];

impl<T> Frame<T> {
    /// Parses the event on the first line of `part`, and returns it with the rest. Returns `None` if the careful path
    /// is needed: the line is incomplete, unusual, longer than `max_bytes`, or its object can't be read in one pass. A
    /// line with a usual beginning, one JSON value and a brace is one event, so the careful path would find the same.
    fn of_line<'a>(part: &'a [u8], max_bytes: usize, decoder: &Decoder<T>) -> Option<(Self, &'a [u8])> {
        let begun = part.trim_ascii_start();
        let beginning = BEGINNINGS.into_iter().find(|beginning| begun.starts_with(beginning))?;
        let (line, rest) = begun.split_at_checked(memchr::memchr(b'\n', begun)? + 1)?;
        let event = line.trim_ascii_end();
        if event.len() >= max_bytes {
            return None;
        }
        let json = event.get(beginning.len()..)?.strip_suffix(b"}")?;
        let object = decoder.decode_quickly(std::str::from_utf8(json).ok()?)?;
        let is_deleted = beginning == BEGINNINGS[2];
        Some((if is_deleted { Self::Delete(object) } else { Self::Put(object) }, rest))
    }

    /// Returns the object that is to be stored.
    pub(super) fn stored(&self) -> Option<&Object<T>> {
        match self {
            Self::Put(object) => Some(object),
            Self::Delete(_) | Self::Nameless | Self::Bookmark(_) => None,
        }
    }

    fn parse(event: &[u8], decoder: &Decoder<T>, resource: &str) -> Result<Self, Failure> {
        let RawFrame { r#type, object } =
            serde_json::from_slice(event).map_err(|error| Failure::garbled("not a watch event", &error))?;
        let named = |frame: fn(Object<T>) -> Self| decoder.decode(object).map_or(Self::Nameless, frame);
        match r#type.as_str() {
            "ADDED" | "MODIFIED" => Ok(named(Self::Put)),
            "DELETED" => Ok(named(Self::Delete)),
            "BOOKMARK" => Ok(Self::Bookmark(Bookmark::of(object.get()))),
            "ERROR" => Err(Failure::of_watch(object.get(), resource)),
            _ => Err(Failure::Garbled("a watch event of unknown type".into())),
        }
    }
}

/// The maximum number of frames in a batch.
const MAX_BATCH: usize = 128;

/// The body of a watch, event by event. An API server writes each on a line of its own; others indent them, or put
/// nothing between them.
pub(super) struct Frames<B> {
    body: B,
    event: Vec<u8>,
    /// The maximum length of an event in bytes: an endless one would take all memory.
    max_bytes: usize,
    /// True if the last batch had more than one frame.
    took_many: bool,
    /// The number of bytes that were parsed one by one.
    pub(super) parsed_bytewise: usize,
}

impl<B: AsyncBufRead + Unpin> Frames<B> {
    /// Creates the frames of a body, each at most `max_bytes` bytes long.
    pub(super) fn new(body: B, max_bytes: usize) -> Self {
        Self { body, event: Vec::new(), max_bytes, took_many: false, parsed_bytewise: 0 }
    }

    /// Returns the frames whose lines are buffered, else the next one; none if the watch has ended.
    pub(super) async fn next_batch<T>(
        &mut self,
        decoder: &Decoder<T>,
        resource: &str,
    ) -> Result<Vec<Frame<T>>, Failure> {
        // A body that arrives faster than it is read must not starve other tasks of the thread.
        if std::mem::take(&mut self.took_many) {
            tokio::task::yield_now().await;
        }
        let part = self.body.fill_buf().await?;
        let (mut page, mut rest) = (Vec::new(), part);
        while page.len() < MAX_BATCH
            && let Some((frame, after)) = Frame::of_line(rest, self.max_bytes, decoder)
        {
            page.push(frame);
            rest = after;
        }
        let taken = part.len() - rest.len();
        self.body.consume_unpin(taken);
        self.took_many = page.len() > 1;
        if page.is_empty() {
            page.extend(self.next(decoder, resource).await?);
        }
        Ok(page)
    }

    /// Returns the next frame; `None` if the watch has ended. A last event that was cut off counts as the end, and an
    /// error that the server sends as an error.
    pub(super) async fn next<T>(&mut self, decoder: &Decoder<T>, resource: &str) -> Result<Option<Frame<T>>, Failure> {
        /// The buffer of a large object isn't kept for the watch's whole life.
        const KEPT: usize = 64 << 10;
        self.event.clear();
        self.event.shrink_to(KEPT);
        let mut end = End::default();
        loop {
            let part = self.body.fill_buf().await?;
            if part.is_empty() {
                return Ok(None);
            }
            let found = end.find(part);
            let taken = found.map_or(part.len(), |at| at + 1);
            self.parsed_bytewise += taken;
            let taken_part = &part[..taken];
            // There may be any number of line breaks between events.
            let of_event = if self.event.is_empty() { taken_part.trim_ascii_start() } else { taken_part };
            self.event.extend_from_slice(of_event);
            self.body.consume_unpin(taken);
            if self.event.len() >= self.max_bytes {
                return Err(self.too_long());
            }
            if found.is_some() {
                return Frame::parse(&self.event, decoder, resource).map(Some);
            }
        }
    }

    fn too_long(&mut self) -> Failure {
        self.event = Vec::new();
        Failure::BeyondLimit(format!("an event of the watch is longer than {} bytes", self.max_bytes))
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
    /// Returns the position of the end in further bytes. Within a string, which may have most of an event's bytes, only
    /// a few of them matter.
    fn find(&mut self, part: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < part.len() {
            if self.at == At::Text {
                let next = memchr::memchr3(b'"', b'\\', b'\n', &part[at..]).unwrap_or(part.len() - at);
                self.at_line_start &= next == 0;
                at += next;
            }
            if self.is_at(*part.get(at)?) {
                return Some(at);
            }
            at += 1;
        }
        None
    }

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
    use proptest::prelude::*;

    use super::*;

    /// Returns the positions of all ends, with a search that begins anew after each.
    fn ends(parts: &[Vec<u8>], find: impl Fn(&mut End, &[u8]) -> Option<usize>) -> Vec<(usize, usize)> {
        let (mut ends, mut end) = (Vec::new(), End::default());
        for (number, part) in parts.iter().enumerate() {
            let mut from = 0;
            while let Some(at) = find(&mut end, &part[from..]) {
                ends.push((number, from + at));
                (from, end) = (from + at + 1, End::default());
            }
        }
        ends
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        #[test]
        fn an_end_is_found_where_a_look_at_each_byte_finds_it(
            parts in prop::collection::vec(prop::collection::vec(prop::sample::select(b"{}\"\\\n a".to_vec()), 0..40), 1..6)
        ) {
            let each = |end: &mut End, part: &[u8]| part.iter().position(|byte| end.is_at(*byte));
            prop_assert_eq!(ends(&parts, End::find), ends(&parts, each));
        }
    }
}
