//! The size of a YAML document after the expansion of its aliases: a few lines can expand to more than any memory. It
//! must be checked before a document is parsed into a value.

use std::{cell::Cell, fmt};

use serde::{
    Deserializer,
    de::{DeserializeSeed, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor},
};

/// Checks the size of documents. Aliases may add at most `most_added` values and bytes of strings.
///
/// # Errors
/// If a document exceeds the limit, or the text isn't YAML.
pub fn check(text: &str, most_added: usize) -> Result<(), serde_yaml::Error> {
    // Without an alias, a document is never larger than its text.
    if !text.contains('*') {
        return Ok(());
    }
    let left = Cell::new(text.len().saturating_mul(2).saturating_add(most_added));
    serde_yaml::Deserializer::from_str(text).try_for_each(|document| Counted(&left).deserialize(document))
}

/// Counts a value and everything within it.
#[derive(Clone, Copy)]
struct Counted<'a>(&'a Cell<usize>);

impl Counted<'_> {
    fn count<E: Error>(self, bytes: usize) -> Result<(), E> {
        let left = self.0.get().checked_sub(bytes.saturating_add(1));
        self.0.set(left.ok_or_else(|| E::custom("its aliases stand for too much: write out what they are for"))?);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Counted<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Counted<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.count(0)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.count(0)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.count(0)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.count(0)
    }

    fn visit_i128<E: Error>(self, _: i128) -> Result<(), E> {
        self.count(0)
    }

    fn visit_u128<E: Error>(self, _: u128) -> Result<(), E> {
        self.count(0)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.count(0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.count(text.len())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.count(0)?;
        while items.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        self.count(0)?;
        while entries.next_key_seed(self)?.is_some() {
            entries.next_value_seed(self)?;
        }
        Ok(())
    }

    /// Counts a tagged value.
    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<(), A::Error> {
        let ((), value) = tagged.variant_seed(self)?;
        value.newtype_variant_seed(self)
    }
}
