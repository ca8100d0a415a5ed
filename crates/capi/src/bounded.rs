//! The bounds of the texts that are kept of an object. An API server takes objects of a mebibyte and more: who may write
//! some of them must not fill the memory with them.

use std::borrow::Cow;

/// The longest value of an annotation, label or field that is read, in bytes.
pub const LONGEST_VALUE: usize = 16 * 1024;
/// The part of a message that is read, in bytes.
pub const LONGEST_MESSAGE: usize = 4 * 1024;
/// The longest value of the annotation delete-machine that may be one of this program, in bytes.
pub const LONGEST_MARK: usize = 256;

/// The most bytes of labels, annotations, taints and amounts that are kept of one object.
pub const MOST_KEPT: usize = 32 * 1024;
/// The most bytes of names that are kept of a list: of the instances of a MachinePool, or the workers of a topology.
pub const MOST_LISTED: usize = 512 * 1024;
/// The weight of an entry besides its texts, in maps and in what is made of them.
const ENTRY: usize = 128;

/// The end of what stands for a value that is too long.
const UNREAD: &str = "bytes; no more than 16384 are read)";

/// A value; where it is too long, a text that says so. No rule takes that for a value, and its problem shows it.
pub(super) fn value(text: &str) -> Cow<'_, str> {
    if text.len() <= LONGEST_VALUE { text.into() } else { format!("({} {UNREAD}", text.len()).into() }
}

/// Returns true if a value that is held stands for one that was too long.
#[must_use]
pub fn is_unread(value: &str) -> bool {
    value.starts_with('(') && value.ends_with(UNREAD)
}

/// The sum of several texts of an object that would be kept. Each of them has its bound, and so has their sum: an object has
/// room for thousands of them.
pub(super) struct Kept {
    bytes: usize,
    most: usize,
}

impl Kept {
    /// The texts of which so many bytes are kept.
    pub(super) fn most(most: usize) -> Self {
        Self { bytes: 0, most }
    }

    /// Counts one entry, which has these texts.
    pub(super) fn add(&mut self, texts: impl IntoIterator<Item: AsRef<str>>) {
        self.bytes += ENTRY + texts.into_iter().map(|text| text.as_ref().len()).sum::<usize>();
    }

    /// # Errors
    /// When they are too many; it names them by `texts`.
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

/// The beginning of a message.
pub(super) fn message(text: &str) -> &str {
    let end = (0..=LONGEST_MESSAGE.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    end.and_then(|end| text.get(..end)).unwrap_or_default()
}

/// A mark of a Machine. One that is too long is somebody else's, whatever it says.
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
        let mut kept = Kept::most(MOST_KEPT);
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
