//! Size limits for the texts that are kept of an object. An API server accepts objects of a mebibyte and more, and
//! whoever may write some of them must not be able to fill the memory.

use std::borrow::Cow;

use arcstr::ArcStr;
use jiff::Timestamp;

/// The maximum length of an annotation, label or field that is read, in bytes.
pub const LONGEST_VALUE: usize = 16 * 1024;
/// The number of bytes of a message that are read; the rest is cut.
pub const LONGEST_MESSAGE: usize = 4 * 1024;
/// The maximum length of a value of the annotation delete-machine that this program may have written, in bytes.
pub(crate) const LONGEST_MARK: usize = 256;

/// The maximum number of bytes of labels, annotations, taints and amounts that are kept of one object.
pub const MOST_KEPT: usize = 32 * 1024;
/// The maximum number of bytes of names that are kept of a list: the instances of a MachinePool, or the workers of a
/// topology.
pub const MOST_LISTED: usize = 512 * 1024;
/// The estimated memory of an entry besides its texts, in bytes: in its map, and in values derived from it.
const ENTRY: usize = 128;

/// The estimated memory of a text in a list or map besides its bytes: the informers' limit is for large fleets, and
/// mustn't count more than there is.
const LISTED: usize = 32;

/// The begin of the year 0000.
const FIRST_YEAR: Timestamp = Timestamp::constant(-62_167_219_200, 0);

/// Returns a time in the form of RFC 3339, whose years have four digits. jiff also reads signed ones of six, and the
/// earliest of those fail a debug assertion there.
#[must_use]
pub fn time(text: &str) -> Option<Timestamp> {
    let is_signed = !text.starts_with(|first: char| first.is_ascii_digit());
    let time = if is_signed { None } else { text.parse().ok() };
    time.filter(|time| *time >= FIRST_YEAR)
}

/// The end of the placeholder for a value that is too long.
const UNREAD: &str = "bytes; no more than 16384 are read)";

/// Returns the value, or a placeholder that states its length if it is too long. No rule accepts the placeholder as a
/// value, and the reported problem quotes it.
pub(super) fn value(text: &str) -> Cow<'_, str> {
    if text.len() <= LONGEST_VALUE { text.into() } else { format!("({} {UNREAD}", text.len()).into() }
}

/// Returns true if a stored value is the placeholder for one that was too long.
#[must_use]
pub fn is_unread(value: &str) -> bool {
    value.starts_with('(') && value.ends_with(UNREAD)
}

/// The total size of several texts of an object. Each text has its own limit, and their total needs one as well: an
/// object can have thousands of them.
pub(super) struct TotalSize {
    bytes: usize,
    most: usize,
}

impl TotalSize {
    /// Creates an empty total with a limit in bytes.
    pub(super) fn at_most(most: usize) -> Self {
        Self { bytes: 0, most }
    }

    /// Adds one entry with these texts.
    pub(super) fn add(&mut self, texts: impl IntoIterator<Item: AsRef<str>>) {
        self.bytes += ENTRY + texts.into_iter().map(|text| text.as_ref().len()).sum::<usize>();
    }

    /// Checks the limit.
    ///
    /// # Errors
    /// When the limit is exceeded; the message calls the texts `texts`.
    pub(super) fn check(&self, texts: &str) -> Result<(), String> {
        let Self { bytes, most } = self;
        if bytes <= most {
            return Ok(());
        }
        Err(format!(
            "{texts} have {bytes} bytes, {ENTRY} for each one included, and no more than {most} are kept of an object: \
             remove those that nobody needs"
        ))
    }
}

/// Returns the bytes of texts.
pub(super) fn bytes<'a>(texts: impl IntoIterator<Item = &'a ArcStr>) -> usize {
    texts.into_iter().map(ArcStr::len).sum()
}

/// Returns the bytes of texts in lists and maps.
pub(super) fn listed_bytes<'a>(texts: impl IntoIterator<Item = &'a ArcStr>) -> usize {
    texts.into_iter().map(|text| LISTED + text.len()).sum()
}

/// Returns the beginning of a message, cut between characters.
pub(super) fn message(text: &str) -> &str {
    let end = (0..=LONGEST_MESSAGE.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    end.and_then(|end| text.get(..end)).unwrap_or_default()
}

/// Returns a Machine's mark, or nothing if it is too long: then this program didn't write it.
pub(super) fn mark(text: &str) -> &str {
    if text.len() <= LONGEST_MARK { text } else { "" }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_kept_up_to_its_bound_and_beyond_is_a_text_that_says_so() {
        let at_bound = "1".repeat(LONGEST_VALUE);
        assert_eq!(value(&at_bound), at_bound);
        assert!(!is_unread(&at_bound));
        let beyond = value(&"1".repeat(LONGEST_VALUE + 1)).into_owned();
        assert_eq!(beyond, "(16385 bytes; no more than 16384 are read)");
        assert!(is_unread(&beyond) && UNREAD.contains(&LONGEST_VALUE.to_string()));
    }

    #[test]
    fn a_message_is_cut_at_its_bound_between_characters() {
        let at_bound = "e".repeat(LONGEST_MESSAGE);
        assert_eq!(message(&at_bound), at_bound);
        assert_eq!(message(&(at_bound.clone() + "e")), at_bound);
        let odd = "é".repeat(LONGEST_MESSAGE / 2);
        assert_eq!(message(&format!("e{odd}")).len(), LONGEST_MESSAGE - 1);
    }

    #[test]
    fn an_entry_counts_with_its_texts_and_more() {
        let mut kept = TotalSize::at_most(MOST_KEPT);
        kept.add(["key", "value"]);
        assert_eq!(kept.bytes, 8 + ENTRY);
        kept.add(["v".repeat(MOST_KEPT - 8 - 2 * ENTRY)]);
        assert_eq!((kept.bytes, kept.check("its labels")), (MOST_KEPT, Ok(())));
        kept.add([""]);
        let error = kept.check("its labels").unwrap_err();
        let said = "its labels have 32896 bytes, 128 for each one included, and no more than 32768";
        assert!(error.starts_with(said), "{error}");
    }

    #[test]
    fn a_mark_beyond_its_bound_is_nobodys() {
        let at_bound = "m".repeat(LONGEST_MARK);
        assert_eq!((mark(&at_bound), mark(&(at_bound.clone() + "m"))), (at_bound.as_str(), ""));
    }
}
