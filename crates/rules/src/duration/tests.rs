//! Values, errors and printed forms as in Go, and properties that hold for every text.

use proptest::prelude::*;
use rstest::rstest;

use super::*;

const MICRO: i64 = 1_000;
const MILLI: i64 = 1_000 * MICRO;
const SECOND: i64 = 1_000 * MILLI;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

#[rstest]
#[case("0", 0)]
#[case("-0", 0)]
#[case("+0", 0)]
#[case("0s", 0)]
#[case("5s", 5 * SECOND)]
#[case("-5s", -5 * SECOND)]
#[case("+5m", 5 * MINUTE)]
#[case("30s", 30 * SECOND)]
#[case("1478s", 1478 * SECOND)]
#[case("+5s", 5 * SECOND)]
#[case("14s", 14 * SECOND)]
#[case("1.0s", SECOND)]
#[case("1.00s", SECOND)]
#[case("5.0s", 5 * SECOND)]
#[case("5.6s", 5 * SECOND + 600 * MILLI)]
#[case("5.s", 5 * SECOND)]
#[case(".5s", 500 * MILLI)]
#[case("1.004s", SECOND + 4 * MILLI)]
#[case("1.0040s", SECOND + 4 * MILLI)]
#[case("100.00100s", 100 * SECOND + MILLI)]
#[case("10ns", 10)]
#[case("11us", 11 * MICRO)]
#[case::micro_sign("12\u{b5}s", 12 * MICRO)]
#[case::greek_mu("12\u{3bc}s", 12 * MICRO)]
#[case("13ms", 13 * MILLI)]
#[case("15m", 15 * MINUTE)]
#[case("16h", 16 * HOUR)]
#[case("3h30m", 3 * HOUR + 30 * MINUTE)]
#[case::units_in_any_order("10.5s4m", 4 * MINUTE + 10 * SECOND + 500 * MILLI)]
#[case::the_same_unit_twice("1m1m", 2 * MINUTE)]
#[case("-2m3.4s", -(2 * MINUTE + 3 * SECOND + 400 * MILLI))]
#[case("1h2m3s4ms5us6ns", HOUR + 2 * MINUTE + 3 * SECOND + 4 * MILLI + 5 * MICRO + 6)]
#[case("39h9m14.425s", 39 * HOUR + 9 * MINUTE + 14 * SECOND + 425 * MILLI)]
#[case("52763797000ns", 52_763_797_000)]
#[case::more_digits_than_fit("0.3333333333333333333h", 20 * MINUTE)]
#[case::many_zeros("0.100000000000000000000h", 6 * MINUTE)]
#[case::digits_at_the_limit("0.830103483285477580700h", 49 * MINUTE + 48 * SECOND + 372_539_827)]
#[case::beyond_the_precision_of_a_float("9007199254740993ns", (1 << 53) + 1)]
#[case::the_largest("9223372036854775807ns", i64::MAX)]
#[case::the_largest_with_a_fraction("9223372036854775.807us", i64::MAX)]
#[case::the_largest_in_parts("9223372036s854ms775us807ns", i64::MAX)]
#[case::the_least("-9223372036854775808ns", i64::MIN)]
#[case::the_least_with_a_fraction("-9223372036854775.808us", i64::MIN)]
#[case::the_least_in_parts("-9223372036s854ms775us808ns", i64::MIN)]
#[case::the_least_as_it_is_printed("-2562047h47m16.854775808s", i64::MIN)]
fn a_duration_is_read(#[case] text: &str, #[case] nanos: i64) {
    assert_eq!(text.parse(), Ok(GoDuration::from_nanos(nanos)));
}

