//! Texts of a cluster on their way to people. Whoever may name an object must not be able to steer a terminal.

use std::{borrow::Cow, fmt::Write as _};

/// The text with every character escaped that moves the cursor, colours, hides or turns around what follows.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_steering) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            '\r' => shown.push_str("\\r"),
            c if is_steering(c) => {
                // Writing to a String can't fail.
                let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
            }
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// JSON that says the same without the characters that JSON leaves as they are and a terminal obeys.
pub(super) fn visible_json(json: String) -> String {
    if !json.contains(is_steering) {
        return json;
    }
    let mut shown = String::with_capacity(json.len() + 8);
    for c in json.chars() {
        if is_steering(c) {
            // All of them have code points of four digits. Writing to a String can't fail.
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// At most `limit` characters, with a mark where the rest was cut off.
#[must_use]
pub fn shortened(text: &str, limit: usize) -> Cow<'_, str> {
    match text.char_indices().nth(limit) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// Control characters, marks and overrides of the direction of writing, separators of lines, characters of no width.
fn is_steering(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}
