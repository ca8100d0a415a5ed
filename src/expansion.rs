//! The size of a YAML document once its aliases are written out: some lines can stand for more than any memory has. It
//! is counted before anything of it is kept.

use std::{cell::Cell, fmt};

use serde::{
    Deserializer,
    de::{DeserializeSeed, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor},
};

/// Counts what documents hold. Aliases may add `most_added` to what stands there, in values and in bytes of texts.
///
/// # Errors
/// When it is too much, or no YAML.
pub(crate) fn check(text: &str, most_added: usize) -> Result<(), serde_yaml::Error> {
    // Without an alias a text holds no more than it is long.
    if !text.contains('*') {
        return Ok(());
    }
    let left = Cell::new(text.len().saturating_mul(2).saturating_add(most_added));
    serde_yaml::Deserializer::from_str(text).try_for_each(|document| Counted(&left).deserialize(document))
}

/// Counts one value and all within.
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

    /// A value with a tag.
    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<(), A::Error> {
        let ((), value) = tagged.variant_seed(self)?;
        value.newtype_variant_seed(self)
    }
}