#[rstest]
#[case::empty("", DurationError::Malformed)]
#[case::a_sign_alone("-", DurationError::Malformed)]
#[case::a_unit_alone("s", DurationError::Malformed)]
#[case::a_point_alone(".", DurationError::Malformed)]
#[case::a_sign_and_a_point("-.", DurationError::Malformed)]
#[case::a_point_and_a_unit(".s", DurationError::Malformed)]
#[case::all_but_a_digit("+.s", DurationError::Malformed)]
#[case::two_signs("+-1s", DurationError::Malformed)]
#[case::leading_space(" 1s", DurationError::Malformed)]
#[case::a_word("hello", DurationError::Malformed)]
#[case::other_characters("\u{fffd} hello", DurationError::Malformed)]
#[case::no_unit("3", DurationError::MissingUnit)]
#[case::no_unit_at_the_end("1h30", DurationError::MissingUnit)]
#[case::two_points("1.5.5s", DurationError::MissingUnit)]
#[case::days("1d", DurationError::UnknownUnit("d".to_owned()))]
#[case::upper_case("1S", DurationError::UnknownUnit("S".to_owned()))]
#[case::a_sign_within("1h-30m", DurationError::UnknownUnit("h-".to_owned()))]
#[case::space_within("1h 30m", DurationError::UnknownUnit("h ".to_owned()))]
#[case::trailing_space("1h ", DurationError::UnknownUnit("h ".to_owned()))]
#[case::beyond_the_largest("9223372036854775808ns", DurationError::TooLong)]
#[case::far_beyond("9223372036854775810ns", DurationError::TooLong)]
#[case::beyond_the_least("-9223372036854775809ns", DurationError::TooLong)]
#[case::beyond_in_another_unit("9223372036854776us", DurationError::TooLong)]
#[case::hours("3000000h", DurationError::TooLong)]
#[case::beyond_by_a_fraction("9223372036854775.808us", DurationError::TooLong)]
#[case::beyond_by_a_part("9223372036854ms775us808ns", DurationError::TooLong)]
#[case::beyond_u64("99999999999999999999999999h", DurationError::TooLong)]
#[case::a_sum_beyond_u64("-9223372036854775808ns9223372036854775808ns", DurationError::TooLong)]
fn other_texts_are_errors(#[case] text: &str, #[case] expected: DurationError) {
    assert_eq!(text.parse::<GoDuration>(), Err(expected));
}

#[rstest]
#[case(0, "0s")]
#[case(1, "1ns")]
#[case(1_100, "1.1\u{b5}s")]
#[case(2_200_000, "2.2ms")]
#[case(3_300_000_000, "3.3s")]
#[case(4 * MINUTE + 5 * SECOND, "4m5s")]
#[case(4 * MINUTE + 5_001_000_000, "4m5.001s")]
#[case(5 * HOUR + 6 * MINUTE + 7_001_000_000, "5h6m7.001s")]
#[case(8 * MINUTE + 1, "8m0.000000001s")]
#[case(10 * MINUTE, "10m0s")]
#[case(HOUR, "1h0m0s")]
#[case(-HOUR, "-1h0m0s")]
#[case(i64::MAX, "2562047h47m16.854775807s")]
#[case(i64::MIN, "-2562047h47m16.854775808s")]
fn it_is_printed_as_in_go(#[case] nanos: i64, #[case] expected: &str) {
    assert_eq!(GoDuration::from_nanos(nanos).to_string(), expected);
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = text.parse::<GoDuration>();
    }

    #[test]
    fn nothing_near_a_duration_panics(text in "[+-]?([0-9]{0,22}(\\.[0-9]{0,30})?(ns|us|µs|μs|ms|s|m|h|d)?){0,4}") {
        let _ = text.parse::<GoDuration>();
    }

    #[test]
    fn a_duration_is_read_as_it_is_printed(nanos in any::<i64>()) {
        let duration = GoDuration::from_nanos(nanos);
        prop_assert_eq!(duration.to_string().parse(), Ok(duration));
        prop_assert_eq!(duration.as_nanos(), nanos);
    }

    #[test]
    fn order_is_by_length(left in any::<i64>(), right in any::<i64>()) {
        prop_assert_eq!(GoDuration::from_nanos(left).cmp(&GoDuration::from_nanos(right)), left.cmp(&right));
    }
}
