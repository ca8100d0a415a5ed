//! Cuts texts of requests and API servers before they are kept or logged: a request may hold megabytes.

use std::borrow::Cow;

/// The maximum length of a kept or logged text in bytes.
pub(super) const LONGEST_TEXT: usize = 4096;
/// The maximum length in bytes of a Node's id within a text.
pub(super) const LONGEST_ID: usize = 512;

const MARK: &str = " (cut)";

/// Returns the text, cut to this number of bytes if it is longer.
pub(super) fn clip(text: &str, longest: usize) -> Cow<'_, str> {
    if text.len() <= longest {
        return text.into();
    }
    let end = (0..=longest - MARK.len()).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    format!("{}{MARK}", &text[..end]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters_to_its_bound() {
        assert_eq!(clip("a text", 10), "a text");
        assert_eq!(clip("a longer text", 10), "a lo (cut)");
        assert_eq!(clip("äääääääää", 11), "ää (cut)");
    }
}
