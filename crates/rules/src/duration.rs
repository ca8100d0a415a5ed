//! Go's durations, as annotations that override autoscaling times and the program's flags have them.

use std::{fmt, str::FromStr};

use jiff::{
    SignedDuration,
    fmt::friendly::{Designator, Direction, Spacing, SpanPrinter},
};
use thiserror::Error;

/// A span of time in nanoseconds, as Go's `time.Duration`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct GoDuration(i64);

/// The error of a text that is no duration.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("it has to be numbers with the units h, m, s, ms, us or ns, such as 10m, 1h30m or 90s, of at most 292 years")]
pub struct DurationError;

impl GoDuration {
    /// Returns a duration of this many nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Returns the number of nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }
}

impl FromStr for GoDuration {
    type Err = DurationError;

    /// jiff also reads words, spaces and ISO 8601, which Cluster Autoscaler's other providers would refuse.
    fn from_str(text: &str) -> Result<Self, DurationError> {
        if matches!(text, "0" | "+0" | "-0") {
            return Ok(Self(0));
        }
        if text.contains(|c: char| !"0123456789.+-hmsnu\u{b5}".contains(c)) {
            return Err(DurationError);
        }
        let duration: SignedDuration = text.parse().map_err(|_| DurationError)?;
        i64::try_from(duration.as_nanos()).map(Self).map_err(|_| DurationError)
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let printer = SpanPrinter::new().designator(Designator::Compact).spacing(Spacing::None);
        let printer = printer.direction(Direction::Sign);
        f.write_str(&printer.duration_to_string(&SignedDuration::from_nanos(self.0)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const MILLI: i64 = 1_000_000;
    const SECOND: i64 = 1_000 * MILLI;
    const MINUTE: i64 = 60 * SECOND;
    const HOUR: i64 = 60 * MINUTE;

    #[rstest]
    #[case("0", 0)]
    #[case("-0", 0)]
    #[case("+0", 0)]
    #[case("+5m", 5 * MINUTE)]
    #[case("5.6s", 5 * SECOND + 600 * MILLI)]
    #[case("1.5h", 90 * MINUTE)]
    #[case::micro_sign("12\u{b5}s", 12_000)]
    #[case::as_go_prints_it("10m0s", 10 * MINUTE)]
    #[case("-2m3.4s", -(2 * MINUTE + 3 * SECOND + 400 * MILLI))]
    #[case("1h2m3s4ms5us6ns", HOUR + 2 * MINUTE + 3 * SECOND + 4 * MILLI + 5_006)]
    #[case("87600h", 87_600 * HOUR)]
    #[case::the_largest_as_it_is_printed("2562047h47m16.854775807s", i64::MAX)]
    #[case::the_least_as_it_is_printed("-2562047h47m16.854775808s", i64::MIN)]
    fn a_duration_is_read_as_in_go(#[case] text: &str, #[case] nanos: i64) {
        assert_eq!(text.parse(), Ok(GoDuration::from_nanos(nanos)));
    }

    #[rstest]
    #[case::empty("")]
    #[case::a_sign_alone("-")]
    #[case::a_unit_alone("s")]
    #[case::a_point_and_a_unit(".s")]
    #[case::two_signs("+-1s")]
    #[case::leading_space(" 1s")]
    #[case::trailing_space("1h ")]
    #[case::space_within("1h 30m")]
    #[case::a_word("hello")]
    #[case::no_unit("3")]
    #[case::no_unit_at_the_end("1h30")]
    #[case::two_points("1.5.5s")]
    #[case::days("1d")]
    #[case::a_longer_unit("10min")]
    #[case::iso_8601("PT10M")]
    #[case::upper_case("1S")]
    #[case::a_sign_within("1h-30m")]
    #[case::beyond_the_largest("9223372036854775808ns")]
    #[case::hours("3000000h")]
    #[case::beyond_u64("99999999999999999999999999h")]
    fn other_texts_are_errors(#[case] text: &str) {
        assert_eq!(text.parse::<GoDuration>(), Err(DurationError));
    }

    proptest! {
        #[test]
        fn a_duration_is_read_as_it_is_printed(nanos in any::<i64>()) {
            let duration = GoDuration::from_nanos(nanos);
            prop_assert_eq!(duration.to_string().parse(), Ok(duration), "{}", duration);
        }

        #[test]
        fn nothing_near_a_duration_panics(text in "[+-]?([0-9]{0,22}(\\.[0-9]{0,30})?(ns|us|µs|ms|s|m|h|d)?){0,4}") {
            let _ = text.parse::<GoDuration>();
        }
    }
}
