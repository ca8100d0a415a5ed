//! Amounts of cpu and memory, formatted for people.

use rules::Quantity;

use rules::text::visible;

const BINARY_UNITS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Formats bytes in the largest binary unit that leaves at least 1, to one decimal. A text that isn't a quantity stays
/// as it is.
#[must_use]
pub fn bytes(quantity: &str) -> String {
    let Ok(parsed) = quantity.parse::<Quantity>() else { return visible(quantity).into_owned() };
    let mut tenths = i128::from(parsed.value()) * 10;
    let mut unit = 0;
    while tenths.abs() >= 10_240 && unit + 1 < BINARY_UNITS.len() {
        tenths = divide_to_nearest(tenths, 1024);
        unit += 1;
    }
    decimal(tenths, 1) + BINARY_UNITS[unit]
}

/// Formats cores with up to three decimals. A text that isn't a quantity stays as it is.
#[must_use]
pub fn cores(quantity: &str) -> String {
    let parsed = quantity.parse::<Quantity>();
    parsed.map_or_else(|_| visible(quantity).into_owned(), |parsed| decimal(i128::from(parsed.milli_value()), 3))
}

fn divide_to_nearest(value: i128, by: i128) -> i128 {
    (value + value.signum() * by / 2) / by
}

/// Formats a number of `10^-places`, without trailing zeros.
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
}
