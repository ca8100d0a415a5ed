//! Reads an object's JSON into a tree of the fields that may be compared. The managed fields, half of the text of many
//! objects, never become part of it.

use std::fmt;

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, MapAccess, Visitor},
};
use serde_json::{Map, Value, value::RawValue};

use super::managers::{self, Entry};

/// An object's JSON, with its managed fields apart.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectJson {
    /// The object without `metadata.managedFields`.
    pub(super) value: Value,
    pub(super) managers: Vec<Entry>,
}

impl ObjectJson {
    /// Returns the object without its managed fields.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }
}

impl<'de> Deserialize<'de> for ObjectJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut managers = Vec::new();
        let fields = deserializer.deserialize_map(Fields { managers: &mut managers, within: Within::Object })?;
        Ok(Self { value: Value::Object(fields), managers })
    }
}

#[derive(Clone, Copy)]
enum Within {
    Object,
    Metadata,
}

/// Reads a map without the managed fields, which become entries.
struct Fields<'a> {
    managers: &'a mut Vec<Entry>,
    within: Within,
}

impl<'de> DeserializeSeed<'de> for Fields<'_> {
    type Value = Map<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.within {
            Within::Object => "an object",
            Within::Metadata => "an object's metadata",
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            match (self.within, key.as_str()) {
                (Within::Object, "metadata") => {
                    // The last of repeated fields counts.
                    self.managers.clear();
                    let metadata = Fields { managers: &mut *self.managers, within: Within::Metadata };
                    let metadata = map.next_value_seed(metadata)?;
                    fields.insert(key, Value::Object(metadata));
                }
                (Within::Metadata, "managedFields") => {
                    let text = map.next_value::<Box<RawValue>>()?;
                    *self.managers = managers::entries(text.get());
                }
                (Within::Object | Within::Metadata, _) => {
                    fields.insert(key, map.next_value()?);
                }
            }
        }
        Ok(fields)
    }
}
