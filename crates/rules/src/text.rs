//! Escapes and cuts texts from a cluster for people, as text and within JSON. A user who can name an object must not be able
//! to control a terminal: nothing from a cluster may be printed without this.

use std::{borrow::Cow, fmt::Write as _};

/// Returns the text, and escapes every character that moves the cursor, sets colours, hides text or changes its
/// direction.
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

/// Escapes each line of a text like [`visible`], and keeps the line breaks.
pub fn visible_lines(text: &str) -> String {
    text.split('\n').map(visible).collect::<Vec<_>>().join("\n")
}

/// Returns equivalent JSON without the characters that JSON doesn't escape and a terminal interprets.
pub fn visible_json(json: String) -> String {
    if !json.contains(is_left_by_json) {
        return json;
    }
    let mut shown = String::with_capacity(json.len() + 8);
    for c in json.chars() {
        if is_left_by_json(c) {
            // Their code points fit into four hex digits, and writing to a String can't fail.
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Returns true for characters that a terminal interprets and that JSON and YAML may contain unescaped. Control
/// characters below the space are excluded: they are escaped within strings, and are layout outside of strings.
pub fn is_left_by_json(c: char) -> bool {
    c >= ' ' && is_steering(c)
}

/// Returns at most `limit` characters, with a mark if the rest was cut off.
pub fn shortened(text: &str, limit: usize) -> Cow<'_, str> {
    match text.char_indices().nth(limit) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// Returns true for control characters, direction marks and overrides, line separators, and zero-width characters.
fn is_steering(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::letters("Größe 漢", "Größe 漢")]
    #[case::colour("\u{1b}[31mred", "\\u{1b}[31mred")]
    #[case::title("a\u{1b}]0;title\u{7}", "a\\u{1b}]0;title\\u{7}")]
    #[case::lines("a\nb\r\tc", "a\\nb\\r\\tc")]
    #[case::c1_and_delete("\u{9b}31m\u{7f}", "\\u{9b}31m\\u{7f}")]
    #[case::turned_around("a\u{202e}b\u{2066}", "a\\u{202e}b\\u{2066}")]
    #[case::hidden("a\u{200b}b\u{feff}", "a\\u{200b}b\\u{feff}")]
    #[case::separators("a\u{2028}b\u{2029}", "a\\u{2028}b\\u{2029}")]
    fn nothing_steers_a_terminal(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(visible(text), expected);
    }

    #[test]
    fn lines_stay_lines() {
        assert_eq!(visible_lines("a\u{1b}[2J\n  b\r\n"), "a\\u{1b}[2J\n  b\\r\n");
    }

    #[test]
    fn json_stays_the_same_value_and_keeps_its_lines() {
        let text = "a\u{9b}\u{7f}\u{202e}\u{1b}\u{feff}\"\nb";
        let json = visible_json(serde_json::to_string_pretty(&[text]).unwrap());
        assert!(!json.contains(|c| c != '\n' && is_steering(c)), "{json:?}");
        assert_eq!(json.lines().count(), 3, "{json:?}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&json).unwrap(), [text]);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(shortened("漢字だ", 2), "漢字…");
        assert_eq!(shortened("漢字だ", 3), "漢字だ");
    }
}
