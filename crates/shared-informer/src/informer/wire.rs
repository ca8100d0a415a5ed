//! Parsing of an API server's lists and of the events of its watches into objects, one at a time, so that memory holds
//! the decoded JSON of one object. Must never fail an answer for one object in it, and never log an object's content.

use std::{fmt, sync::Arc};

use futures::{AsyncBufRead, AsyncReadExt};
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
    /// Decodes an object, in one pass if that is enough; `None` if the text isn't exactly one object with a name.
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
    r#type: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The beginnings of events in the usual form of an API server.
const BEGINNINGS: [&[u8]; 3] =
    [br#"{"type":"ADDED","object":"#, br#"{"type":"MODIFIED","object":"#, br#"{"type":"DELETED","object":"#];

impl<T> Frame<T> {
    /// Parses the event on the first line of `part`, and returns it with the rest. Returns `None` if the line is
    /// incomplete, unusual, longer than `max_bytes`, or its object has no name. A line with a usual beginning, one JSON
    /// value and a brace is one event, so a look at each byte would find the same.
    pub(super) fn of_line<'a>(part: &'a [u8], max_bytes: usize, decoder: &Decoder<T>) -> Option<(Self, &'a [u8])> {
        let begun = part.trim_ascii_start();
        let beginning = BEGINNINGS.into_iter().find(|beginning| begun.starts_with(beginning))?;
        let (line, rest) = begun.split_at_checked(memchr::memchr(b'\n', begun)? + 1)?;
        let event = line.trim_ascii_end();
        if event.len() >= max_bytes {
            return None;
        }
        let json = event.get(beginning.len()..)?.strip_suffix(b"}")?;
        // Without the spaces around it, as a `RawValue`: an error names a column of it.
        let json = std::str::from_utf8(json).ok()?.trim_matches([' ', '\t', '\r', '\n']);
        let object = decoder.decode(json)?;
        let frame = if beginning == BEGINNINGS[0] {
            Self::Add(object)
        } else if beginning == BEGINNINGS[1] {
            Self::Modify(object)
        } else {
            Self::Delete(object)
        };
        Some((frame, rest))
    }

    /// Returns the object that is to be stored.
    pub(super) fn stored(&self) -> Option<&Object<T>> {
        match self {
            Self::Add(object) | Self::Modify(object) => Some(object),
            Self::Delete(_) | Self::Nameless | Self::Bookmark(_) => None,
        }
    }

    pub(super) fn parse(event: &[u8], decoder: &Decoder<T>, resource: &str) -> Result<Self, Failure> {
        let RawFrame { r#type, object } =
            serde_json::from_slice(event).map_err(|error| Failure::garbled("not a watch event", &error))?;
        let named = |frame: fn(Object<T>) -> Self| decoder.decode(object.get()).map_or(Self::Nameless, frame);
        match r#type.as_str() {
            "ADDED" => Ok(named(Self::Add)),
            "MODIFIED" => Ok(named(Self::Modify)),
            "DELETED" => Ok(named(Self::Delete)),
            "BOOKMARK" => Ok(Self::Bookmark(Bookmark::of(object.get()))),
            "ERROR" => Err(Failure::of_watch(object.get(), resource)),
            _ => Err(Failure::Garbled("a watch event of unknown type".into())),
        }
    }
}
