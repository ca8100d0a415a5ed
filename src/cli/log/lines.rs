//! Writes each event as one line: texts from clusters, peers and libraries can't begin another line, change the
//! direction of text, or control a terminal. Each event arrives in one call, with a newline at its end.

use std::io::{self, Write};

use rules::text::{visible, visible_json};

/// The form of events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    Text,
    Json,
}

/// Writes lines to a destination.
#[derive(Debug)]
pub(super) struct Lines<W> {
    pub(super) form: Form,
    pub(super) to: W,
}

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = match self.form {
            Form::Text => one_line(&text),
            Form::Json => visible_json(text.into_owned()),
        };
        self.to.write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Escapes everything in an event that controls a terminal, except the newline at its end and the colours of the log
/// itself.
fn one_line(event: &str) -> String {
    let body = event.strip_suffix('\n');
    let mut pieces = body.unwrap_or(event).split('\u{1b}');
    let mut line = visible(pieces.next().unwrap_or_default()).into_owned();
    for piece in pieces {
        let (colour, rest) = piece.split_at(length_of_colour(piece).unwrap_or_default());
        line.push_str(if colour.is_empty() { "\\u{1b}" } else { "\u{1b}" });
        line.push_str(colour);
        line.push_str(&visible(rest));
    }
    if body.is_some() {
        line.push('\n');
    }
    line
}

/// Returns the length of the rest of an escape sequence that sets a colour, such as `[32m`; `None` for any other
/// text.
fn length_of_colour(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix('[')?;
    let end = parameters.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    parameters.get(end..)?.starts_with('m').then_some(end + 2)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::as_it_is("INFO x: Größe a=\"b\"\n", "INFO x: Größe a=\"b\"\n")]
    #[case::a_forged_line("a\n2026 INFO x: forged\n", "a\\n2026 INFO x: forged\n")]
    #[case::only_newlines("\n\n\n", "\\n\\n\n")]
    #[case::a_carriage_return("a\rb\n", "a\\rb\n")]
    #[case::turned_around("a\u{202e}b\u{2066}c\u{200f}\n", "a\\u{202e}b\\u{2066}c\\u{200f}\n")]
    #[case::other_separators("a\u{2028}b\u{85}c\n", "a\\u{2028}b\\u{85}c\n")]
    #[case::colours_of_the_log(
        "\u{1b}[32m INFO\u{1b}[0m \u{1b}[1;2mx\u{1b}[m\n",
        "\u{1b}[32m INFO\u{1b}[0m \u{1b}[1;2mx\u{1b}[m\n"
    )]
    #[case::what_clears_the_screen("a\u{1b}[2Jb\n", "a\\u{1b}[2Jb\n")]
    #[case::a_title("a\u{1b}]0;title\u{7}\n", "a\\u{1b}]0;title\\u{7}\n")]
    #[case::half_a_colour("a\u{1b}[32", "a\\u{1b}[32")]
    fn an_event_is_one_line(#[case] event: &str, #[case] expected: &str) {
        assert_eq!(one_line(event), expected);
    }

    #[test]
    fn json_stays_the_same_value() {
        let event = serde_json::to_string(&["a\u{202e}b\nc"]).unwrap() + "\n";
        let mut lines = Lines { form: Form::Json, to: Vec::new() };
        lines.write_all(event.as_bytes()).unwrap();
        let written = String::from_utf8(lines.to).unwrap();
        assert_eq!(written, "[\"a\\u202eb\\nc\"]\n");
        assert_eq!(serde_json::from_str::<Vec<String>>(&written).unwrap(), ["a\u{202e}b\nc"]);
    }
}
