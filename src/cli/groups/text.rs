//! Texts of clusters as a terminal may show them, and quantities as people read them.

use std::fmt::Write as _;

use crate::nodegroup::Quantity;

const BINARY_UNITS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Without anything that a terminal would obey, or that shows text in another order than it is written.
pub(in crate::cli) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || is_obeyed(c) {
            plain.extend(c.escape_default());
        } else {
            plain.push(c);
        }
    }
    plain
}

/// JSON without C1 control characters and DEL, which JSON itself allows in texts and nowhere else.
pub(in crate::cli) fn plain_json(json: &str) -> String {
    let mut plain = String::with_capacity(json.len());
    for c in json.chars() {
        if is_obeyed(c) {
            // Writing to a String can't fail.
            let _ = write!(plain, "\\u{:04x}", u32::from(c));
        } else {
            plain.push(c);
        }
    }
    plain
}

/// What JSON and YAML leave as it is, and a terminal obeys.
pub(in crate::cli) fn is_obeyed(c: char) -> bool {
    matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}') || is_bidi_control(c)
}

fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Bytes in the largest binary unit that leaves at least 1, to one decimal; what isn't a quantity as it stands.
pub(in crate::cli) fn bytes(quantity: &str) -> String {
    let Ok(parsed) = quantity.parse::<Quantity>() else { return plain(quantity) };
    let mut tenths = i128::from(parsed.value()) * 10;
    let mut unit = 0;
    while tenths.abs() >= 10_240 && unit + 1 < BINARY_UNITS.len() {
        tenths = divide_to_nearest(tenths, 1024);
        unit += 1;
    }
    decimal(tenths, 1) + BINARY_UNITS[unit]
}

/// Cores with up to three decimals; what isn't a quantity as it stands.
pub(in crate::cli) fn cores(quantity: &str) -> String {
    quantity.parse::<Quantity>().map_or_else(|_| plain(quantity), |parsed| decimal(i128::from(parsed.milli_value()), 3))
}

fn divide_to_nearest(value: i128, by: i128) -> i128 {
    (value + value.signum() * by / 2) / by
}

/// A number of `10^-places`, without zeros at its end.
fn decimal(value: i128, places: u32) -> String {
    let unit = 10_i128.pow(places);
    let (whole, rest) = (value / unit, (value % unit).abs());
    if rest == 0 {
        return whole.to_string();
    }
    let rest = format!("{rest:0width$}", width = places as usize);
    let sign = if value < 0 && whole == 0 { "-" } else { "" };
    format!("{sign}{whole}.{}", rest.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("16Gi", "16Gi")]
    #[case("32780828Ki", "31.3Gi")]
    #[case("1023", "1023")]
    #[case("1024", "1Ki")]
    #[case("16G", "14.9Gi")]
    #[case("2Ti", "2Ti")]
    #[case("0", "0")]
    #[case("9223372036854775807", "8Ei")]
    #[case("much\u{1b}[31m", "much\\u{1b}[31m")]
    fn memory_is_shown_in_binary_units(#[case] quantity: &str, #[case] shown: &str) {
        assert_eq!(bytes(quantity), shown);
    }

    #[rstest]
    #[case("8", "8")]
    #[case("3900m", "3.9")]
    #[case("1k", "1000")]
    #[case("250m", "0.25")]
    #[case("1n", "0.001")]
    fn cpu_is_shown_in_cores(#[case] quantity: &str, #[case] shown: &str) {
        assert_eq!(cores(quantity), shown);
    }

    #[rstest]
    #[case::escape("a\u{1b}]0;title\u{7}", "a\\u{1b}]0;title\\u{7}")]
    #[case::lines("a\r\nb\tc", "a\\r\\nb\\tc")]
    #[case::c1("\u{9b}31m", "\\u{9b}31m")]
    #[case::right_to_left("a\u{202e}b", "a\\u{202e}b")]
    #[case::letters("Größe 人", "Größe 人")]
    fn nothing_that_a_terminal_obeys_is_left(#[case] text: &str, #[case] shown: &str) {
        assert_eq!(plain(text), shown);
    }

    #[test]
    fn json_stays_the_same_value_without_control_characters() {
        let text = "a\u{9b}\u{7f}\u{202e}\u{1b}\"b";
        let json = plain_json(&serde_json::to_string(text).unwrap());
        assert!(!json.chars().any(|c| c.is_control() || is_bidi_control(c)), "{json:?}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
